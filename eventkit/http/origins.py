"""Whose pages may ask from within a browser (CORS): those of no other origin, unless `ServiceSettings` names it.

Nothing is ever permitted with credentials, which would be the cookie of the dashboard: whoever asks sends a key of its
own, and the pages of the service are for themselves alone.
"""

import re

from litestar.config.cors import CORSConfig

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@*,]+")
_MAY_SEND = (
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "Last-Event-ID",
    "X-Eventkit-Signature",
    "X-Request-Id",
)
_MAY_READ = ("Retry-After", "X-Request-Id")

ANY = "*"


def permitted(origins: list[str]) -> CORSConfig | None:
    """What the framework answers to browsers; None where only pages of its own origin may ask."""
    for origin in origins:
        if origin != ANY and not _ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin!r} is no origin: write it as in https://shop.example:8443, without a path, or *")
    if not origins:
        return None
    return CORSConfig(
        allow_origins=origins,
        allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=[*_MAY_SEND],
        expose_headers=[*_MAY_READ],
        allow_credentials=False,
    )

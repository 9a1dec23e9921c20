"""Origins: CORS, protection against cross-site requests, and reverse proxies.

CORS lets pages of other origins read responses only if `ServiceSettings` names the origin, and never with credentials,
which would be the cookie of the dashboard.  But browsers send simple requests without a preflight.  So
`refuse_foreign` refuses a request that may change something if its ``Origin`` or ``Sec-Fetch-Site`` names a page of
another origin.

Behind a proxy the host and scheme of a request may differ from those in the browser.  `ServiceSettings.public_origin`
sets the browser's, and `forwarded` trusts the ``X-Forwarded-*`` headers of `ServiceSettings.trusted_proxies`.
"""

import re
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any

from litestar.config.cors import CORSConfig
from litestar.connection import ASGIConnection
from litestar.types import Scope

from .requests import Refusal
from .service import ServiceSettings

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
_PORTS = {"http": ":80", "https": ":443"}

ANY = "*"
SAFE = ("GET", "HEAD", "OPTIONS")
"""Methods without side effects."""

Networks = tuple[IPv4Network | IPv6Network, ...]
Connection = ASGIConnection[Any, Any, Any, Any]


def permitted(settings: ServiceSettings) -> CORSConfig | None:
    """Return the CORS settings of the framework; None if no other origin is permitted."""
    public = settings.public_origin
    for origin in (*settings.cors_origins, *([public] if public else [])):
        if (origin != ANY or origin == public) and not _ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin!r} is not an origin: use * or, for example, https://shop.example:8443")
    if not settings.cors_origins:
        return None
    return CORSConfig(
        allow_origins=settings.cors_origins,
        allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=[*_MAY_SEND],
        expose_headers=[*_MAY_READ],
        allow_credentials=False,
    )


def networks(proxies: list[str]) -> Networks:
    """Parse addresses and networks."""
    try:
        return tuple(ip_network(proxy) for proxy in proxies)
    except ValueError as error:
        raise ValueError(f"trusted_proxies takes addresses and networks, such as 10.0.0.0/8: {error}") from None


def forwarded(scope: Scope, proxies: Networks) -> None:
    """Set scheme and host of the request to those that a trusted proxy reports."""
    client = scope.get("client")
    if not (proxies and client and _is_in(client[0], proxies)):
        return
    headers = dict(scope["headers"])
    scheme, host = (_last(headers.get(name)) for name in (b"x-forwarded-proto", b"x-forwarded-host"))
    if scheme in (b"http", b"https"):
        scope["scheme"] = scheme.decode()
    if host:
        scope["headers"] = [*(one for one in scope["headers"] if one[0] != b"host"), (b"host", host)]


def browsed(connection: Connection, settings: ServiceSettings) -> str:
    """Return the origin at which the browser has the page."""
    if origin := connection.headers.get("origin"):
        return origin
    if is_public(connection, settings):
        return settings.public_origin
    return f"{connection.scope['scheme']}://{connection.headers.get('host', '')}"


def is_public(connection: Connection, settings: ServiceSettings) -> bool:
    """Return whether the request names the host of the public origin."""
    return _is_of(settings.public_origin, connection.headers.get("host", ""))


def refuse_foreign(connection: Connection, settings: ServiceSettings) -> None:
    """Refuse a request with side effects from a page of a foreign origin that the settings do not permit."""
    if connection.scope.get("method") in SAFE:
        return
    origin, site = connection.headers.get("origin"), connection.headers.get("sec-fetch-site")
    if origin is not None and (origin in settings.cors_origins or ANY in settings.cors_origins):
        return
    ours = origin is None or origin == settings.public_origin or _is_of(origin, connection.headers.get("host", ""))
    if not ours or site in ("cross-site", "same-site"):
        raise Refusal(
            403,
            "foreign_origin",
            "the request was sent by a page of another origin: add the origin to cors_origins or, if it is that of the "
            "service behind a proxy, set public_origin",
        )


def _is_of(origin: str, host: str) -> bool:
    """Return whether *origin* is at *host*, which may omit the default port of the scheme."""
    scheme, _, netloc = origin.lower().partition("://")
    return bool(netloc) and host.lower().removesuffix(_PORTS.get(scheme, "")) == netloc


def _is_in(client: str, proxies: Networks) -> bool:
    try:
        address = ip_address(client)
    except ValueError:
        return False  # Clients of a Unix socket or a test have no address.
    return any(address in network for network in proxies)


def _last(header: bytes | None) -> bytes:
    """Return the value that the nearest proxy added."""
    return (header or b"").rpartition(b",")[2].strip()

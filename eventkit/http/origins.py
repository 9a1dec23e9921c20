"""Browsers: the pages of which origins may use the service, and under which address browsers know it.

CORS answers browsers that ask before they send: pages of no other origin may read, unless `ServiceSettings` names it,
and nothing is ever permitted with credentials, which would be the cookie of the dashboard.  But a browser sends simple
requests without asking.  So a request that may change something is refused if its ``Origin`` or ``Sec-Fetch-Site``
says that a page of another origin has sent it (`refuse_foreign`).

Behind a proxy a request may name another host and scheme than the browser has.  `ServiceSettings.public_origin` says
what the browser has, and of `ServiceSettings.trusted_proxies` the headers ``X-Forwarded-*`` are believed (`forwarded`).
"""

import re
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any

from litestar.config.cors import CORSConfig
from litestar.connection import ASGIConnection
from litestar.types import Scope

from .problems import Refusal
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
"""Methods that change nothing."""

Networks = tuple[IPv4Network | IPv6Network, ...]
Connection = ASGIConnection[Any, Any, Any, Any]


def permitted(settings: ServiceSettings) -> CORSConfig | None:
    """What the framework answers to browsers; None where only pages of its own origin may ask."""
    public = settings.public_origin
    for origin in (*settings.cors_origins, *([public] if public else [])):
        if (origin != ANY or origin == public) and not _ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin!r} is no origin: write it as in https://shop.example:8443, without a path, or *")
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
    """The addresses and networks that *proxies* names."""
    try:
        return tuple(ip_network(proxy) for proxy in proxies)
    except ValueError as error:
        raise ValueError(f"trusted_proxies are addresses and networks, as in 10.0.0.0/8: {error}") from None


def forwarded(scope: Scope, proxies: Networks) -> None:
    """Give the request the scheme and the host of which a trusted proxy says that the browser has used them."""
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
    """The origin under which the browser has the page that sends or gets this."""
    if origin := connection.headers.get("origin"):
        return origin
    if is_public(connection, settings):
        return settings.public_origin
    return f"{connection.scope['scheme']}://{connection.headers.get('host', '')}"


def is_public(connection: Connection, settings: ServiceSettings) -> bool:
    """Whether the request names the host of the public origin."""
    return _is_of(settings.public_origin, connection.headers.get("host", ""))


def refuse_foreign(connection: Connection, settings: ServiceSettings) -> None:
    """Refuse a request that may change something and was sent by a page of an origin that is neither ours nor named."""
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
            "a page of another origin has sent this: name its origin in cors_origins, or, if it is the address of the "
            "service behind a proxy, in public_origin",
        )


def _is_of(origin: str, host: str) -> bool:
    """Whether *origin* is at *host*, whose port may be left out where it is the scheme's own."""
    scheme, _, netloc = origin.lower().partition("://")
    return bool(netloc) and host.lower().removesuffix(_PORTS.get(scheme, "")) == netloc


def _is_in(client: str, proxies: Networks) -> bool:
    try:
        address = ip_address(client)
    except ValueError:
        return False  # Not every client has an address: a test's has a name, and one of a Unix socket has nothing.
    return any(address in network for network in proxies)


def _last(header: bytes | None) -> bytes:
    """The value that the nearest proxy has added."""
    return (header or b"").rpartition(b",")[2].strip()

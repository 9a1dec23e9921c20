"""The ASGI application: routes, guards, request ids and the access log, and the origins of browsers.

CORS lets pages of other origins read responses only if `ServiceSettings` names the origin, and never with credentials,
which would be the cookie of the dashboard.  But browsers send simple requests without a preflight.  So a request that
may change something is refused if its ``Origin`` or ``Sec-Fetch-Site`` names a page of another origin.

Behind a proxy the host and scheme of a request may differ from those in the browser.  `ServiceSettings.public_origin`
sets the browser's; the ``X-Forwarded-*`` headers of `ServiceSettings.trusted_proxies` are trusted.
"""

import logging
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from random import getrandbits
from time import perf_counter
from typing import Any

from litestar import Litestar
from litestar.config.cors import CORSConfig
from litestar.datastructures import State
from litestar.di import Provide
from litestar.handlers import BaseRouteHandler
from litestar.types import ASGIApp, ControllerRouterHandler, Message, Middleware, Receive, Scope, Send

from ..logs import REQUEST
from ..protocols import AsyncEventKit
from ..telemetry import start_span
from . import coordination, groups, ops, queues, spellings, streams, tasks, webhooks
from .bodies import Refusal
from .dashboard.pages import router as dashboard
from .keys import caller, is_at
from .routing import ACCESS, Access, Connection, Route, answer_problem, hide_slashes, show_slashes
from .service import ServiceContext, ServiceMetrics, ServiceSettings, audit, stop_auditing

access = logging.getLogger("eventkit.http.access")

ROUTES = (queues, tasks, webhooks, streams, groups, coordination, ops)
"""The modules with routes, in the order of the OpenAPI document."""

Guard = Callable[[Connection, Access], Awaitable[None]]
"""A check before each route whose scope is not ``open``; it raises `Refusal` to deny the request."""

ANY = "*"  # The origin that stands for all.
_SAFE = ("GET", "HEAD", "OPTIONS")  # Methods without side effects.

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@*,]+")
_MAY_SEND = "Authorization Content-Type Idempotency-Key Last-Event-ID X-Eventkit-Signature X-Request-Id"
_REQUEST_ID = b"x-request-id"
_TRACE = ("traceparent", "tracestate")
_ID = re.compile(rb"[\w.:/+=-]{1,128}")


def observed(app: ASGIApp, metrics: ServiceMetrics) -> ASGIApp:
    """Return *app* with request ids, metrics, spans and the access log."""
    in_progress = metrics.open.of()

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        show_slashes(scope)
        headers = dict(scope["headers"])
        route, method = str(scope.get("path_template") or "/"), str(scope.get("method", ""))
        given = headers.get(_REQUEST_ID)
        id = given.decode() if given is not None and _ID.fullmatch(given) else f"{getrandbits(128):032x}"
        status = 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (_REQUEST_ID, id.encode())]
            await send(message)

        began, token = perf_counter(), REQUEST.set(id)
        in_progress.value += 1
        try:
            with _span(method, route, headers) as span:
                try:
                    await app(scope, receive, answer)
                finally:
                    if span is not None:
                        span.set_attribute("http.response.status_code", status)
        finally:
            in_progress.value -= 1
            took = perf_counter() - began
            metrics.requests.of(method, route, f"{status // 100}xx").observe(took)
            if access.isEnabledFor(logging.INFO):
                fields = {"method": method, "route": route, "status": status, "seconds": round(took, 6)}
                access.info("%s %s %s", method, scope["path"], status, extra=fields)
            REQUEST.reset(token)

    return handle


def _span(method: str, route: str, headers: Mapping[bytes, bytes]) -> AbstractContextManager[Any]:
    """Return the current span of the body; None if OpenTelemetry is not loaded."""
    if "opentelemetry.trace" not in sys.modules:
        return nullcontext()
    from opentelemetry import trace

    carrier = {name: headers[name.encode()].decode("latin-1") for name in _TRACE if name.encode() in headers}
    attributes = {"http.request.method": method, "http.route": route}
    return trace.use_span(start_span(f"{method} {route}", "SERVER", carrier, attributes), end_on_exit=True)


class Application(Litestar):
    """The framework's application, with support for proxies, slashes in names, and HEAD."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request."""
        if scope["type"] == "http":
            scope = scope.copy()
            _forward(scope, self.state.proxies)
            hide_slashes(scope)
            if scope["method"] == "HEAD":
                scope["method"], send = "GET", _without_body(send)
        await super().__call__(scope, receive, send)


def _without_body(send: Send) -> Send:
    """Send only the head of a response; end it at the first part of the body, as a stream has no last part."""
    ended = False

    async def answer(message: Message) -> None:
        nonlocal ended
        if message["type"] == "http.response.body":
            if ended:
                return
            ended = True
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await send(message)

    return answer


def _forward(scope: Scope, proxies: tuple[IPv4Network | IPv6Network, ...]) -> None:
    """Set scheme and host of the request to those that a trusted proxy reports."""
    client = scope.get("client")
    if not (proxies and client):
        return
    try:
        address = ip_address(client[0])
    except ValueError:
        return  # Clients of a Unix socket or a test have no address.
    if any(address in network for network in proxies):
        # The last of several values is from the nearest proxy.
        headers = {name: value.rpartition(b",")[2].strip() for name, value in scope["headers"]}
        if (scheme := headers.get(b"x-forwarded-proto")) in (b"http", b"https"):
            scope["scheme"] = scheme.decode()
        if host := headers.get(b"x-forwarded-host"):
            scope["headers"] = [*(one for one in scope["headers"] if one[0] != b"host"), (b"host", host)]


def _proxies(settings: ServiceSettings) -> tuple[IPv4Network | IPv6Network, ...]:
    try:
        return tuple(map(ip_network, settings.trusted_proxies))
    except ValueError as error:
        raise ValueError(f"trusted_proxies takes addresses and networks, such as 10.0.0.0/8: {error}") from None


def _cors(settings: ServiceSettings) -> CORSConfig | None:
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
        allow_headers=[*_MAY_SEND.split()],
        expose_headers=["Retry-After", "X-Request-Id"],
        allow_credentials=False,
    )


def _refuse_foreign(connection: Connection, settings: ServiceSettings) -> None:
    """Refuse a request with side effects from a page of a foreign origin that the settings do not permit."""
    if connection.scope.get("method") in _SAFE:
        return
    origin, site = connection.headers.get("origin"), connection.headers.get("sec-fetch-site")
    if origin is not None and (origin in settings.cors_origins or ANY in settings.cors_origins):
        return
    ours = origin is None or origin == settings.public_origin or is_at(origin, connection)
    if not ours or site in ("cross-site", "same-site"):
        raise Refusal(
            403,
            "foreign_origin",
            "the request was sent by a page of another origin: add the origin to cors_origins or, if it is that of the "
            "service behind a proxy, set public_origin",
        )


def app(
    kit: AsyncEventKit,
    *,
    settings: ServiceSettings | None = None,
    guard: Guard | None = None,
    middleware: Sequence[Middleware] = (),
    pages: Sequence[ControllerRouterHandler] = (),
) -> Litestar:
    """Return an ASGI application that serves *kit*, which the caller closes.

    *guard* runs before each route, *middleware* around all of them; *pages* are routes outside the OpenAPI document.
    """
    context = ServiceContext(kit, settings or ServiceSettings())

    async def ask(connection: Connection, handler: BaseRouteHandler) -> None:
        # One request may run in the context of the previous one.
        stop_auditing()
        access = handler.opt.get(ACCESS)
        _refuse_foreign(connection, context.settings)
        if guard is not None and access is not None and access.scope != "open":
            await guard(connection, access)
        if access is not None and access.scope == "admin":
            audit(f"{connection.scope.get('method')} {connection.scope['path']}", caller(connection))

    ours = [handler for module in ROUTES for handler in vars(module).values() if isinstance(handler, Route)]
    routes = (*ours, *spellings.deprecated_routes())
    state: dict[str, Any] = {"context": context, "guard": guard, "proxies": _proxies(context.settings), "sessions": {}}
    return Application(
        state=State(state | {"routes": routes}),
        route_handlers=[*routes, dashboard(), *pages],
        dependencies={"service": Provide(lambda: context, sync_to_thread=False)},
        guards=[ask],
        middleware=[partial(observed, metrics=context.metrics), *middleware],
        exception_handlers={Exception: answer_problem},
        openapi_config=None,
        cors_config=_cors(context.settings),
        request_max_body_size=context.settings.max_body,
        logging_config=None,
        debug=False,
    )

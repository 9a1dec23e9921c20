"""The ASGI application: routes, guard and access log."""

import logging
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from random import getrandbits
from time import perf_counter
from typing import Any

from litestar import Litestar, Request
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.di import Provide
from litestar.handlers import BaseRouteHandler
from litestar.types import ASGIApp, ControllerRouterHandler, Message, Middleware, Receive, Scope, Send

from ..logs import REQUEST
from ..protocols import AsyncEventKit
from . import coordination, jobs, ops, queues, schedules, streams, tasks
from .dashboard import router as dashboard
from .keys import caller
from .metrics import ServiceMetrics
from .origins import forwarded, networks, permitted, refuse_foreign
from .requests import handlers
from .routing import ACCESS, Access, Route, hide_slashes, show_slashes
from .service import ServiceContext, ServiceSettings, audit, stop_auditing

access = logging.getLogger("eventkit.http.access")

_HEADER = b"x-request-id"
_ID = re.compile(rb"[\w.:/+=-]{1,128}")


class Observed:
    """Middleware around *app*: request ids, metrics, spans and the access log."""

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics) -> None:
        self._application = app
        self._seconds, self._open = metrics.requests, metrics.open.of()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        show_slashes(scope)
        headers = dict(scope["headers"])
        route, method = str(scope.get("path_template") or "/"), str(scope.get("method", ""))
        given = headers.get(_HEADER)
        id = given.decode() if given is not None and _ID.fullmatch(given) else f"{getrandbits(128):032x}"
        status = 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (_HEADER, id.encode())]
            await send(message)

        began, token = perf_counter(), REQUEST.set(id)
        self._open.value += 1
        try:
            with _span(method, route, headers) as span:
                try:
                    await self._application(scope, receive, answer)
                finally:
                    if span is not None:
                        span.set_attribute("http.response.status_code", status)
        finally:
            self._open.value -= 1
            took = perf_counter() - began
            self._seconds.of(method, route, f"{status // 100}xx").observe(took)
            if access.isEnabledFor(logging.INFO):
                fields = {"method": method, "route": route, "status": status, "seconds": round(took, 6)}
                access.info("%s %s %s", method, scope["path"], status, extra=fields)
            REQUEST.reset(token)


@contextmanager
def _span(method: str, route: str, headers: Mapping[bytes, bytes]) -> Iterator[Any]:
    """Begin a span and make it current; yield None if OpenTelemetry is not loaded."""
    if "opentelemetry.trace" not in sys.modules:
        yield None
        return
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {
        name: headers[name.encode()].decode("latin-1")
        for name in ("traceparent", "tracestate")
        if name.encode() in headers
    }
    parent = TraceContextTextMapPropagator().extract(carrier)
    attributes = {"http.request.method": method, "http.route": route}
    with trace.get_tracer("eventkit").start_as_current_span(
        f"{method} {route}", context=parent, kind=trace.SpanKind.SERVER, attributes=attributes
    ) as span:
        yield span


ROUTES = (queues, tasks, jobs, schedules, streams, coordination, ops)
"""The modules with routes, in the order of the OpenAPI document."""

Guard = Callable[["ASGIConnection[Any, Any, Any, Any]", Access], Awaitable[None]]
"""A check before each route whose scope is not ``open``; it raises `Refusal` to deny the request."""


class Application(Litestar):
    """The framework's application, with support for proxies, slashes in names, and HEAD."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request."""
        if scope["type"] == "http":
            scope = scope.copy()
            forwarded(scope, self.state.proxies)
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

    def service() -> ServiceContext:
        return context

    async def ask(connection: "ASGIConnection[Any, Any, Any, Any]", handler: BaseRouteHandler) -> None:
        # One request may run in the context of the previous one.
        stop_auditing()
        access = handler.opt.get(ACCESS)
        refuse_foreign(connection, context.settings)
        if guard is not None and access is not None and access.scope != "open":
            await guard(connection, access)
        if isinstance(handler, Route) and isinstance(connection, Request):
            handler.refuse_undocumented(connection)
        if access is not None and access.scope == "admin":
            audit(f"{connection.scope.get('method')} {connection.scope['path']}", caller(connection))

    return Application(
        state=State(
            {"context": context, "guard": guard, "proxies": networks(context.settings.trusted_proxies), "sessions": {}}
        ),
        route_handlers=[*(handler for module in ROUTES for handler in module.routes), dashboard(), *pages],
        dependencies={"service": Provide(service, sync_to_thread=False)},
        guards=[ask],
        middleware=[partial(Observed, metrics=context.metrics), *middleware],
        exception_handlers=handlers(),
        openapi_config=ops.document(),
        cors_config=permitted(context.settings),
        request_max_body_size=context.settings.max_body,
        logging_config=None,
        debug=False,
    )

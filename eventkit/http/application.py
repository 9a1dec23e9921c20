"""`app`: the service as one ASGI application, put together from the routes of each noun.

This is the one place where everything meets: the routes (`ROUTES`), the guard that is asked before each of them, what
is wrapped around all of them, and the pages.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from litestar import Litestar, Request
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.di import Provide
from litestar.handlers import BaseRouteHandler
from litestar.types import ControllerRouterHandler, Message, Middleware, Send

from ..protocols import AsyncEventKit
from . import (
    channels,
    deadletters,
    documents,
    health,
    jobs,
    limits,
    locks,
    messages,
    queues,
    results,
    schedules,
    scraping,
    streams,
)
from .auditing import forget, tell
from .dashboard import pages as dashboard
from .keys import caller
from .observed import Observed
from .origins import forwarded, networks, permitted, refuse_foreign
from .problems import handlers
from .routing import ACCESS, Access, Route, hide_slashes
from .service import Desk, ServiceSettings

ROUTES = (
    queues,
    messages,
    deadletters,
    jobs,
    schedules,
    streams,
    channels,
    results,
    locks,
    limits,
    health,
    scraping,
    documents,
)
"""The modules that have routes, in the order in which the document tells of them."""

Guard = Callable[["ASGIConnection[Any, Any, Any, Any]", Access], Awaitable[None]]
"""What is asked before each route whose scope is not ``open``; it raises a `Refusal`, or lets it pass."""


class Application(Litestar):
    """The framework's, which sees requests as browsers have sent them, and answers HEAD wherever it answers GET."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            scope = scope.copy()
            forwarded(scope, self.state.proxies)
            hide_slashes(scope)
            if scope["method"] == "HEAD":
                scope["method"], send = "GET", _without_body(send)
        await super().__call__(scope, receive, send)


def _without_body(send: Send) -> Send:
    """Send the head of an answer; the end of it is sent with the first part of its body, if that goes on for ever."""
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
    """An ASGI application that serves *kit*, which stays its owner's to close.

    *guard* is asked before each route, *middleware* is around all of them, and *pages* are routes that are not in the
    OpenAPI document.
    """
    desk = Desk(kit, settings or ServiceSettings())

    def service() -> Desk:
        return desk

    async def ask(connection: "ASGIConnection[Any, Any, Any, Any]", handler: BaseRouteHandler) -> None:
        # One request may run in the context of the one before it.
        forget()
        access = handler.opt.get(ACCESS)
        refuse_foreign(connection, desk.settings)
        if guard is not None and access is not None and access.scope != "open":
            await guard(connection, access)
        if isinstance(handler, Route) and isinstance(connection, Request):
            handler.refuse_undocumented(connection)
        if access is not None and access.scope == "admin":
            tell(f"{connection.scope.get('method')} {connection.scope['path']}", caller(connection))

    return Application(
        state=State({"desk": desk, "guard": guard, "proxies": networks(desk.settings.trusted_proxies), "sessions": {}}),
        route_handlers=[*(handler for module in ROUTES for handler in module.routes), dashboard(), *pages],
        dependencies={"service": Provide(service, sync_to_thread=False)},
        guards=[ask],
        middleware=[partial(Observed, metrics=desk.metrics), *middleware],
        exception_handlers=handlers(),
        openapi_config=documents.document(),
        cors_config=permitted(desk.settings),
        request_max_body_size=desk.settings.max_body,
        logging_config=None,
        debug=False,
    )

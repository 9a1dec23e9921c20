"""How a route is declared, by every module that has some.

::

    @route("GET", "/queues/{queue:str}/stats", scope="consume", on="queue")
    async def queue_stats(service: Service, queue: FromPath[str]) -> QueueStats:
        \"""The queue in numbers.\"""
        return await service.queue(queue).stats()

The function's name is the ``operationId`` of the document, its docstring what is said there, its annotations are the
types.  *scope* and *on* are what a guard asks of a key: ``produce``, ``consume`` or ``admin``, or ``open`` for what
anybody may have; and for which kind of thing, whose name is the path's parameter of that name.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args, get_origin

from litestar import Response
from litestar.connection import ASGIConnection
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec

from .answers import Answer
from .bodies import reading
from .problems import documented

Scope = Literal["open", "produce", "consume", "admin"]
Kind = Literal["queue", "stream", "channel", "job", "schedule", "result", "lock", "limit"]

_ALWAYS = (400, 401, 403, 422, 429, 503)
_WITH_BODY = (413, 415)

ACCESS = "access"
"""The key under which a route's options have its `Access`."""


class Access(NamedTuple):
    """What a route asks of whoever calls it: the right, and to which kind of thing; None for the service itself."""

    scope: Scope
    on: Kind | None


class Route(HTTPRouteHandler):
    """The framework's, which would make each guard a copy of itself for each request."""

    async def authorize_connection(self, connection: "ASGIConnection[Any, Any, Any, Any]") -> None:
        """Ask the guards."""
        for guard in self.resolve_guards():
            await guard(connection, self)  # type: ignore[misc]


def route(
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"],
    path: str,
    *,
    scope: Scope,
    on: Kind | None = None,
    status: int = 200,
    also: int | None = None,
    problems: tuple[int, ...] = (),
    lines: bool = False,
    live: bool = False,
    **more: Any,
) -> Callable[[Callable[..., Any]], HTTPRouteHandler]:
    """Declare a route, which answers with *status* or *also* another, and with *problems* beside those of any route.

    With *lines* it takes NDJSON as well, and with *live* it answers with server-sent events.
    """

    def declare(function: Callable[..., Any]) -> HTTPRouteHandler:
        bodily = "data" in function.__annotations__
        statuses = {*_ALWAYS, *problems, *(_WITH_BODY if bodily else ())}
        answers = documented(*sorted(statuses)) | more.pop("responses", {})
        if live:
            answers[status] = ResponseSpec(str, generate_examples=False, media_type="text/event-stream")
        if also is not None:
            answers[also] = ResponseSpec(_answer_of(function), generate_examples=False, description="Nothing new")
        handler: HTTPRouteHandler = Route(
            path,
            http_method=method,
            status_code=status,
            opt={ACCESS: Access(scope, on)},
            operation_id=function.__name__,
            summary=(function.__doc__ or "").partition("\n")[0],
            tags=[path.split("/")[1] or "service"],
            responses=answers,
            dto=reading(lines) if bodily else None,
            response_class=Answer,
            **more,
        )(function)
        return handler

    return declare


def _answer_of(function: Callable[..., Any]) -> Any:
    """What the function answers, without the framework's `Response` around it."""
    answer: Any = function.__annotations__["return"]
    return get_args(answer)[0] if get_origin(answer) == Response else answer

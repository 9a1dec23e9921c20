"""How a route is declared, by every module that has some.

::

    @route("GET", "/queues/{queue:str}/stats", scope="consume", on="queue")
    async def queue_stats(service: Service, queue: FromPath[str]) -> QueueStats:
        \"""The queue in numbers.\"""
        return await service.queue(queue).stats()

The function's name is the ``operationId`` of the document, its docstring what is said there, its annotations are the
types.  *scope* and *on* are what a guard asks of a key: ``produce``, ``consume`` or ``admin``, or ``open`` for what
anybody may have; and for which kind of thing, whose name is the path's parameter of that name.

A name may have a slash in it, which is percent-encoded in the path.  The framework looks for routes in the decoded
path, so `hide_slashes` has it find something else there, which `show_slashes` turns back.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints
from urllib.parse import unquote

from litestar import Request, Response
from litestar.connection import ASGIConnection
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import QueryParameter
from litestar.types import Scope as ASGIScope

from .answers import Answer
from .bodies import reading
from .problems import Refusal, documented

Scope = Literal["open", "produce", "consume", "admin"]
Kind = Literal["queue", "stream", "channel", "job", "schedule", "result", "lock", "limit"]

_ALWAYS = (400, 401, 403, 415, 422, 429, 503)
_WITH_BODY = (413,)

ACCESS = "access"
"""The key under which a route's options have its `Access`."""

_TAKES = "takes"
"""The key under which they have the names of the query parameters, and whether there is a body."""

_SLASH = "\udc2f"
"""Stands for a slash in a name while the framework looks for the route; no text that was decoded has it."""


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

    def refuse_undocumented(self, request: "Request[Any, Any, Any]") -> None:
        """Refuse what the document does not have of this route: a query parameter, or a body."""
        queries, bodily = self.opt[_TAKES]
        if unknown := request.query_params.keys() - queries:
            known = f"this takes {', '.join(sorted(queries))}" if queries else "this takes none"
            raise Refusal(400, "unknown_parameter", f"there is no query parameter {min(unknown)!r}: {known}")
        headers = request.headers
        if not bodily and ("transfer-encoding" in headers or headers.get("content-length", "0") != "0"):
            raise Refusal(415, "unsupported_media_type", "this takes no body: send it without one")


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
            opt={ACCESS: Access(scope, on), _TAKES: (_queries_of(function), bodily)},
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


def hide_slashes(scope: ASGIScope) -> None:
    """Have the framework find the route of a path in which slashes of names are percent-encoded."""
    raw = scope.get("raw_path") or b""
    if b"%2f" in raw or b"%2F" in raw:
        path = "/".join(unquote(part.decode("latin-1")).replace("/", _SLASH) for part in raw.split(b"/"))
        # What the path lacks at its beginning is where the application is mounted.
        if path.replace(_SLASH, "/").endswith(scope["path"]):
            scope["path"] = path[len(path) - len(scope["path"]) :]


def show_slashes(scope: ASGIScope) -> None:
    """Give names their slashes back; the path keeps them encoded, so that it names the same thing."""
    if _SLASH in scope["path"]:
        scope["path"] = scope["path"].replace(_SLASH, "%2F")
        scope["path_params"] = {
            name: value.replace(_SLASH, "/") if isinstance(value, str) else value
            for name, value in scope["path_params"].items()
        }


def _queries_of(function: Callable[..., Any]) -> frozenset[str]:
    """The names of the function's query parameters."""
    found: set[str] = set()
    for name, annotation in get_type_hints(function, include_extras=True).items():
        if get_origin(annotation) is Annotated:
            found.update(one.name or name for one in annotation.__metadata__ if isinstance(one, QueryParameter))
    return frozenset(found)


def _answer_of(function: Callable[..., Any]) -> Any:
    """What the function answers, without the framework's `Response` around it."""
    answer: Any = function.__annotations__["return"]
    return get_args(answer)[0] if get_origin(answer) == Response else answer

"""The declaration of routes.

::

    @route("GET", "/queues/{queue:str}/stats", scope="consume", on="queue")
    async def queue_stats(service: Service, queue: FromPath[str]) -> QueueStats:
        \"""Return statistics of a queue.\"""
        return await service.queue(queue).stats()

The function's name is the ``operationId`` of the document, the first line of its docstring the summary, its annotations
are the types.  A guard requires of a key the right *scope*, ``produce``, ``consume`` or ``admin``, or nothing for
``open``, to the kind of thing *on*, whose name is the path parameter of that name.

A name may contain a percent-encoded slash.  The framework matches routes by the decoded path, so `hide_slashes`
replaces slashes of names before that, and `show_slashes` restores them.
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

from .requests import Answer, Refusal, documented, reading

Scope = Literal["open", "produce", "consume", "admin"]
Kind = Literal["queue", "stream", "channel", "job", "schedule", "result", "lock", "limit"]

_ALWAYS = (400, 401, 403, 415, 422, 429, 503)
_WITH_BODY = (413,)

ACCESS = "access"
"""The option of a route that holds its `Access`."""

_TAKES = "takes"
"""The option that holds the names of its query parameters, and whether it takes a body."""

_SLASH = "\udc2f"
"""Replaces a slash in a name during routing; decoded text cannot contain it."""


class Access(NamedTuple):
    """The right that a route requires, and the kind of thing; None for the whole service."""

    scope: Scope
    on: Kind | None


class Route(HTTPRouteHandler):
    """The framework's handler, without the copy of each guard that it makes for each request."""

    async def authorize_connection(self, connection: "ASGIConnection[Any, Any, Any, Any]") -> None:
        """Run the guards."""
        for guard in self.resolve_guards():
            await guard(connection, self)  # type: ignore[misc]

    def refuse_undocumented(self, request: "Request[Any, Any, Any]") -> None:
        """Refuse query parameters or a body that the OpenAPI document does not have."""
        queries, bodily = self.opt[_TAKES]
        if unknown := request.query_params.keys() - queries:
            known = f"use {', '.join(sorted(queries))}" if queries else "there are none here"
            raise Refusal(400, "unknown_parameter", f"unknown query parameter {min(unknown)!r}: {known}")
        headers = request.headers
        if not bodily and ("transfer-encoding" in headers or headers.get("content-length", "0") != "0"):
            raise Refusal(415, "unsupported_media_type", "this route takes no body")


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
    """Declare a route with *status*, or *also* another, and *problems* besides those of all routes.

    *lines* also accepts NDJSON; *live* marks a response of server-sent events.
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
    """Hide percent-encoded slashes of names from the framework's routing."""
    raw = scope.get("raw_path") or b""
    if b"%2f" in raw or b"%2F" in raw:
        path = "/".join(unquote(part.decode("latin-1")).replace("/", _SLASH) for part in raw.split(b"/"))
        # The path lacks the prefix under which the application is mounted.
        if path.replace(_SLASH, "/").endswith(scope["path"]):
            scope["path"] = path[len(path) - len(scope["path"]) :]


def show_slashes(scope: ASGIScope) -> None:
    """Restore slashes in path parameters; the path keeps them percent-encoded."""
    if _SLASH in scope["path"]:
        scope["path"] = scope["path"].replace(_SLASH, "%2F")
        scope["path_params"] = {
            name: value.replace(_SLASH, "/") if isinstance(value, str) else value
            for name, value in scope["path_params"].items()
        }


def _queries_of(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names of the function's query parameters."""
    found: set[str] = set()
    for name, annotation in get_type_hints(function, include_extras=True).items():
        if get_origin(annotation) is Annotated:
            found.update(one.name or name for one in annotation.__metadata__ if isinstance(one, QueryParameter))
    return frozenset(found)


def _answer_of(function: Callable[..., Any]) -> Any:
    """Return the type of the function's result, without the framework's `Response`."""
    answer: Any = function.__annotations__["return"]
    return get_args(answer)[0] if get_origin(answer) == Response else answer

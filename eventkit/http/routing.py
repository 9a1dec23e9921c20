"""The declaration of routes; their answers, and errors as problems.

::

    @route("GET", "/queues/{queue:str}/stats", "consume", 404)
    async def queue_stats(service: Service, queue: FromPath[str]) -> QueueStats:
        \"""Return statistics of a queue.\"""
        return await service.queue(queue).stats()

The function's name is the ``operationId`` of the document, the first line of its docstring the summary, its annotations
are the types.  A guard requires of a key the right *scope*, ``produce``, ``consume`` or ``admin``, or nothing for
``open``, to the kind of thing *on*, whose name is the path parameter of that name.

A name may contain a percent-encoded slash.  The framework matches routes by the decoded path, so `hide_slashes`
replaces slashes of names before that, and `show_slashes` restores them.
"""

import logging
import re
from collections.abc import Callable, Mapping
from math import ceil
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_origin, get_type_hints
from urllib.parse import unquote

import msgspec
from litestar import Request, Response
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException, InternalServerException
from litestar.handlers import HTTPRouteHandler
from litestar.params import PathParameter, QueryParameter
from litestar.types import ASGIApp, HTTPResponseStartEvent, Receive, Send
from litestar.types import Scope as ASGIScope
from msgspec import UNSET, Meta

from .. import checks, errors
from ..operations.position import WentBack
from .bodies import JSON, NDJSON, PROBLEM, Problem, Refusal, StrictJSON

logger = logging.getLogger("eventkit.http")

HTTPRequest = Request[Any, Any, Any]
Connection = ASGIConnection[Any, Any, Any, Any]
T = TypeVar("T")


CODES = {
    400: "malformed",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid",
    429: "try_later",
    500: "internal",
    503: "unavailable",
}
"""The codes of statuses without a more specific one."""

_ERRORS: tuple[tuple[type[Exception], int, str, str | None], ...] = (
    (errors.QueueFull, 429, "queue_full", None),
    (errors.KeyConflict, 409, "key_conflict", None),
    (errors.Truncated, 410, "truncated", None),
    (errors.TaskFailed, 410, "task_failed", None),
    (errors.Busy, 503, "busy", "the database is busy: try again"),
    (errors.Disconnected, 503, "unavailable", "the database does not respond: try again later"),
    (WentBack, 409, "database_replaced", "the database was restored: start over, or name a consumer"),
    (errors.DatabaseReplaced, 503, "unavailable", "the database file was replaced: restart the service"),
    (errors.NotMigrated, 503, "unavailable", "the schema does not match the service: run eventkit migrate"),
    (errors.Closed, 503, "unavailable", "the service is shutting down: retry with another instance"),
    (errors.DatabaseError, 500, "internal", "the database rejected the operation: see the service log"),
    (errors.EventkitError, 503, "unavailable", "the database cannot be used: see the service log"),
    (ValueError, 422, "invalid", None),
    (TypeError, 422, "invalid", None),
)
"""From specific to general, with a text that replaces the error's own."""

_REMEDIES = {
    404: "there is no such path: /docs lists all",
    405: "the path has no such method: /docs lists all",
    413: "the body is larger than max_body: send less at once",
}

_HEADERS: dict[int, dict[str, str]] = {
    413: {"connection": "close"},  # The rest of the body is not read.
    429: {"retry-after": "1"},
    503: {"retry-after": "1"},
}


def problem_of(error: Exception) -> tuple[Problem, dict[str, str]]:
    """Return the problem and the headers for *error*."""
    headers: Mapping[str, str] = {}
    if isinstance(error, Refusal):
        problem, headers = error.problem, error.headers
    elif isinstance(error, InternalServerException):  # The framework raises it for an incomplete body.
        problem = Problem.of(499, "gone", "the client disconnected before the request was complete")
    elif isinstance(error, HTTPException):
        status, headers = error.status_code, error.headers or {}
        problem = Problem.of(status, CODES.get(status, "refused"), _text(error))
    else:
        for kind, status, code, text in _ERRORS:
            if isinstance(error, kind):
                if text is not None:
                    logger.warning("a request failed: %s", error)
                if isinstance(error, errors.QueueFull):
                    if not error.fits:  # A later attempt would be refused as well.
                        status, code = 409, "too_many"
                    elif error.retry_after is not None:
                        headers = {"retry-after": str(ceil(error.retry_after))}
                problem = Problem.of(status, code, text or str(error))
                break
        else:
            logger.error("a request failed", exc_info=error)
            problem = Problem.of(500, CODES[500], "internal error: see the service log")
    return problem, _HEADERS.get(problem.status, {}) | dict(headers)


def _text(error: HTTPException) -> str:
    """Return the framework's text, with its details of parameters; a text of ours where it names no remedy."""
    if error.status_code in _REMEDIES:
        return _REMEDIES[error.status_code]
    extra = error.extra if isinstance(error.extra, list) else []
    if any(one.get("key") == "data" for one in extra):
        return "the body is missing: send JSON"
    single = "; ".join(f"{one['key']}: {one['message']}" for one in extra if "key" in one and "message" in one)
    return f"{error.detail}: {single}" if single else error.detail


def answer_problem(request: HTTPRequest, error: Exception) -> Response[Problem]:
    """Return the response for *error*; the exception handler of the application."""
    problem, headers = problem_of(error)
    return Response(problem, status_code=problem.status, headers=headers, media_type=PROBLEM)


_encode = msgspec.json.Encoder().encode
_TYPE = (b"content-type", b"application/json")


class Answer(Response[T]):
    """*content* as JSON, with *status_code* or the route's own; 204 has no body."""

    def __init__(self, content: T, *, status_code: int | None = None, **more: Any) -> None:
        self.content = content
        self.status_code = status_code

    def to_asgi_response(  # type: ignore[override]
        self, app: None, request: HTTPRequest, *, status_code: int | None = None, **more: Any
    ) -> ASGIApp:
        """Return the ASGI response."""
        status = self.status_code or status_code or 200
        body = b"" if status == 204 else _encode(self.content)
        headers = [] if status == 204 else [_TYPE, (b"content-length", b"%d" % len(body))]
        start: HTTPResponseStartEvent = {"type": "http.response.start", "status": status, "headers": headers}

        async def answer(scope: ASGIScope, receive: Receive, send: Send) -> None:
            await send(start)
            await send({"type": "http.response.body", "body": body, "more_body": False})

        return answer


PRINTABLE = {"pattern": checks.PRINTABLE}  # For the document; `checks.name` has the error.
Name = Annotated[str, Meta(min_length=1, max_length=255, extra_json_schema=PRINTABLE)]
Key = Annotated[str, Meta(min_length=1, max_length=1000, extra_json_schema=PRINTABLE)]
Code = Annotated[str, Meta(min_length=1, max_length=100, extra_json_schema=PRINTABLE)]
Milliseconds = Annotated[int, Meta(ge=0, le=checks.FOREVER)]
SignedMilliseconds = Annotated[int, Meta(ge=-checks.FOREVER, le=checks.FOREVER)]
Seconds = Annotated[float, Meta(ge=0, le=checks.FOREVER // 1000)]
Lifetime = Annotated[float, Meta(ge=0.001, le=checks.FOREVER // 1000)]
Rate = Annotated[float, Meta(ge=1e-9, le=1e12)]
Burst = Annotated[float, Meta(ge=1, le=1e12)]
Priority = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Attempts = Annotated[int, Meta(ge=1, le=2**31 - 1)]
AtLeastOne = Annotated[int, Meta(ge=1, le=checks.MOST)]
Number = Annotated[int, Meta(ge=0, le=checks.MOST)]
Id = Annotated[int, PathParameter(ge=0, le=checks.MOST)]
Token = Annotated[str, Meta(pattern="^[0-9]{1,19}$")]
"""A number of 63 bits as text, because some languages lack such integers."""


def bounds(type: Any) -> dict[str, Any]:
    """Return the bounds of a type for a parameter, because the framework ignores those of a parameter's type."""
    [meta] = type.__metadata__
    given = {name: getattr(meta, name) for name in ("ge", "le", "min_length", "max_length")}
    return {name: bound for name, bound in given.items() if bound is not None}


Listed = Annotated[int, QueryParameter(ge=1, le=1000, description="Maximum number of items.")]
AfterName = Annotated[str | None, QueryParameter(**bounds(Name), description="Only items after this name.")]


def page(found: Mapping[str, T], after: str | None, limit: int) -> dict[str, T]:
    """Return the next *limit* items by name."""
    names = sorted(name for name in found if after is None or name > after)
    return {name: found[name] for name in names[:limit]}


class Count(msgspec.Struct, frozen=True):
    """A number of items."""

    count: int


def token(text: str) -> int:
    """Return the number of a token; one that no database can store is no claim's."""
    return found if (found := int(text)) <= checks.MOST else -1


def whole(text: str) -> int | None:
    """Return the number of a text with at most 18 digits; None for another text."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 19 else None


def sent(body: msgspec.Struct) -> dict[str, Any]:
    """Return the fields that the client has sent, by name."""
    return {name: value for name, value in msgspec.structs.asdict(body).items() if value is not UNSET}


Scope = Literal["open", "produce", "consume", "admin"]
Kind = Literal["queue", "stream", "channel", "webhook", "schedule", "result", "lock", "limit"]

_ALWAYS = (400, 401, 403, 415, 422, 429, 503)

EVENTS = "text/event-stream"

ACCESS = "access"  # The option of a route that holds its `Access`.
OUTLINE = "outline"  # The option that holds its `Outline`.
_TAKES = "takes"  # The option that holds the names of its query parameters, and whether it takes a body.
_SLASH = "\udc2f"  # Replaces a slash in a name during routing; decoded text cannot contain it.


class Access(NamedTuple):
    """The right that a route requires, and the kind of thing; None for the whole service."""

    scope: Scope
    on: Kind | None


class Outline(NamedTuple):
    """The parts of a route in the OpenAPI document that its function does not have."""

    statuses: tuple[int, ...]
    problems: tuple[int, ...]
    media: tuple[str, ...]
    bodies: tuple[str, ...]


class Route(HTTPRouteHandler):
    """The framework's handler, without the copy of each guard that it makes for each request."""

    async def authorize_connection(self, connection: Connection) -> None:
        """Run the guards."""
        for guard in self.resolve_guards():
            await guard(connection, self)  # type: ignore[misc]

    def refuse_undocumented(self, request: HTTPRequest) -> None:
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
    scope: Scope,
    *problems: int,
    on: Kind | None = None,
    status: int = 200,
    also: int | None = None,
    lines: bool = False,
    media: tuple[str, ...] = (JSON,),
    **more: Any,
) -> Callable[[Callable[..., Any]], HTTPRouteHandler]:
    """Declare a route with *status*, or *also* another, and *problems* besides those of all routes.

    *on* is the kind of the first name in the path, unless given.  *lines* also accepts NDJSON; *media* are the types of
    the answer.
    """
    if on is None and (named := re.search(r"{(\w+):str}", path)):
        on = named[1]  # type: ignore[assignment]

    def declare(function: Callable[..., Any]) -> HTTPRouteHandler:
        bodily = "data" in function.__annotations__
        outline = Outline(
            (status,) if also is None else (status, also),
            tuple(sorted({*_ALWAYS, *problems, *((413,) if bodily else ())})),
            media,
            ((JSON, NDJSON) if lines else (JSON,)) if bodily else (),
        )
        return Route(
            path,
            http_method=method,
            status_code=status,
            opt={ACCESS: Access(scope, on), OUTLINE: outline, _TAKES: (_queries_of(function), bodily)},
            operation_id=function.__name__,
            dto=type("StrictJSONOfRoute", (StrictJSON,), {"lines": lines}) if bodily else None,
            response_class=Answer,
            **more,
        )(function)

    return declare


def _queries_of(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names of the function's query parameters."""
    return frozenset(
        one.name or name
        for name, annotation in get_type_hints(function, include_extras=True).items()
        if get_origin(annotation) is Annotated
        for one in annotation.__metadata__
        if isinstance(one, QueryParameter)
    )


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

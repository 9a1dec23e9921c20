"""The declaration of routes; their answers, and errors as problems.

::

    @route("GET", "/queues/{queue:str}/tasks", "consume", 404)
    async def list_tasks(queue: KnownQueue, after: Number = 0, limit: Listed = 100) -> list[TaskInfo[Any]]:
        \"""List tasks by id.\"""
        return await queue.tasks(None, limit, after)

The function's name is the ``operationId`` of the document, the first line of its docstring the summary.  By its
annotations msgspec reads and describes the parameters (of the path, of the query, or the headers of `IN_HEADERS`), the
body *data* and the answer.  *request* and *service* are those of the request.  In ``Annotated`` a text describes a
parameter, and a method of the service turns the name in the path into the thing.

A guard requires of a key the right *scope*, ``produce``, ``consume`` or ``admin``, or nothing for ``open``, to the kind
of thing *on*, whose name is the path parameter of that name.

A name may contain a percent-encoded slash.  The framework matches routes by the decoded path, so `hide_slashes`
replaces slashes of names before that, and `show_slashes` restores them.
"""

import inspect
import logging
import re
from collections.abc import Callable, Mapping
from math import ceil
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import unquote

import msgspec
from litestar import Request, Response
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException, InternalServerException
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, HTTPResponseStartEvent, Receive, Send
from litestar.types import Scope as ASGIScope
from msgspec import UNSET, Meta

from .. import checks, errors
from ..operations.position import WentBack
from .bodies import JSON, PROBLEM, Name, Problem, Refusal, read_body

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
        problem = Problem.of(status, CODES.get(status, "refused"), _REMEDIES.get(status, error.detail))
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


def answer_problem(request: HTTPRequest, error: Exception) -> Response[Problem]:
    """Return the response for *error*; the exception handler of the application."""
    problem, headers = problem_of(error)
    return Response(problem, status_code=problem.status, headers=headers, media_type=PROBLEM)


_encode = msgspec.json.Encoder().encode
_TYPE = (b"content-type", b"application/json")


class Answer(Response[T]):
    """*content* as JSON; 204 has no body."""

    def __init__(self, content: T, *, status_code: int) -> None:
        self.content = content
        self.status_code: int = status_code

    def to_asgi_response(self, *args: Any, **more: Any) -> ASGIApp:  # type: ignore[override]
        """Return the ASGI response."""
        status, body = self.status_code, b"" if self.status_code == 204 else _encode(self.content)
        headers = [] if status == 204 else [_TYPE, (b"content-length", b"%d" % len(body))]
        start: HTTPResponseStartEvent = {"type": "http.response.start", "status": status, "headers": headers}

        async def answer(scope: ASGIScope, receive: Receive, send: Send) -> None:
            await send(start)
            await send({"type": "http.response.body", "body": body, "more_body": False})

        return answer


Listed = Annotated[int, Meta(ge=1, le=1000), "Maximum number of items."]
AfterName = Annotated[Name | None, "Only items after this name."]


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
DECLARED = "declared"  # The option that holds its `Declared`.
IN_HEADERS = {"idempotency_key": "Idempotency-Key", "last_event_id": "Last-Event-ID"}  # Parameters that are headers.
_SOURCES = {"path": "path_params", "query": "query_params", "header": "headers"}
_SLASH = "\udc2f"  # Replaces a slash in a name during routing; decoded text cannot contain it.


class Access(NamedTuple):
    """The right that a route requires, and the kind of thing; None for the whole service."""

    scope: Scope
    on: Kind | None


class Parameter(NamedTuple):
    """A parameter by its name in requests; *thing* returns the thing of the service that it names."""

    name: str
    place: str
    type: Any
    default: Any
    description: str | None
    thing: Callable[[Any, str], Any] | None

    @classmethod
    def of(cls, name: str, hint: Any, default: Any, path: str) -> "Parameter":
        """Return the parameter of a function with a type and a default, if any."""
        type, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if NoneType in (choices := get_args(type)):
            [type] = (one for one in choices if one is not NoneType)
        description = next((note for note in notes if isinstance(note, str)), None)
        place = "path" if f"{{{name}:" in path else "header" if name in IN_HEADERS else "query"
        if metas := [note for note in notes if isinstance(note, Meta)]:
            type = Annotated[type, *metas]
        elif place == "path":
            type = Name
        thing = next((note for note in notes if callable(note)), None)
        return cls(IN_HEADERS.get(name, name), place, type, default, description, thing)

    @property
    def required(self) -> bool:
        """Whether requests must have it."""
        return self.default is inspect.Parameter.empty

    def read(self, request: HTTPRequest) -> Any:
        """Return its value in a request."""
        if (value := getattr(request, _SOURCES[self.place]).get(self.name)) is None:
            if self.required:
                raise Refusal(400, "malformed", f"the parameter {self.name} is missing: add it")
            return self.default
        if self.place == "path" and isinstance(value, str):
            return value  # `checks.name` has the error.
        try:
            return msgspec.convert(value, self.type, strict=False)
        except msgspec.ValidationError as error:
            raise Refusal(400, "malformed", f"the parameter {self.name} is invalid: {error}") from None


class Declared(NamedTuple):
    """A route as its function declares it."""

    function: Callable[..., Any]
    parameters: dict[str, Parameter]
    body: Any
    lines: bool
    answer: Any
    statuses: tuple[int, ...]
    problems: tuple[int, ...]
    media: tuple[str, ...]

    def refuse_undocumented(self, request: HTTPRequest) -> None:
        """Refuse query parameters or a body that the OpenAPI document does not have."""
        queries = {one.name for one in self.parameters.values() if one.place == "query"}
        if unknown := request.query_params.keys() - queries:
            known = f"use {', '.join(sorted(queries))}" if queries else "there are none here"
            raise Refusal(400, "unknown_parameter", f"unknown query parameter {min(unknown)!r}: {known}")
        headers, bodily = request.headers, self.body is not None
        if not bodily and ("transfer-encoding" in headers or headers.get("content-length", "0") != "0"):
            raise Refusal(415, "unsupported_media_type", "this route takes no body")


class Route(HTTPRouteHandler):
    """The framework's handler, without the copy of each guard that it makes for each request."""

    async def authorize_connection(self, connection: Connection) -> None:
        """Run the guards."""
        for guard in self.resolve_guards():
            await guard(connection, self)  # type: ignore[misc]


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
        hints, signature = get_type_hints(function, include_extras=True), inspect.signature(function).parameters
        parameters = {
            name: Parameter.of(name, hints[name], one.default, path)
            for name, one in signature.items()
            if name not in ("request", "service", "data")
        }
        body = hints.get("data")
        declared = Declared(
            function,
            parameters,
            body,
            lines,
            hints["return"],
            (status,) if also is None else (status, also),
            tuple(sorted({*_ALWAYS, *problems, *(() if body is None else (413,))})),
            media,
        )
        decoder = msgspec.json.Decoder(body)

        async def handle(request: HTTPRequest) -> Response[Any]:
            declared.refuse_undocumented(request)
            values = {name: one.read(request) for name, one in parameters.items()}
            if body is not None:
                values["data"] = await read_body(request, decoder, lines)
            service = request.app.state.context
            for name, one in parameters.items():
                if one.thing is not None:
                    found = one.thing(service, values[name])
                    values[name] = await found if inspect.isawaitable(found) else found
            values |= {name: one for name, one in (("request", request), ("service", service)) if name in signature}
            answer = await function(**values)
            return answer if isinstance(answer, Response) else Answer(answer, status_code=status)

        options = {ACCESS: Access(scope, on), DECLARED: declared}
        return Route(path, http_method=method, status_code=200, opt=options, **more)(handle)

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

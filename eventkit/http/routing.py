"""The declaration of routes; their bodies, answers, and problems as ``{error, status, code}``.

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

import json
import logging
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import unquote

import msgspec
from litestar import Request, Response
from litestar.connection import ASGIConnection
from litestar.dto import AbstractDTO
from litestar.exceptions import HTTPException, InternalServerException
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import PathParameter, QueryParameter
from litestar.types import ASGIApp, HTTPResponseStartEvent, Receive, Send
from litestar.types import Scope as ASGIScope
from litestar.typing import FieldDefinition
from msgspec import UNSET, Meta

from .. import checks, errors
from ..codec import DEEPEST
from ..operations.position import WentBack

logger = logging.getLogger("eventkit.http")

HTTPRequest = Request[Any, Any, Any]
Connection = ASGIConnection[Any, Any, Any, Any]
T = TypeVar("T")


class Problem(msgspec.Struct, frozen=True):
    """An error: a text for people, the status, and a code for programs."""

    error: str
    status: int
    code: str


class Refusal(Exception):
    """Raised to answer a request with a problem."""

    def __init__(self, status: int, code: str, error: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(error)
        self.problem = Problem(error, status, code)
        self.headers = dict(headers or {})


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
        problem = Problem("the client disconnected before the request was complete", 499, "gone")
    elif isinstance(error, HTTPException):
        status, headers = error.status_code, error.headers or {}
        problem = Problem(_text(error), status, CODES.get(status, "refused"))
    else:
        for kind, status, code, text in _ERRORS:
            if isinstance(error, kind):
                if text is not None:
                    logger.warning("a request failed: %s", error)
                problem = Problem(text or str(error), status, code)
                break
        else:
            logger.error("a request failed", exc_info=error)
            problem = Problem("internal error: see the service log", 500, CODES[500])
    return problem, _HEADERS.get(problem.status, {}) | dict(headers)


def _text(error: HTTPException) -> str:
    """Return the framework's text, with its details of parameters."""
    extra = error.extra if isinstance(error.extra, list) else []
    if any(one.get("key") == "data" for one in extra):
        return "the body is missing: send JSON"
    single = "; ".join(f"{one['key']}: {one['message']}" for one in extra if "key" in one and "message" in one)
    return f"{error.detail}: {single}" if single else error.detail


def answer_problem(request: HTTPRequest, error: Exception) -> Response[Problem]:
    """Return the response for *error*; the exception handler of the application."""
    problem, headers = problem_of(error)
    return Response(problem, status_code=problem.status, headers=headers, media_type="application/json")


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
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


class _StrictJSON(AbstractDTO[Any]):
    """The reader of the bodies of one route, which has a subclass."""

    decoder: "msgspec.json.Decoder[Any]"
    lines: bool

    @classmethod
    def create_for_field_definition(cls, field_definition: FieldDefinition, *args: Any, **kwargs: Any) -> None:
        if field_definition.name == "data":
            cls.decoder = msgspec.json.Decoder(field_definition.annotation)

    @classmethod
    def create_openapi_schema(cls, field_definition: FieldDefinition, handler_id: str, schema_creator: Any) -> Any:
        return schema_creator.for_field_definition(field_definition)

    def decode_bytes(self, value: bytes) -> Any:
        media = self.asgi_connection.headers.get("content-type", "")
        if media != "application/json":  # The common case needs no parsing.
            media, _ = self.asgi_connection.content_type  # type: ignore[attr-defined]
        if self.lines and media == "application/x-ndjson":
            value = b"[" + b",".join([line for line in value.splitlines() if line.strip()]) + b"]"
        elif media != "application/json":
            given = f"not {media}" if media else "with the header Content-Type"
            raise Refusal(415, "unsupported_media_type", f"send application/json, {given}")
        _check(value)
        try:
            return self.decoder.decode(value)
        except msgspec.ValidationError as error:
            raise Refusal(422, "invalid", f"the body is invalid: {error}") from None
        except msgspec.DecodeError as error:
            raise Refusal(400, "malformed", f"the body is not JSON: {error}") from None


def _check(body: bytes) -> None:
    """Refuse *body* if it is not JSON, or if storing it would change its meaning."""
    try:
        value = _decode(body)
        # An equal number of colons means an equal number of keys, unless a colon was written as an escape.
        if _encode(value).count(b":") != body.count(b":") or b"\\u" in body:
            json.loads(body, object_pairs_hook=_check_keys)
        if body.count(b"[") + body.count(b"{") > DEEPEST:
            _check_depth(body)
    except UnicodeDecodeError as error:
        raise Refusal(400, "malformed", f"the body is not UTF-8: {error}") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Refusal(400, "malformed", f"the body is not JSON: {error}") from None
    except ValueError as error:
        raise Refusal(400, "malformed", str(error)) from None


def _check_keys(pairs: list[tuple[str, Any]]) -> None:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        again = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"duplicate key {again!r} in an object: send it once")


_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_ALIKE = bytes.maketrans(b"[{]}", b"(())")
_BUT_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))


def _check_depth(body: bytes) -> None:
    """Check the depth of a JSON *body* by removing brackets level by level; each step runs in C."""
    if b"\\" in body:
        body = _ESCAPED.sub(b"", body)
    # Strings without brackets leave pairs of quotes; a remaining quote surrounds brackets in a string.
    brackets = body.translate(_ALIKE, _BUT_BRACKETS).replace(b'""', b"")
    if b'"' in brackets:
        brackets = b"".join(brackets.split(b'"')[::2])
    for _ in range(DEEPEST):
        brackets = brackets.replace(b"()", b"")
        if not brackets:
            return
    raise ValueError(f"the body is nested deeper than {DEEPEST} levels: flatten it")


Name = Annotated[str, Meta(min_length=1, max_length=255)]
Key = Annotated[str, Meta(min_length=1, max_length=1000)]
Milliseconds = Annotated[int, Meta(ge=0, le=checks.FOREVER)]
SignedMilliseconds = Annotated[int, Meta(ge=-checks.FOREVER, le=checks.FOREVER)]
Seconds = Annotated[float, Meta(ge=0, le=checks.FOREVER // 1000)]
Lifetime = Annotated[float, Meta(ge=0.001, le=checks.FOREVER // 1000)]
Rate = Annotated[float, Meta(ge=1e-9, le=1e12)]
Burst = Annotated[float, Meta(ge=1, le=1e12)]
Priority = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
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


class Count(msgspec.Struct, frozen=True):
    """A number of items."""

    count: int


def token(text: str) -> int:
    """Return the number of a token."""
    return checks.count("token", int(text))


def whole(text: str) -> int | None:
    """Return the number of a text with at most 18 digits; None for another text."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 19 else None


def sent(body: msgspec.Struct) -> dict[str, Any]:
    """Return the fields that the client has sent, by name."""
    return {name: value for name, value in msgspec.structs.asdict(body).items() if value is not UNSET}


Scope = Literal["open", "produce", "consume", "admin"]
Kind = Literal["queue", "stream", "channel", "webhook", "schedule", "result", "lock", "limit"]

_ALWAYS = (400, 401, 403, 415, 422, 429, 503)

ACCESS = "access"  # The option of a route that holds its `Access`.
_TAKES = "takes"  # The option that holds the names of its query parameters, and whether it takes a body.
_SLASH = "\udc2f"  # Replaces a slash in a name during routing; decoded text cannot contain it.


class Access(NamedTuple):
    """The right that a route requires, and the kind of thing; None for the whole service."""

    scope: Scope
    on: Kind | None


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
    live: bool = False,
    **more: Any,
) -> Callable[[Callable[..., Any]], HTTPRouteHandler]:
    """Declare a route with *status*, or *also* another, and *problems* besides those of all routes.

    *on* is the kind of the first name in the path, unless given.  *lines* also accepts NDJSON; *live* marks a response
    of server-sent events.
    """
    if on is None and (named := re.search(r"{(\w+):str}", path)):
        on = named[1]  # type: ignore[assignment]

    def declare(function: Callable[..., Any]) -> HTTPRouteHandler:
        bodily = "data" in function.__annotations__
        answers = {
            status: ResponseSpec(
                Problem, description=CODES.get(status, "gone").replace("_", " "), generate_examples=False
            )
            for status in sorted({*_ALWAYS, *problems, *((413,) if bodily else ())})
        } | more.pop("responses", {})
        if live:
            answers[status] = ResponseSpec(str, generate_examples=False, media_type="text/event-stream")
        if also is not None:
            answers[also] = ResponseSpec(_answer_of(function), generate_examples=False, description="Nothing new")
        return Route(
            path,
            http_method=method,
            status_code=status,
            opt={ACCESS: Access(scope, on), _TAKES: (_queries_of(function), bodily)},
            operation_id=function.__name__,
            summary=(function.__doc__ or "").partition("\n")[0],
            tags=[path.split("/")[1] or "service"],
            responses=answers,
            dto=type("StrictJSONOfRoute", (_StrictJSON,), {"lines": lines}) if bodily else None,
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


def _answer_of(function: Callable[..., Any]) -> Any:
    """Return the type of the function's result, without the framework's `Response`."""
    answer: Any = function.__annotations__["return"]
    return get_args(answer)[0] if get_origin(answer) == Response else answer


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

"""Requests and responses: bodies, parameter types, JSON, and problems as ``{error, status, code}``."""

import json
import logging
import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from litestar import Request, Response
from litestar.dto import AbstractDTO
from litestar.exceptions import HTTPException, InternalServerException
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import PathParameter
from litestar.types import ASGIApp, HTTPResponseStartEvent, Receive, Scope, Send
from litestar.typing import FieldDefinition

from .. import checks, errors
from ..codec import DEEPEST, Codec, too_large
from ..operations.position import WentBack

logger = logging.getLogger("eventkit.http")


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

_STATUS: tuple[tuple[type[Exception], int, str, str | None], ...] = (
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
"""Default headers by status."""


def handlers() -> dict[Any, Any]:
    """Return the exception handlers of the application."""
    return {Exception: _answer}


def documented(*statuses: int) -> dict[int, ResponseSpec]:
    """Return problems as responses of a route, for the OpenAPI document."""
    return {
        status: ResponseSpec(Problem, description=CODES.get(status, "gone").replace("_", " "), generate_examples=False)
        for status in statuses
    }


def problem_of(error: Exception) -> tuple[Problem, dict[str, str]]:
    """Return the problem and the headers for *error*."""
    if isinstance(error, Refusal):
        return error.problem, _HEADERS.get(error.problem.status, {}) | error.headers
    if isinstance(error, InternalServerException):  # The framework raises it for an incomplete body.
        return Problem("the client disconnected before the request was complete", 499, "gone"), {}
    if isinstance(error, HTTPException):
        status = error.status_code
        headers = _HEADERS.get(status, {}) | dict(error.headers or {})
        return Problem(_text(error), status, CODES.get(status, "refused")), headers
    for kind, status, code, text in _STATUS:
        if isinstance(error, kind):
            if text is not None:
                logger.warning("a request failed: %s", error)
            return Problem(text or str(error), status, code), _HEADERS.get(status, {})
    logger.error("a request failed", exc_info=error)
    return Problem("internal error: see the service log", 500, CODES[500]), {}


def _answer(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    problem, headers = problem_of(error)
    return Response(problem, status_code=problem.status, headers=headers, media_type="application/json")


def _text(error: HTTPException) -> str:
    """Return the framework's text, with its details of parameters."""
    extra = error.extra if isinstance(error.extra, list) else []
    single = "; ".join(f"{one['key']}: {one['message']}" for one in extra if "key" in one and "message" in one)
    if any(one.get("key") == "data" for one in extra):
        return "the body is missing: send JSON"
    return f"{error.detail}: {single}" if single else error.detail


T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_TYPE = (b"content-type", b"application/json")


class Answer(Response[T]):
    """*content* as JSON, with *status_code* or the route's own; 204 has no body."""

    def __init__(self, content: T, *, status_code: int | None = None, **more: Any) -> None:
        self.content = content
        self.status_code = status_code

    def to_asgi_response(  # type: ignore[override]
        self, app: None, request: Request[Any, Any, Any], *, status_code: int | None = None, **more: Any
    ) -> ASGIApp:
        """Return the ASGI response."""
        status = self.status_code or status_code or 200
        body = b"" if status == 204 else _encode(self.content)
        headers = [] if status == 204 else [_TYPE, (b"content-length", b"%d" % len(body))]
        start: HTTPResponseStartEvent = {"type": "http.response.start", "status": status, "headers": headers}

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            await send(start)
            await send({"type": "http.response.body", "body": body, "more_body": False})

        return answer


_decode = msgspec.json.Decoder().decode
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_ALIKE = bytes.maketrans(b"[{]}", b"(())")
_BUT_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))


def strict(body: bytes) -> None:
    """Refuse *body* if it is not JSON, or if storing it would change its meaning."""
    try:
        value = _decode(body)
        # An equal number of colons means an equal number of keys, unless a colon was written as an escape.
        if _encode(value).count(b":") != body.count(b":") or b"\\u" in body:
            json.loads(body, object_pairs_hook=_once)
        if body.count(b"[") + body.count(b"{") > DEEPEST:
            _check_depth(body)
    except UnicodeDecodeError as error:
        raise Refusal(400, "malformed", f"the body is not UTF-8: {error}") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Refusal(400, "malformed", f"the body is not JSON: {error}") from None
    except ValueError as error:
        raise Refusal(400, "malformed", str(error)) from None


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


def read(body: bytes, decoder: "msgspec.json.Decoder[Any]") -> Any:
    """Decode *body* strictly."""
    strict(body)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Refusal(422, "invalid", f"the body is invalid: {error}") from None
    except msgspec.DecodeError as error:
        raise Refusal(400, "malformed", f"the body is not JSON: {error}") from None


class Verbatim(Codec):
    """A codec for payloads of bodies that passed `read`: it keeps their JSON text."""

    def encode(self, payload: msgspec.Raw) -> str:
        """Return the text."""
        return self.encode_many([payload])[0]

    def encode_many(self, payloads: list[msgspec.Raw]) -> list[str]:
        """Return the text of each payload."""
        size = max(map(len, payloads), default=0)
        if size > self.largest:
            raise too_large(size, self.largest)
        return [str(payload, "utf-8") for payload in payloads]


class StrictJSON(AbstractDTO[Any]):
    """The body reader of one route, a subclass made by `reading`."""

    decoder: "msgspec.json.Decoder[Any]"
    lines: bool

    @classmethod
    def create_for_field_definition(cls, field_definition: FieldDefinition, *args: Any, **kwargs: Any) -> None:
        """Store the type of the route's body."""
        if field_definition.name == "data":
            cls.decoder = msgspec.json.Decoder(field_definition.annotation)

    @classmethod
    def create_openapi_schema(cls, field_definition: FieldDefinition, handler_id: str, schema_creator: Any) -> Any:
        """Return the schema of the type."""
        return schema_creator.for_field_definition(field_definition)

    def decode_bytes(self, value: bytes) -> Any:
        """Decode the body to the route's type."""
        media = self.asgi_connection.headers.get("content-type", "")
        if media != "application/json":  # The common case needs no parsing.
            media, _ = self.asgi_connection.content_type  # type: ignore[attr-defined]
        if self.lines and media == "application/x-ndjson":
            value = b"[" + b",".join([line for line in value.splitlines() if line.strip()]) + b"]"
        elif media != "application/json":
            given = f"not {media}" if media else "with the header Content-Type"
            raise Refusal(415, "unsupported_media_type", f"send application/json, {given}")
        return read(value, self.decoder)


def reading(lines: bool) -> type[StrictJSON]:
    """Return a reader for one route, with NDJSON if *lines*."""
    return type("StrictJSONOfRoute", (StrictJSON,), {"lines": lines})


def _once(pairs: list[tuple[str, Any]]) -> None:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        again = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"duplicate key {again!r} in an object: send it once")


Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=checks.FOREVER)]
SignedMilliseconds = Annotated[int, msgspec.Meta(ge=-checks.FOREVER, le=checks.FOREVER)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=checks.FOREVER // 1000)]
Priority = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1, le=checks.MOST)]
Number = Annotated[int, msgspec.Meta(ge=0, le=checks.MOST)]
Token = Annotated[str, msgspec.Meta(pattern="^[0-9]{1,19}$")]
"""A number of 63 bits as text, because some languages lack such integers."""

Id = Annotated[int, PathParameter(ge=0, le=checks.MOST)]

# A parameter needs its own bounds: the framework ignores those of its annotated type.
IS_NAME: Any = {"min_length": 1, "max_length": 255}
IS_KEY: Any = {"min_length": 1, "max_length": 1000}
IS_MILLISECONDS: Any = {"ge": 0, "le": checks.FOREVER}
IS_SECONDS: Any = {"ge": 0, "le": checks.FOREVER // 1000}
IS_NUMBER: Any = {"ge": 0, "le": checks.MOST}


class Count(msgspec.Struct, frozen=True):
    """A number of items."""

    count: int


def token(text: str) -> int:
    """Return the number of a token."""
    return checks.count("token", int(text))

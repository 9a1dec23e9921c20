"""The bodies of requests as strict JSON, with the types of their fields; refusals as ``application/problem+json``."""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from http.client import responses
from typing import Annotated, Any

import msgspec
from litestar import Request
from msgspec import Meta

from .. import checks
from ..codec import DEEPEST

JSON, NDJSON = "application/json", "application/x-ndjson"
PROBLEM = "application/problem+json"


class Problem(msgspec.Struct, frozen=True):
    """An error, as RFC 9457 describes it: *detail* is for people, and *code* for programs."""

    type: str
    title: str
    status: int
    detail: str
    code: str

    @classmethod
    def of(cls, status: int, code: str, detail: str) -> "Problem":
        """Return a problem with the title of its status."""
        return cls("about:blank", title_of(status), status, detail, code)


def title_of(status: int) -> str:
    """Return the phrase of a status."""
    return responses.get(status, "Refused")


class Refusal(Exception):
    """Raised to answer a request with a problem."""

    def __init__(self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.problem = Problem.of(status, code, detail)
        self.headers = dict(headers or {})


PRINTABLE = {"pattern": checks.PRINTABLE}  # For the document; `checks.name` has the error.
Name = Annotated[str, Meta(min_length=1, max_length=255, extra_json_schema=PRINTABLE)]
Key = Annotated[str, Meta(min_length=1, max_length=1000, extra_json_schema=PRINTABLE)]
Code = Annotated[str, Meta(min_length=1, max_length=100, extra_json_schema=PRINTABLE)]
Milliseconds = Annotated[int, Meta(ge=0, le=checks.FOREVER)]
Seconds = Annotated[float, Meta(ge=0, le=checks.FOREVER // 1000)]
Lifetime = Annotated[float, Meta(ge=0.001, le=checks.FOREVER // 1000)]
Rate = Annotated[float, Meta(ge=1e-9, le=1e12)]
Burst = Annotated[float, Meta(ge=1, le=1e12)]
Weight = Annotated[float, Meta(ge=0.001, le=1000)]
Priority = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Attempts = Annotated[int, Meta(ge=1, le=2**31 - 1)]
AtLeastOne = Annotated[int, Meta(ge=1, le=checks.MOST)]
Number = Annotated[int, Meta(ge=0, le=checks.MOST)]
Token = Annotated[str, Meta(pattern="^[0-9]{1,19}$")]
"""A number of 63 bits as text, because some languages lack such integers."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


async def read_body(request: Request[Any, Any, Any], decoder: "msgspec.json.Decoder[Any]", lines: bool) -> Any:
    """Read a body of strict JSON, or with *lines* of NDJSON, as the decoder's type."""
    if not (value := await request.body()):
        raise Refusal(400, "malformed", "the body is missing: send JSON")
    media = request.headers.get("content-type", "")
    if media != JSON:  # The common case needs no parsing.
        media, _ = request.content_type
    if lines and media == NDJSON:
        value = b"[" + b",".join([line for line in value.splitlines() if line.strip()]) + b"]"
    elif media != JSON:
        given = f"not {media}" if media else "with the header Content-Type"
        raise Refusal(415, "unsupported_media_type", f"send application/json, {given}")
    _check(value)
    try:
        return _decoded(decoder, value)
    except msgspec.ValidationError as error:
        raise Refusal(422, "invalid", f"the body is invalid: {error}") from None


def _decoded(decoder: "msgspec.json.Decoder[Any]", value: bytes) -> Any:
    """Decode *value*, in which 3.0 is an integer as well: some languages have one kind of number."""
    try:
        return decoder.decode(value)
    except msgspec.ValidationError as error:
        if "got `float`" not in str(error):
            raise
    return decoder.decode(_with_integers(value))


_VERBATIM = ("payload", "result", "value")  # The fields of any JSON.


def _with_integers(value: bytes) -> bytes:
    """Return JSON with integral numbers as integers, except in fields of any JSON."""
    match value.lstrip()[:1]:
        case b"{":
            fields = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
            for name, text in fields.items():
                if name not in _VERBATIM:
                    fields[name] = msgspec.Raw(_with_integers(bytes(text)))
            return _encode(fields)
        case b"[":
            items = msgspec.json.decode(value, type=list[msgspec.Raw])
            return _encode([msgspec.Raw(_with_integers(bytes(item))) for item in items])
        case b'"' | b"t" | b"f" | b"n":
            return value
    number = Decimal(value.decode())
    integral = abs(number) <= 2**64 and number == number.to_integral_value()
    return b"%d" % number if integral else value


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

"""Bodies of requests: JSON, strictly, as one of our types.

The framework hands the bytes of a body to `StrictJSON`, which reads them as the type that the route says; payloads in
it stay the text that they came as (`msgspec.Raw`).  Nothing is read twice in meaning: a key that comes twice, what is
nested deeper than 64 levels, NaN and numbers that no database has are refused, as `eventkit.codec` refuses them.
"""

import json
import re
from typing import Any

import msgspec
from litestar.dto import AbstractDTO
from litestar.typing import FieldDefinition

from ..codec import DEEPEST, Codec, too_large
from .problems import Refusal

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_ALIKE = bytes.maketrans(b"[{]}", b"(())")
_BUT_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))


def strict(body: bytes) -> None:
    """Refuse *body* if it is not JSON, or says anything that would not be kept as it was said."""
    try:
        value = _decode(body)
        # As many colons as before are as many keys as before, unless a colon was written as an escape.
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
    """Peel the brackets of *body*, which is JSON, level by level; each step is one of C's."""
    if b"\\" in body:
        body = _ESCAPED.sub(b"", body)
    # The quotes of strings without brackets stand in pairs; where one is left, it is around brackets that are text.
    brackets = body.translate(_ALIKE, _BUT_BRACKETS).replace(b'""', b"")
    if b'"' in brackets:
        brackets = b"".join(brackets.split(b'"')[::2])
    for _ in range(DEEPEST):
        brackets = brackets.replace(b"()", b"")
        if not brackets:
            return
    raise ValueError(f"the body is nested deeper than {DEEPEST} levels: flatten it")


def read(body: bytes, decoder: "msgspec.json.Decoder[Any]") -> Any:
    """*body* as the decoder's type."""
    strict(body)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Refusal(422, "invalid", f"the body is not what is expected here: {error}") from None
    except msgspec.DecodeError as error:
        raise Refusal(400, "malformed", f"the body is not JSON: {error}") from None


class Verbatim(Codec):
    """For payloads of bodies that were `read`: their text is JSON, and is kept as it is."""

    def encode(self, payload: msgspec.Raw) -> str:
        """The text."""
        return self.encode_many([payload])[0]

    def encode_many(self, payloads: list[msgspec.Raw]) -> list[str]:
        """The text of each."""
        size = max(map(len, payloads), default=0)
        if size > self.largest:
            raise too_large(size, self.largest)
        return [str(payload, "utf-8") for payload in payloads]


class StrictJSON(AbstractDTO[Any]):
    """How the framework has bodies read; a subclass for each route that has one, made by `reading`."""

    decoder: "msgspec.json.Decoder[Any]"
    lines: bool

    @classmethod
    def create_for_field_definition(cls, field_definition: FieldDefinition, *args: Any, **kwargs: Any) -> None:
        """Remember the type that the route says."""
        if field_definition.name == "data":
            cls.decoder = msgspec.json.Decoder(field_definition.annotation)

    @classmethod
    def create_openapi_schema(cls, field_definition: FieldDefinition, handler_id: str, schema_creator: Any) -> Any:
        """The type as it is."""
        return schema_creator.for_field_definition(field_definition)

    def decode_bytes(self, value: bytes) -> Any:
        """The body, as the route's type."""
        media = self.asgi_connection.headers.get("content-type", "")
        if media != "application/json":  # Most say just that, and need nothing taken apart.
            media, _ = self.asgi_connection.content_type  # type: ignore[attr-defined]
        if self.lines and media == "application/x-ndjson":
            value = b"[" + b",".join([line for line in value.splitlines() if line.strip()]) + b"]"
        elif media != "application/json":
            given = f"not {media}" if media else "and say so in the header Content-Type"
            raise Refusal(415, "unsupported_media_type", f"send application/json, {given}")
        return read(value, self.decoder)


def reading(lines: bool) -> type[StrictJSON]:
    """A reader for one route; of *lines*, too."""
    return type("StrictJSONOfRoute", (StrictJSON,), {"lines": lines})


def _once(pairs: list[tuple[str, Any]]) -> None:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        again = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {again!r} comes twice in an object: say it once")

"""Payloads and headers as JSON text, strictly.

A payload reads back equal to what was passed, or it is refused before anything is written.  To prove it, each payload
is decoded once on its way in and compared, which also detects values that the JSON library would silently convert (NaN
into null, a datetime into a string).
"""

import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from .telemetry import with_trace

DEEPEST = 64
LARGEST = 524_288

_SHALLOW = 2 * DEEPEST
"""No JSON text up to this length is nested too deep."""

_encode = msgspec.json.Encoder().encode
_encode_lines = msgspec.json.Encoder().encode_lines
_decode = msgspec.json.Decoder().decode
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode

DecodeError = Exception
"""The exceptions of `Codec.decode`: a caller's type may raise any while an object is constructed."""


class Undecodable(msgspec.Struct, frozen=True):
    """The payload of an event or notification whose text did not decode: the *text* as stored, and the *error*."""

    text: str
    error: str


class Encoded(msgspec.Struct, frozen=True):
    """A payload that the codec of its handle has encoded, and so checked."""

    text: str


class Codec:
    """The encoding of payloads to JSON text and back, as *type* if one is given."""

    __slots__ = ("_decode_lines", "decode", "largest", "type")

    def __init__(self, type: Any = None, largest: int = LARGEST) -> None:
        self.type = type
        self.largest = largest
        decoder = msgspec.json.Decoder(Any if type is None else type)
        self.decode = _decode_raw if type is msgspec.Raw else decoder.decode
        self._decode_lines = decoder.decode_lines

    def encode(self, payload: Any) -> str:
        """Return *payload* as JSON text that decodes to an equal value; raise ``ValueError`` or ``TypeError``."""
        try:
            data = _encode(payload)
            if len(data) > _SHALLOW and data.count(b"[") + data.count(b"{") > DEEPEST:
                _check_depth(_decode(data))
            same = self.decode(data) == payload
        except UnicodeEncodeError as error:
            raise ValueError(f"the payload holds a lone surrogate, which is not text: {error}") from None
        except RecursionError:
            raise ValueError(f"the payload is nested deeper than {DEEPEST} levels: flatten it") from None
        except msgspec.ValidationError as error:
            raise TypeError(f"the payload is not a {_type_name(self.type)}: {error}") from None
        except (TypeError, OverflowError) as error:
            raise TypeError(f"the payload is not a JSON value: {error}") from None
        if len(data) > self.largest:
            raise too_large(len(data), self.largest)
        if not same:
            if self.type is bytes:  # Its base64 is text, so a text may be that of other bytes.
                raise TypeError(f"the payload is not bytes but {_type_name(type(payload))}: encode it")
            _explain_difference(payload if self.type is None else msgspec.to_builtins(payload))
        return data.decode()

    def encode_many(self, payloads: list[Any]) -> list[str]:
        """Run `encode` for each; small payloads are checked all at once, which is several times faster."""
        try:
            data = _encode_lines(payloads)
            texts = data.decode().split("\n")[:-1]
            # A character has at most four bytes; a `msgspec.Raw` may contain line breaks.
            small = max(map(len, texts), default=0) <= _SHALLOW <= self.largest // 4
            if small and len(texts) == len(payloads) and self._decode_lines(data) == payloads:
                return texts
        except Exception:
            pass  # One of them cannot be encoded, and raises its error below.
        return [self.encode(payload) for payload in payloads]

    def check(self, text: str) -> str:
        """Return *text*, which is JSON already; raise ``ValueError`` if it is not."""
        data = text.encode()
        if len(data) > self.largest:
            raise too_large(len(data), self.largest)
        try:
            value = self.decode(data)
            if len(data) > _SHALLOW and data.count(b"[") + data.count(b"{") > DEEPEST:
                _check_depth(value)
        except RecursionError:
            raise ValueError(f"the payload is nested deeper than {DEEPEST} levels: flatten it") from None
        except msgspec.MsgspecError as error:
            raise ValueError(f"the payload is not JSON: {error}") from None
        return text

    def decode_or_wrap(self, text: str | bytes, headers: str | bytes | None) -> tuple[Any, dict[str, str]]:
        """Return the payload of *text* and the *headers*; an `Undecodable` payload if either does not decode."""
        names: dict[str, str] = {}
        try:
            names = decode_headers(headers)
            return self.decode(text), names
        except DecodeError as error:
            return Undecodable(as_text(text), str(error)), names


def encode_headers(headers: Mapping[str, str] | None) -> str | None:
    """Return *headers* as JSON text; NULL for none."""
    if not headers:
        return None
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"headers are str → str, but {name!r} is {value!r}")
    try:
        return _encode(headers).decode()
    except UnicodeEncodeError as error:
        raise ValueError(f"a header holds a lone surrogate, which is not text: {error}") from None


def traced_headers(headers: Mapping[str, str] | None) -> str | None:
    """Return *headers*, with the trace context of the current span, as JSON text; NULL for none."""
    if "opentelemetry.trace" in sys.modules:
        headers = with_trace(headers)
    return encode_headers(headers) if headers else None


def decode_headers(text: str | bytes | None) -> dict[str, str]:
    """Return the headers of *text*, empty for NULL."""
    return _decode_headers(text) if text else {}


def as_text(stored: str | bytes) -> str:
    """Return text of the database, which may be any bytes, with U+FFFD for what is not UTF-8."""
    return stored if isinstance(stored, str) else stored.decode("utf-8", "replace")


def encode_json(value: Any) -> str:
    """Return *value*, made of the library's own rows and numbers, as JSON text."""
    return _encode(value).decode()


def too_large(size: int, largest: int) -> ValueError:
    """Return the error for a payload of *size* bytes, above the maximum *largest*."""
    return ValueError(
        f"the payload has {size:,} bytes as JSON, more than {largest:,}: "
        f"store the data elsewhere and send a reference, or raise max_payload in the URL"
    )


def _decode_raw(stored: str | bytes) -> msgspec.Raw:
    """Return the JSON unchanged, if it is text."""
    if not isinstance(stored, str):
        stored.decode()
    return msgspec.Raw(stored)


def _type_name(type: Any) -> str:
    return getattr(type, "__name__", str(type))


def _check_depth(value: Any, depth: int = 0) -> None:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        if depth == DEEPEST:
            raise ValueError(f"the payload is nested deeper than {DEEPEST} levels: flatten it")
        for item in value:
            _check_depth(item, depth + 1)


def _explain_difference(value: Any) -> None:
    """Raise an error for the part of *value* that JSON cannot represent; tuples are allowed."""
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueError(f"{value} is not a JSON number: send null or a string")
    elif isinstance(value, list | tuple):
        for item in value:
            _explain_difference(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the keys of a JSON object are strings, not {type(key).__name__}: {key!r}")
            _explain_difference(item)
    elif value is not None and not isinstance(value, str | int):
        raise TypeError(f"{type(value).__name__} is not a JSON value: convert it, or give the handle a type=")

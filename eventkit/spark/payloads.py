"""Payloads as structs: JSON text that has to be of a type, or is given back as it was.

A number is no text here and a text is no number, so that a payload of another shape is noticed.  What a payload has
beyond the type is passed over; what it lacks is NULL, and makes it corrupt where the type says NOT NULL.
"""

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from msgspec import Meta
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

Plain = Callable[[Any], Any]

_SIMPLE: dict[type[DataType], Any] = {
    StringType: str,
    BinaryType: bytes,
    BooleanType: bool,
    ByteType: Annotated[int, Meta(ge=-(2**7), lt=2**7)],
    ShortType: Annotated[int, Meta(ge=-(2**15), lt=2**15)],
    IntegerType: Annotated[int, Meta(ge=-(2**31), lt=2**31)],
    LongType: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)],
    FloatType: float,
    DoubleType: float,
    DecimalType: Decimal,
    DateType: date,
    TimestampType: Annotated[datetime, Meta(tz=True)],
    TimestampNTZType: Annotated[datetime, Meta(tz=False)],
}


class Parser:
    """Parses payloads that should be of a type."""

    def __init__(self, struct: StructType) -> None:
        self._decode = msgspec.json.Decoder(_type(struct) | None).decode
        self._plain = _plain(struct)
        self._kind: Any = to_arrow_type(struct, timezone="UTC")

    def parse(self, texts: Any) -> tuple[Any, Any]:
        """Two columns: the structs, and the texts that are none."""
        structs: list[Any] = []
        corrupt: list[str | None] = []
        for text in texts.to_pylist():
            try:
                structs.append(self._plain(self._decode(text)))
                corrupt.append(None)
            except (msgspec.DecodeError, ValueError, ArithmeticError):
                structs.append(None)
                corrupt.append(text)
        return pa.array(structs, self._kind), pa.array(corrupt, pa.string())


def _type(kind: DataType) -> Any:
    """What msgspec decodes for a type of Spark's."""
    if isinstance(kind, StructType):
        names = {f"field_{place}": field.name for place, field in enumerate(kind)}
        fields = [
            (own, _type(field.dataType) | None, None) if field.nullable else (own, _type(field.dataType))
            for own, field in zip(names, kind, strict=True)
        ]
        # Fields that have to be there may follow others, if they are named.
        return msgspec.defstruct("Payload", fields, rename=names, kw_only=True)
    if isinstance(kind, ArrayType):
        return list[_type(kind.elementType) | None]  # type: ignore[misc]  # the type is not known before
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return dict[str, _type(kind.valueType) | None]  # type: ignore[misc]
    if type(kind) not in _SIMPLE:
        raise ValueError(
            f"payloadSchema has no way to read {kind.simpleString()} from JSON: read it as string, and convert it"
        )
    return _SIMPLE[type(kind)]


def _plain(kind: DataType) -> Plain:
    """What makes of a decoded value one that Arrow takes for the type."""
    if isinstance(kind, StructType):
        return _plain_struct(kind)
    if isinstance(kind, ArrayType):
        element = _plain(kind.elementType)
        return lambda value: value and [element(one) for one in value]
    if isinstance(kind, MapType):
        entry = _plain(kind.valueType)
        return lambda value: value and [(key, entry(one)) for key, one in value.items()]
    if isinstance(kind, DecimalType):
        return _plain_decimal(kind)
    return _unchanged


def _plain_struct(kind: StructType) -> Plain:
    parts = [_plain(field.dataType) for field in kind]
    if all(part is _unchanged for part in parts):
        return lambda value: value and msgspec.structs.astuple(value)
    return lambda value: (
        value and tuple([part(one) for part, one in zip(parts, msgspec.structs.astuple(value), strict=True)])
    )


def _plain_decimal(kind: DecimalType) -> Plain:
    smallest, most = Decimal(1).scaleb(-kind.scale), Decimal(10) ** (kind.precision - kind.scale)

    def plain(value: Decimal | None) -> Decimal | None:
        if value is None:
            return None
        if not abs(value) < most or value != value.quantize(smallest):
            raise ValueError("a number with more digits than the type has")
        return value.quantize(smallest)

    return plain


def _unchanged(value: Any) -> Any:
    return value

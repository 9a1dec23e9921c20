"""Columns as the database has them, made into columns as Spark wants them."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute

from .codec import DecodeError, decode_headers

compute: Any = pyarrow.compute
"""What Arrow calculates; its functions are made when it is imported, where no type checker sees them."""

_HALF = pa.scalar(500, pa.duration("us"))
"""Of a millisecond."""

Maker = Callable[[Any, Any, int], Any]
"""Makes an array of a type, and of so many rows, of a column of the database."""


def same(array: Any, kind: Any, rows: int) -> Any:
    """The same values; a column of nothing but NULL may have been read as any type."""
    return pa.nulls(rows, kind) if array.null_count == rows else array.cast(kind)


def moment(array: Any, kind: Any, rows: int) -> Any:
    """Moments, of milliseconds; or of a database's own, of which the rest is rounded away, as it is everywhere."""
    if pa.types.is_timestamp(array.type):
        return compute.add(array, _HALF).cast(pa.timestamp("ms", "UTC"), safe=False).cast(kind)
    return array.cast(pa.int64()).cast(pa.timestamp("ms", "UTC")).cast(kind)


def flag(array: Any, kind: Any, rows: int) -> Any:
    """Truth values, which SQLite has as numbers."""
    return array.cast(kind)


def repeated(value: Any) -> Maker:
    """One value in each row."""
    return lambda array, kind, rows: pa.repeat(pa.scalar(value, kind), rows)


def headers(array: Any, kind: Any, rows: int) -> Any:
    """Maps, of JSON text."""
    if array.null_count == rows:
        return pa.nulls(rows, kind)
    return pa.array([_pairs(text) for text in array.to_pylist()], kind)


def kafka_headers(array: Any, kind: Any, rows: int) -> Any:
    """What Kafka has in the place of a map, of JSON text."""
    if array.null_count == rows:
        return pa.nulls(rows, kind)
    found = (_pairs(text) for text in array.to_pylist())
    return pa.array([None if one is None else [(name, value.encode()) for name, value in one] for one in found], kind)


def _pairs(text: str | None) -> list[tuple[str, str]] | None:
    if text is None:
        return None
    try:
        return list(decode_headers(text).items())
    except DecodeError:
        return None

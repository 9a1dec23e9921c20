"""The columns of streams: eventkit's own, and those that Kafka's users know."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..codec import DecodeError, decode_headers
from .options import ReadOptions

_STRING = StringType()

NATIVE = StructType(
    [
        StructField("offset", LongType(), False),
        StructField("topic", _STRING, False),
        StructField("key", _STRING),
        StructField("payload", _STRING, False),
        StructField("headers", MapType(_STRING, _STRING)),
        StructField("created_at", TimestampType(), False),
    ]
)

KAFKA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType(), False),
        StructField("topic", _STRING, False),
        StructField("partition", IntegerType(), False),
        StructField("offset", LongType(), False),
        StructField("timestamp", TimestampType(), False),
        StructField("timestampType", IntegerType(), False),
        StructField(
            "headers",
            ArrayType(StructType([StructField("key", _STRING), StructField("value", BinaryType())])),
        ),
    ]
)


def columns(options: ReadOptions) -> StructType:
    """The columns that the options ask for."""
    layout = NATIVE if options.layout == "native" else KAFKA
    return StructType([field for field in layout if field.name != "headers" or options.headers])


class Layout:
    """Makes batches of Spark's *schema*, which may be a part of the columns, of rows as the database has them."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        expected = {field.name: field for field in columns(options)}
        for field in schema:
            if field.name not in expected:
                raise ValueError(f"there is no column {field.name!r}: there are {', '.join(expected)}")
            wanted = expected[field.name].dataType
            if field.dataType != wanted:
                raise ValueError(
                    f"the column {field.name!r} is {wanted.simpleString()}, not {field.dataType.simpleString()}: "
                    f"leave schema() out, or cast in a select()"
                )
        self._schema: Any = to_arrow_schema(schema, timezone="UTC")
        self._makers = [(_MAKERS[options.layout][name], self._schema.field(name).type) for name in self._schema.names]
        self.sources = list(dict.fromkeys(["offset", *(source for (source, _), _ in self._makers if source)]))
        """The columns of the database that it takes."""

    def batch(self, topic: str, table: Any) -> Any:
        """*table* as a batch."""
        arrays = [
            make(table.column(source).combine_chunks() if source else pa.scalar(topic), kind, table.num_rows)
            for (source, make), kind in self._makers
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _cast(array: Any, kind: Any, rows: int) -> Any:
    return array.cast(kind)


def _moment(array: Any, kind: Any, rows: int) -> Any:
    return array.cast(pa.timestamp("ms", "UTC")).cast(kind)


def _repeated(topic: Any, kind: Any, rows: int) -> Any:
    return pa.repeat(topic, rows)


def _zero(topic: Any, kind: Any, rows: int) -> Any:
    return pa.repeat(pa.scalar(0, kind), rows)


def _headers(array: Any, kind: Any, rows: int) -> Any:
    if array.null_count == rows:
        return pa.nulls(rows, kind)
    return pa.array([_decoded(text) for text in array.to_pylist()], kind)


def _decoded(text: str | None) -> list[tuple[str, str]] | None:
    if text is None:
        return None
    try:
        return list(decode_headers(text).items())
    except DecodeError:
        return None


def _pairs(array: Any, kind: Any, rows: int) -> Any:
    if array.null_count == rows:
        return pa.nulls(rows, kind)
    decoded = (_decoded(text) for text in array.to_pylist())
    return pa.array([None if pairs is None else [(k, v.encode()) for k, v in pairs] for pairs in decoded], kind)


_Maker = tuple[str | None, Callable[[Any, Any, int], Any]]
"""From which column of the database, and how; none where the topic is enough."""

_MAKERS: dict[str, dict[str, _Maker]] = {
    "native": {
        "offset": ("offset", _cast),
        "topic": (None, _repeated),
        "key": ("key", _cast),
        "payload": ("payload", _cast),
        "headers": ("headers", _headers),
        "created_at": ("created_at", _moment),
    },
    "kafka": {
        "key": ("key", _cast),
        "value": ("payload", _cast),
        "topic": (None, _repeated),
        "partition": (None, _zero),
        "offset": ("offset", _cast),
        "timestamp": ("created_at", _moment),
        "timestampType": (None, _zero),
        "headers": ("headers", _pairs),
    },
}

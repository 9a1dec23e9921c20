"""The columns of streams, eventkit's own and those that Kafka's users know; and making batches of such columns."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..arrays import Maker, headers, kafka_headers, moment, repeated, same
from .options import ReadOptions
from .payloads import Parser


class Column(NamedTuple):
    """A column of Spark's, and from which one of the database it is made, and how."""

    kind: DataType
    source: str
    make: Maker = same
    nullable: bool = True


Columns = Mapping[str, Column]

TEXT, NUMBER, MOMENT = StringType(), LongType(), TimestampType()
HEADERS = MapType(TEXT, TEXT)
_KAFKA_HEADERS = ArrayType(StructType([StructField("key", TEXT), StructField("value", BinaryType())]))

NATIVE: Columns = {
    "offset": Column(NUMBER, "offset", nullable=False),
    "topic": Column(TEXT, "", nullable=False),
    "key": Column(TEXT, "key"),
    "payload": Column(TEXT, "payload", nullable=False),
    "headers": Column(HEADERS, "headers", headers),
    "created_at": Column(MOMENT, "created_at", moment, nullable=False),
}
KAFKA: Columns = {
    "key": Column(BinaryType(), "key"),
    "value": Column(BinaryType(), "payload", nullable=False),
    "topic": Column(TEXT, "", nullable=False),
    "partition": Column(IntegerType(), "", repeated(0), nullable=False),
    "offset": Column(NUMBER, "offset", nullable=False),
    "timestamp": Column(MOMENT, "created_at", moment, nullable=False),
    "timestampType": Column(IntegerType(), "", repeated(0), nullable=False),
    "headers": Column(_KAFKA_HEADERS, "headers", kafka_headers),
}


def schema(columns: Columns) -> StructType:
    """The columns, as Spark describes them."""
    return StructType([StructField(name, column.kind, column.nullable) for name, column in columns.items()])


def stream_columns(options: ReadOptions) -> Columns:
    """The columns that the options ask for; but for those of a parsed payload."""
    columns = NATIVE if options.layout == "native" else KAFKA
    return {name: column for name, column in columns.items() if name != "headers" or options.headers}


def stream_schema(options: ReadOptions) -> StructType | str:
    """The same, as Spark describes them."""
    columns = schema(stream_columns(options))
    if options.payload_schema is None:
        return columns
    # Only Spark itself reads its language of types, so it gets all in that.
    described = [
        f"payload STRUCT<{options.payload_schema}>"
        if field.name == "payload"
        else f"{field.name} {field.dataType.simpleString()}{'' if field.nullable else ' NOT NULL'}"
        for field in columns
    ]
    return ", ".join([*described, "_corrupt STRING"])


class Layout:
    """Makes batches of Spark's *schema*, which may be some of *columns*, of tables as the database gives them."""

    def __init__(self, columns: Columns, schema: StructType) -> None:
        for field in schema:
            if field.name not in columns:
                raise ValueError(f"there is no column {field.name!r}: there are {', '.join(columns)}")
            wanted = columns[field.name].kind
            if field.dataType != wanted:
                raise ValueError(
                    f"the column {field.name!r} is {wanted.simpleString()}, not {field.dataType.simpleString()}: "
                    f"leave schema() out, or cast in a select()"
                )
        self._columns = [columns[name] for name in schema.names]
        self._spark_schema = schema

    @cached_property
    def _schema(self) -> Any:
        return to_arrow_schema(self._spark_schema, timezone="UTC")

    @property
    def sources(self) -> list[str]:
        """The columns of the database that it takes."""
        return list(dict.fromkeys(column.source for column in self._columns if column.source))

    def batch(self, table: Any, topic: str = "") -> Any:
        """*table* as a batch; all of it is of one *topic*, if of any."""
        found = {name: table.column(name).combine_chunks() for name in table.column_names}
        return self._made(found, topic, table.num_rows)

    def _made(self, found: dict[str, Any], topic: str, rows: int) -> Any:
        arrays = []
        for column, field in zip(self._columns, self._schema, strict=True):
            make = repeated(topic) if not column.source and field.name == "topic" else column.make
            arrays.append(make(found.get(column.source), field.type, rows))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class ParsingLayout(Layout):
    """The same, with payloads as structs, and beside them the text of those that are not what they should be."""

    def __init__(self, columns: Columns, schema: StructType) -> None:
        payload = next((field.dataType for field in schema if field.name == "payload"), None)
        if not isinstance(payload, StructType):
            raise ValueError("with payloadSchema, payload is a struct, and has to be among the columns of schema()")
        parsed = {"payload": Column(payload, "payload"), "_corrupt": Column(TEXT, "_corrupt")}
        super().__init__({**columns, **parsed}, schema)
        self._payload = payload

    @cached_property
    def _parser(self) -> Parser:
        return Parser(self._payload)

    @property
    def sources(self) -> list[str]:
        """The columns of the database that it takes."""
        return [source for source in super().sources if source != "_corrupt"]

    def _made(self, found: dict[str, Any], topic: str, rows: int) -> Any:
        found["payload"], found["_corrupt"] = self._parser.parse(found["payload"])
        return super()._made(found, topic, rows)


def stream_layout(options: ReadOptions, schema: StructType) -> Layout:
    """What makes batches of events."""
    columns = stream_columns(options)
    return Layout(columns, schema) if options.payload_schema is None else ParsingLayout(columns, schema)

"""The columns of streams and tables, in each layout, read and written, and payloads as types of Spark."""

from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property, partial
from typing import Annotated, Any, NamedTuple

import msgspec
import pyarrow as pa
from msgspec import Meta
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
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
    IntegralType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ..arrow import Maker, headers, kafka_headers, moment, repeated, same, state
from .options import ReadOptions, WriteOptions

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
    """A parser of payloads for an expected type."""

    def __init__(self, struct: StructType) -> None:
        self._decode = msgspec.json.Decoder(_type(struct) | None).decode
        self._plain = _plain(struct)
        self._kind: Any = to_arrow_type(struct, timezone="UTC")

    def parse(self, texts: Any) -> tuple[Any, Any]:
        """Return two columns: the structs, and the texts that do not match the type."""
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
    """Return the type that msgspec decodes for a type of Spark."""
    if isinstance(kind, StructType):
        names = {f"field_{place}": field.name for place, field in enumerate(kind)}
        fields = [
            (own, _type(field.dataType) | None, None) if field.nullable else (own, _type(field.dataType))
            for own, field in zip(names, kind, strict=True)
        ]
        # Required fields may follow optional ones, because they are passed by name.
        return msgspec.defstruct("Payload", fields, rename=names, kw_only=True)
    if isinstance(kind, ArrayType):
        return list[_type(kind.elementType) | None]  # type: ignore[misc]  # the type is not known before
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return dict[str, _type(kind.valueType) | None]  # type: ignore[misc]
    if type(kind) not in _SIMPLE:
        raise ValueError(
            f"payloadSchema cannot read {kind.simpleString()} from JSON: read it as string, and convert it"
        )
    return _SIMPLE[type(kind)]


def _plain(kind: DataType) -> Plain:
    """Return a function that converts a decoded value to one that Arrow accepts for the type."""
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


class Column(NamedTuple):
    """A column of Spark, with the database column that it is made from, and the conversion."""

    kind: DataType
    source: str
    make: Maker = same
    nullable: bool = True


Columns = Mapping[str, Column]

TEXT = StringType()
_HEADERS = MapType(TEXT, TEXT)
_KAFKA_HEADERS = ArrayType(StructType([StructField("key", TEXT), StructField("value", BinaryType())]))

_KINDS: dict[str, tuple[DataType, Maker]] = {
    "": (TEXT, same),
    "number": (LongType(), same),
    "integer": (IntegerType(), same),
    "flag": (BooleanType(), same),
    "moment": (TimestampType(), moment),
    "state": (TEXT, state),
    "headers": (_HEADERS, headers),
}


def _columns(text: str) -> Columns:
    """Return the columns ``name:kind`` in *text*; an exclamation mark is for those that are never NULL."""
    columns = {}
    for word in text.split():
        name, _, kind = word.rstrip("!").partition(":")
        type, make = _KINDS[kind]
        columns[name] = Column(type, name, make, nullable=not word.endswith("!"))
    return columns


_TASKS = _columns(
    "id:number! queue! state:state! payload! key headers:headers priority:integer! attempt:integer! "
    "max_attempts:number! run_at:moment! enqueued_at:moment! expires_at:moment lease_expires_at:moment "
    "worker claimed_at:moment finished_at:moment reason error result"
)
_TOPIC = Column(TEXT, "", nullable=False)

COLUMNS: dict[str, Columns] = {
    "events": {**_columns("offset:number! topic! key payload! headers:headers created_at:moment!"), "topic": _TOPIC},
    "tasks": _TASKS,
    "dead": _TASKS,
    "results": _columns("id! value! expires_at:moment!"),
    "schedules": _columns(
        "name! when! tz! queue! payload! headers:headers priority:integer! max_attempts:number catch_up! paused:flag! "
        "next_at:moment last_at:moment fired:number! skipped:number!"
    ),
    "consumers": _columns("topic! name! offset:number! lag:number! updated_at:moment!"),
}
"""The columns of each table."""

_KAFKA: Columns = {
    "key": Column(BinaryType(), "key"),
    "value": Column(BinaryType(), "payload", nullable=False),
    "topic": _TOPIC,
    "partition": Column(IntegerType(), "", repeated(0), nullable=False),
    "offset": Column(LongType(), "offset", nullable=False),
    "timestamp": Column(TimestampType(), "created_at", moment, nullable=False),
    "timestampType": Column(IntegerType(), "", repeated(0), nullable=False),
    "headers": Column(_KAFKA_HEADERS, "headers", kafka_headers),
}


def schema(columns: Columns) -> StructType:
    """Return the columns as a schema of Spark."""
    return StructType([StructField(name, column.kind, column.nullable) for name, column in columns.items()])


def stream_columns(options: ReadOptions) -> Columns:
    """Return the columns that the options select, except those of a parsed payload."""
    columns = COLUMNS["events"] if options.layout == "native" else _KAFKA
    return {name: column for name, column in columns.items() if name != "headers" or options.headers}


def stream_schema(options: ReadOptions) -> StructType | str:
    """Return the schema of the columns that the options select."""
    columns = schema(stream_columns(options))
    if options.payload_schema is None:
        return columns
    # Only Spark itself parses its type syntax, so the whole schema is a text.
    described = [
        f"payload STRUCT<{options.payload_schema}>"
        if field.name == "payload"
        else f"{field.name} {field.dataType.simpleString()}{'' if field.nullable else ' NOT NULL'}"
        for field in columns
    ]
    return ", ".join([*described, "_corrupt STRING"])


class Layout:
    """A conversion of database tables into batches of Spark's *schema*, which may be a subset of *columns*."""

    def __init__(self, columns: Columns, schema: StructType) -> None:
        for field in schema:
            if field.name not in columns:
                raise ValueError(f"there is no column {field.name!r}: the columns are {', '.join(columns)}")
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
        """The columns of the database that are read."""
        return list(dict.fromkeys(column.source for column in self._columns if column.source))

    def batch(self, table: Any, topic: str = "") -> Any:
        """Return *table* as a batch; all its rows are of one *topic*, if of any."""
        found, rows, arrays = self._found(table), table.num_rows, []
        for column, field in zip(self._columns, self._schema, strict=True):
            make = repeated(topic) if not column.source and field.name == "topic" else column.make
            arrays.append(make(found.get(column.source), field.type, rows))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _found(self, table: Any) -> dict[str, Any]:
        return {name: table.column(name).combine_chunks() for name in table.column_names}


class ParsingLayout(Layout):
    """A layout with payloads as structs, and beside them the texts that do not match the type."""

    def __init__(self, columns: Columns, schema: StructType) -> None:
        payload = next((field.dataType for field in schema if field.name == "payload"), None)
        if not isinstance(payload, StructType):
            raise ValueError("with payloadSchema, schema() must include the column payload, a struct")
        parsed = {"payload": Column(payload, "payload"), "_corrupt": Column(TEXT, "_corrupt")}
        super().__init__({**columns, **parsed}, schema)
        self._payload = payload

    @cached_property
    def _parser(self) -> Parser:
        return Parser(self._payload)

    @property
    def sources(self) -> list[str]:
        """The columns of the database that are read."""
        return [source for source in super().sources if source != "_corrupt"]

    def _found(self, table: Any) -> dict[str, Any]:
        found = super()._found(table)
        found["payload"], found["_corrupt"] = self._parser.parse(found["payload"])
        return found


def stream_layout(options: ReadOptions, schema: StructType) -> Layout:
    """Return the layout of events."""
    columns = stream_columns(options)
    return Layout(columns, schema) if options.payload_schema is None else ParsingLayout(columns, schema)


_JSON = (StringType, StructType, MapType, ArrayType)
_EVENT_WRITTEN: dict[str, tuple[type[DataType], ...]] = {
    "topic": (StringType,),
    "key": (StringType,),
    "payload": _JSON,
    "headers": (MapType,),
    "dedup": (StringType,),
}
_TASK_WRITTEN: dict[str, tuple[type[DataType], ...]] = {
    "key": (StringType,),
    "payload": _JSON,
    "headers": (MapType,),
    "priority": (IntegralType,),
    "max_attempts": (IntegralType,),
    "run_at": (TimestampType,),
    "expires": (TimestampType,),
    "group_key": (StringType,),
}
_KAFKA_WRITTEN: dict[str, tuple[type[DataType], ...]] = {
    "topic": (StringType,),
    "key": (StringType, BinaryType),
    "value": (StringType, BinaryType),
    "headers": (ArrayType,),
}
_WORDS: dict[type[DataType], tuple[str, str]] = {
    ArrayType: (f"an {_KAFKA_HEADERS.simpleString()}", "array(named_struct('key', ..., 'value', ...))"),
    StringType: ("a string", "cast('string')"),
    IntegralType: ("a whole number", "cast('int')"),
    TimestampType: ("a timestamp", "cast('timestamp')"),
    MapType: (f"a {_HEADERS.simpleString()}", "create_map(...)"),
}


def written(options: WriteOptions, schema: StructType) -> tuple[Collection[str], dict[str, int]]:
    """Return the columns that a writer takes, and their places in the *schema* of rows, or raise `ValueError`.

    Columns of a stream that was read are ignored, so that they need not be dropped.
    """
    kafka = options.layout == "kafka"
    known = _KAFKA_WRITTEN if kafka else _EVENT_WRITTEN if options.queue is None else _TASK_WRITTEN
    read_only = {name.lower() for name in (_KAFKA if kafka else COLUMNS["events"])} if options.queue is None else ()
    places: dict[str, int] = {}
    payload = "value" if kafka else "payload"
    for place, one in enumerate(schema):
        name = one.name.lower()
        if name in known:
            _check_type(name, one.dataType, known[name])
            places[name] = place
        elif name not in read_only:
            raise ValueError(
                f"the column {one.name!r} would not be written: select() only {', '.join(known)}, "
                f"with the rest in {payload}, as in to_json(struct('*'))"
            )
    if payload not in places:
        raise ValueError(
            f"there is no column {payload}: add one, as in select(to_json(struct('*')).alias('{payload}'))"
        )
    if options.queue is None and options.topic is None and "topic" not in places:
        raise ValueError("no target to write to: set option topic or queue, or add a column topic")
    return known, places


def _check_type(name: str, given: DataType, wanted: tuple[type[DataType], ...]) -> None:
    if name == "payload" and not isinstance(given, wanted):
        raise ValueError(
            f"the column payload is {given.simpleString()}, and neither JSON text nor a struct: convert it, as "
            f"to_json(...) and struct(...) do"
        )
    headers = (_HEADERS.simpleString(), _KAFKA_HEADERS.simpleString())
    if not isinstance(given, wanted) or (name == "headers" and given.simpleString() not in headers):
        kind, remedy = _WORDS[wanted[0]]
        raise ValueError(f"the column {name} is {given.simpleString()}, not {kind}: convert it, as with {remedy}")


def each(convert: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    """Return the values that are not None converted."""
    return [None if value is None else convert(value) for value in values]


def from_kafka(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return columns of Kafka's layout as those of events."""
    return {
        "name": columns["name"],
        "payload": each(partial(_decoded, "value"), columns["value"]),
        "key": each(partial(_decoded, "key"), columns["key"]),
        "headers": each(_pairs, columns["headers"]),
        "dedup": [None] * len(columns["name"]),
    }


def _decoded(name: str, value: str | bytes) -> str:
    try:
        return value if isinstance(value, str) else value.decode()
    except UnicodeDecodeError:
        raise ValueError(f"the {name} is not text in UTF-8: encode it, as with base64(...)") from None


def _pairs(headers: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    names = [header["key"] for header in headers]
    if len({*names}) < len(names):
        raise ValueError("two headers have the same name: an event has one header of a name")
    return [
        (name, None if header["value"] is None else _decoded("header", header["value"]))
        for name, header in zip(names, headers, strict=True)
    ]

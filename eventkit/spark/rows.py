"""Rows that Spark writes, as events and tasks."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from .. import checks
from ..codec import Codec, encode_headers
from ..queue import checked_priority
from .options import WriteOptions

_JSON = (StringType, StructType, MapType, ArrayType)
_EVENT: dict[str, tuple[type[DataType], ...]] = {
    "topic": (StringType,),
    "key": (StringType,),
    "payload": _JSON,
    "headers": (MapType,),
    "dedup": (StringType,),
}
_TASK: dict[str, tuple[type[DataType], ...]] = {
    "key": (StringType,),
    "payload": _JSON,
    "headers": (MapType,),
    "priority": (IntegralType,),
    "max_attempts": (IntegralType,),
    "run_at": (TimestampType,),
    "expires": (TimestampType,),
}
_READ_ONLY = ("offset", "created_at")
"""Columns of a stream that was read; a writer ignores them, so that they need not be dropped."""

_WORDS: dict[type[DataType], tuple[str, str]] = {
    StringType: ("a string", "cast('string')"),
    IntegralType: ("a whole number", "cast('int')"),
    TimestampType: ("a timestamp", "cast('timestamp')"),
    MapType: ("a map<string,string>", "create_map(...)"),
}
_LARGE = 4 * 1024 * 1024
"""Bytes beyond which a batch is halved, which bounds the memory for staging."""


class BadRow(NamedTuple):
    """A row that cannot be written: its number in the partition, the reason, and the row as JSON."""

    number: int
    reason: str
    row: str


class Chunk(NamedTuple):
    """Rows for one topic or queue, and their approximate size in bytes."""

    name: str
    rows: list[tuple[Any, ...]]
    size: int


class Shape:
    """The columns, and their conversion to rows."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        known = _EVENT if options.queue is None else _TASK
        self._options = options
        self._largest = options.max_payload
        self._places: dict[str, int] = {}
        for place, field in enumerate(schema):
            name = field.name.lower()
            if name in known:
                _check_type(name, field.dataType, known[name])
                self._places[name] = place
            elif name not in _READ_ONLY or options.queue is not None:
                raise ValueError(
                    f"the column {field.name!r} would not be written: select() only {', '.join(known)}, "
                    f"with the rest in payload, as in to_json(struct('*'))"
                )
        if "payload" not in self._places:
            raise ValueError("there is no column payload: add one, as in select(to_json(struct('*')).alias('payload'))")
        if options.queue is None and options.topic is None and "topic" not in self._places:
            raise ValueError("no target to write to: set option topic or queue, or add a column topic")
        self._text = isinstance(schema[self._places["payload"]].dataType, StringType)
        self.deduplicated = "dedup" in self._places
        """Whether events have dedup ids."""

    def chunks(self, batches: Iterator[Any], bad: list[BadRow]) -> Iterator[Chunk]:
        """Yield the rows of Arrow *batches*, in order; append those that cannot be written to *bad*."""
        first = 0
        for batch in batches:
            for part in _halved(batch):
                yield from self._chunks(part, first, bad)
                first += part.num_rows

    def _chunks(self, batch: Any, first: int, bad: list[BadRow]) -> Iterator[Chunk]:
        columns = self._columns(batch)
        try:
            rows = self._rows(columns)
        except (ValueError, TypeError):
            found = list(self._good(columns, batch, first, bad))
            names, rows = [name for name, _ in found], [row for _, row in found]
        else:
            names = columns["name"]
        size = batch.nbytes // max(1, batch.num_rows)
        groups: dict[str, list[tuple[Any, ...]]] = {}
        if len(set(names)) == 1:
            groups[names[0]] = rows
        else:
            for name, row in zip(names, rows, strict=True):
                groups.setdefault(name, []).append(row)
        for name, group in groups.items():
            yield Chunk(name, group, size * len(group))

    def _columns(self, batch: Any) -> dict[str, list[Any]]:
        """Return the values of each column, also of missing ones."""
        known = _EVENT if self._options.queue is None else _TASK
        columns: dict[str, list[Any]] = {name: [None] * batch.num_rows for name in known}
        for name, place in self._places.items():
            if batch.column(place).null_count < batch.num_rows:
                maps = {"maps_as_pydicts": "lossy"} if name == "payload" else {}
                columns[name] = batch.column(place).to_pylist(**maps)
        fixed = self._options.queue or self._options.topic
        columns["name"] = columns.pop("topic", []) if fixed is None else [fixed] * batch.num_rows
        return columns

    def _good(
        self, columns: dict[str, list[Any]], batch: Any, first: int, bad: list[BadRow]
    ) -> Iterator[tuple[str, tuple[Any, ...]]]:
        for place in range(batch.num_rows):
            one = {name: values[place : place + 1] for name, values in columns.items()}
            try:
                [row] = self._rows(one)
            except (ValueError, TypeError) as error:
                text = msgspec.json.encode(batch.slice(place, 1).to_pylist()[0]).decode()
                bad.append(BadRow(first + place, str(error), text))
            else:
                yield one["name"][0], row

    def _rows(self, columns: dict[str, list[Any]]) -> list[tuple[Any, ...]]:
        for name in set(columns["name"]):
            if name is None:
                raise ValueError("the topic is null: name it, or filter such rows out")
            checks.name("topic", name)
        payloads, headers = self._payloads(columns["payload"]), _each(_headers, columns["headers"])
        keys = _each(checks.key, columns["key"])
        if self._options.queue is None:
            return list(zip(payloads, keys, headers, _each(checks.key, columns["dedup"]), strict=True))
        nothing = [None] * len(payloads)
        return list(
            zip(
                payloads,
                headers,
                [0 if value is None else checked_priority(value) for value in columns["priority"]],
                _each(_attempts, columns["max_attempts"]),
                keys,
                nothing,
                _each(lambda value: _moment("run_at", value), columns["run_at"]),
                nothing,
                _each(lambda value: _moment("expires", value), columns["expires"]),
                strict=True,
            )
        )

    def _payloads(self, values: list[Any]) -> list[str]:
        if None in values:
            raise ValueError("the payload is null: filter such rows out, or write the JSON text 'null'")
        codec = Codec(largest=self._largest)  # Created here, because a shape is pickled.
        if self._text:
            return list(map(codec.check, values))
        return codec.encode_many([msgspec.to_builtins(value) for value in values])


def _halved(batch: Any) -> Iterator[Any]:
    if batch.nbytes > _LARGE and batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from _halved(batch.slice(0, half))
        yield from _halved(batch.slice(half))
    elif batch.num_rows:
        yield batch


def _each(convert: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    return [None if value is None else convert(value) for value in values]


def _headers(pairs: list[tuple[str, str | None]]) -> str | None:
    return encode_headers(dict(pairs))  # type: ignore[arg-type]  # It reports nulls.


def _attempts(value: int) -> int:
    return checks.count("max_attempts", value, least=1)


def _moment(what: str, value: datetime) -> int:
    return checks.moment(what, value)


def _check_type(name: str, given: DataType, wanted: tuple[type[DataType], ...]) -> None:
    if name == "payload" and not isinstance(given, wanted):
        raise ValueError(
            f"the column payload is {given.simpleString()}, and neither JSON text nor a struct: convert it, as "
            f"to_json(...) and struct(...) do"
        )
    texts = given.simpleString() == "map<string,string>"
    if not isinstance(given, wanted) or (name == "headers" and not texts):
        kind, remedy = _WORDS[wanted[0]]
        raise ValueError(f"the column {name} is {given.simpleString()}, not {kind}: convert it, as with {remedy}")

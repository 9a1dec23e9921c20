"""The writer of rows to events and tasks, exactly once, with a quarantine for bad rows."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from time import monotonic, sleep
from typing import Any, NamedTuple, cast
from urllib.parse import quote
from uuid import uuid4

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StringType, StructType

from .. import checks
from ..archive.files import Location
from ..codec import Codec, encode_headers
from ..errors import ForeignTransaction, NotMigrated, Unavailable
from ..kit import backend_of
from ..operations.bulk import DropStaged, MarkWritten, StageEvents, StageTasks, WriteBatch, skipped_in
from ..operations.claim import fresh_token
from ..queue import checked_priority
from .columns import each, from_kafka, written
from .options import WriteOptions
from .session import Travelling, plainly

_log = logging.getLogger("eventkit.spark")

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
    """The columns, and their conversion to rows of events and tasks."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._kafka = options.layout == "kafka"
        self._options = options
        self._largest = options.max_payload
        self._known, self._places = written(options, schema)
        self._text = self._kafka or isinstance(schema[self._places["payload"]].dataType, StringType)
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
        groups: dict[str, list[tuple[Any, ...]]] = {names[0]: rows} if len(set(names)) == 1 else {}
        if not groups:
            for name, row in zip(names, rows, strict=True):
                groups.setdefault(name, []).append(row)
        for name, group in groups.items():
            yield Chunk(name, group, size * len(group))

    def _columns(self, batch: Any) -> dict[str, list[Any]]:
        """Return the values of each column, also of missing ones."""
        columns: dict[str, list[Any]] = {name: [None] * batch.num_rows for name in self._known}
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
        if self._kafka:
            columns = from_kafka(columns)
        payloads, headers = self._payloads(columns["payload"]), each(_headers, columns["headers"])
        keys = each(checks.key, columns["key"])
        if self._options.queue is None:
            return list(zip(payloads, keys, headers, each(checks.key, columns["dedup"]), strict=True))
        nothing = [None] * len(payloads)
        priorities = [0 if value is None else checked_priority(value) for value in columns["priority"]]
        attempts = each(lambda value: checks.count("max_attempts", value, least=1), columns["max_attempts"])
        run_at, expires = (each(partial(checks.moment, name), columns[name]) for name in ("run_at", "expires"))
        groups = each(checks.key, columns["group_key"])
        found = (payloads, headers, priorities, attempts, keys, nothing, run_at, nothing, expires, groups)
        return list(zip(*found, strict=True))

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


def _headers(pairs: list[tuple[str, str | None]]) -> str | None:
    return encode_headers(dict(pairs))  # type: ignore[arg-type]  # It reports nulls.


_LONGEST = 200
"""The most characters of a batch's name in the name of its file, which has 255 bytes at most."""


def quarantine(folder: str, batch: str, parts: Sequence[tuple[int, Sequence[BadRow]]]) -> None:
    """Write the bad rows of a batch's *parts*, if there are any.

    The file has the name of the batch and is replaced as a whole, so a batch that is written again has one file.
    """
    lines = [
        {"partition": part, "row": bad.number, "reason": bad.reason, "value": msgspec.Raw(bad.row.encode())}
        for part, rows in sorted(parts, key=lambda part: part[0])
        for bad in rows
    ]
    if not lines:
        return
    files, path = Location(folder).open()
    files.create_dir(path, recursive=True)
    name = quote(batch, safe="")
    if len(name) > _LONGEST:
        name = name[: _LONGEST - 65] + "-" + sha256(batch.encode()).hexdigest()
    name = f"{path}/{name}.jsonl"
    with files.open_output_stream(f"{name}.part") as stream:
        stream.write(msgspec.json.Encoder().encode_lines(lines))
    files.move(f"{name}.part", name)


_FEW = 65_536
"""Bytes of a partition up to which its rows are sent with the message to the driver."""

_PATIENCE = 30.0
"""Seconds for which a commit is retried while the database is unavailable."""

_KEPT = 30 * 86_400_000
"""Milliseconds for which the id of a single write is kept."""


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The result of one attempt at a partition: the rows staged in the database, and the others."""

    writer: str
    batch: int
    attempt: int
    part: int
    number: int
    chunks: int
    late: list[StageEvents | StageTasks]
    bad: list[BadRow] = field(default_factory=list)
    micro_batch: tuple[str, int] | None = None
    """The query and the number of the micro-batch of this write, also in a function of foreachBatch."""


class _Writing:
    """The part that both writers share."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._shape = Shape(options, schema)

    def stage(self, batches: Iterator[Any], writer: str, batch: int) -> Staged:
        context = cast(TaskContext, TaskContext.get())
        attempt, part = fresh_token(), context.partitionId()
        operation: Any = StageEvents if self._options.queue is None else StageTasks
        held: list[StageEvents | StageTasks] = []
        bad: list[BadRow] = []
        size = number = chunks = 0
        connection: Any = None
        away = False
        try:
            for position, chunk in enumerate(self._shape.chunks(batches, bad)):
                if bad and self._options.quarantine is None:
                    break
                held.append(operation(writer, batch, attempt, part, position, chunk.name, chunk.rows))
                size, number = size + chunk.size, number + len(chunk.rows)
                if size > _FEW and not away:
                    connection = connection or self._connected()
                    away = connection is None
                    if connection is not None:
                        for one in held:
                            connection.execute(one)
                        chunks += len(held)
                        held.clear()
        finally:
            if connection is not None:
                connection.close()
        return Staged(writer, batch, attempt, part, number, chunks, held, bad, _micro_batch(context))

    def write(self, messages: Sequence[Staged], keep: int | None, what: str) -> None:
        """Write a batch; if it was written before, log a warning that names *what*, and count it."""
        if not messages:
            return
        first = messages[0]
        for message in messages:
            self._refuse(message.bad, message.part)
        if self._options.quarantine is not None:
            quarantine(self._options.quarantine, f"{first.writer}-{first.batch}", [(m.part, m.bad) for m in messages])
        rows = sum(message.number for message in messages)
        written = self._persistently(
            WriteBatch(
                first.writer,
                first.batch,
                keep,
                attempts=[message.attempt for message in messages],
                chunks=sum(message.chunks for message in messages),
                late=[chunk for message in messages for chunk in message.late],
                queue=self._options.queue,
                number=rows,
                deduplicated=self._shape.deduplicated,
            )
        )
        if not written:
            _log.warning("%s was written to %s before: skipped %d rows", what, self._options.target, rows)
            if first.micro_batch is not None:
                query, batch = first.micro_batch
                with closing(self._connect()) as connection:
                    connection.execute(MarkWritten(skipped_in(query), batch + 1, _KEPT))

    def forget(self, writer: str, batch: int) -> None:
        """Delete the staged rows; housekeeping deletes them later if that fails now."""
        with suppress(Unavailable), closing(self._connect()) as connection:
            connection.execute(DropStaged(writer, batch))

    def _refuse(self, bad: list[BadRow], part: int) -> None:
        """Raise for a bad row.  The driver does this, because a failed task is retried, and logs pages of Java."""
        if bad and self._options.quarantine is None:
            number, reason, row = bad[0]
            shown = row if len(row) <= 200 else f"{row[:200]}…"
            raise ValueError(
                f"row {number} of partition {part} cannot be written, and nothing was: {reason}; it is {shown}. "
                f"With option quarantine such rows go to a folder, and the others are written"
            )

    def _connected(self) -> Any:
        """Return a connection; None if this process cannot have one, and rows must be sent to the driver."""
        try:
            return self._connect(create=False)
        except (NotMigrated, Unavailable, ForeignTransaction):
            return None

    def _connect(self, create: bool = True) -> Any:
        url = self._options.address.resolve()
        return backend_of(url).connect(url, create=create)

    def _persistently(self, operation: WriteBatch) -> bool:
        """Write a batch until the outcome is certain.  Return False if it was written before."""
        deadline, pause, interrupted = monotonic() + _PATIENCE, 0.05, False
        while True:
            try:
                with closing(self._connect()) as connection:
                    # An interrupted attempt may have committed, so a later one may find its mark.
                    return connection.execute(operation) or interrupted
            except Unavailable:
                if monotonic() > deadline:
                    raise
                interrupted = True
                sleep(pause)
                pause = min(2 * pause, 2.0)


class BatchWriter(Travelling, DataSourceArrowWriter):
    """A writer of a DataFrame in one transaction; a repeat with the same id, or an older version, is skipped."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ValueError(
                "mode overwrite would delete unread events: write with mode('append'), and delete by "
                "prune(...) or purge(...) of the kit"
            )
        self._writing = _Writing(options, schema)
        self._batch = options.txn_version or 0
        self._keep = None if options.txn_app_id is not None else _KEPT
        if options.txn_app_id is not None:
            self._writer = _named("app", options.txn_app_id, options)
            self._what = f"version {options.txn_version}, or a newer one, of txnAppId {options.txn_app_id!r}"
        elif options.write_id is not None:
            self._writer = _named("write", options.write_id, options)
            self._what = f"writeId {options.write_id!r}"
        else:
            self._writer = f"write:{uuid4()}"
            self._what = "this attempt"

    @plainly()
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Stage a partition."""
        return self._writing.stage(iterator, self._writer, self._batch)

    @plainly()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write the staged rows."""
        self._writing.write(_staged(messages), self._keep, self._what)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the staged rows."""
        self._writing.forget(self._writer, self._batch)


class StreamWriter(Travelling, DataSourceStreamArrowWriter):
    """A writer of each micro-batch of a query in one transaction, once."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ValueError(
                "output mode complete rewrites all rows with each batch, and a stream only grows: use "
                "outputMode('append'), with a watermark where rows are grouped"
            )
        if options.write_id is not None:
            raise ValueError("writeId is for single writes: a query has an id of its own, in its checkpoint")
        if options.txn_app_id is not None:
            raise ValueError(
                "txnAppId and txnVersion are for foreachBatch: a query has an id of its own, in its checkpoint"
            )
        self._writing = _Writing(options, schema)

    @plainly()
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Stage a partition of a micro-batch."""
        query, batch = cast(tuple[str, int], _micro_batch(cast(TaskContext, TaskContext.get())))
        return self._writing.stage(iterator, f"query:{query}", batch)

    @plainly()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Write the micro-batch."""
        self._writing.write(_staged(messages), None, f"micro-batch {batchId} of this query")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Delete the staged rows; only the messages that have arrived identify them."""
        for message in _staged(messages)[:1]:
            self._writing.forget(message.writer, message.batch)


def _named(kind: str, name: str, options: WriteOptions) -> str:
    """Return the writer of this name, which differs for each topic and queue."""
    return f"{kind}:{msgspec.json.encode([name, options.topic, options.queue]).decode()}"


def _micro_batch(context: TaskContext) -> tuple[str, int] | None:
    query, batch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
    return None if query is None or batch is None else (query, int(batch))


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]

"""The writer of rows to events and tasks, exactly once, with a quarantine for bad rows."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from time import monotonic, sleep
from typing import Any, cast
from urllib.parse import quote
from uuid import uuid4

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from ..archive.files import Location
from ..errors import ForeignTransaction, NotMigrated, Unavailable
from ..kit import backend_of
from ..operations.batches import DropStaged, MarkWritten, StageEvents, StageTasks, WriteBatch, skipped_in
from ..operations.claim import fresh_token
from .errors import Travelling, plainly
from .options import WriteOptions
from .rows import BadRow, Chunk, Shape

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


_log = logging.getLogger("eventkit.spark")

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
        """Stage the rows of a partition."""
        context = cast(TaskContext, TaskContext.get())
        attempt, part = fresh_token(), context.partitionId()
        held: list[StageEvents | StageTasks] = []
        bad: list[BadRow] = []
        size = number = position = chunks = 0
        connection: Any = None
        away = False
        try:
            for chunk in self._shape.chunks(batches, bad):
                if bad and self._options.quarantine is None:
                    break
                held.append(self._operation(chunk, writer, batch, attempt, part, position))
                size, number, position = size + chunk.size, number + len(chunk.rows), position + 1
                if size > _FEW and not away:
                    if connection is None:
                        connection = self._connected()
                        away = connection is None
                    if connection is not None:
                        for operation in held:
                            connection.execute(operation)
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
        written = self._persistently(
            WriteBatch(
                first.writer,
                first.batch,
                keep,
                attempts=[message.attempt for message in messages],
                chunks=sum(message.chunks for message in messages),
                late=[chunk for message in messages for chunk in message.late],
                queue=self._options.queue,
                number=sum(message.number for message in messages),
                deduplicated=self._shape.deduplicated,
            )
        )
        if not written:
            rows = sum(message.number for message in messages)
            _log.warning("%s was written to %s before: skipped %d rows", what, self._options.target, rows)
            if first.micro_batch is not None:
                query, batch = first.micro_batch
                with closing(self._connect()) as connection:
                    connection.execute(MarkWritten(skipped_in(query), batch + 1, _KEPT))

    def forget(self, writer: str, batch: int) -> None:
        """Delete the staged rows; housekeeping deletes them later if that fails now."""
        with suppress(Unavailable), closing(self._connect()) as connection:
            connection.execute(DropStaged(writer, batch))

    def _operation(
        self, chunk: Chunk, writer: str, batch: int, attempt: int, part: int, position: int
    ) -> StageEvents | StageTasks:
        if self._options.queue is None:
            return StageEvents(writer, batch, attempt, part, position, chunk.name, cast(Any, chunk.rows))
        return StageTasks(writer, batch, attempt, part, position, chunk.name, cast(Any, chunk.rows))

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

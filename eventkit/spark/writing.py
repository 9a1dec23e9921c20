"""Writing exactly once: tasks put their rows aside, and the driver moves them to where they belong, all at once.

A batch is known by who writes it and a number: the query and the micro-batch, which Spark keeps over restarts, or the
id of a single write.  The mark that it is written is committed with the rows, so whatever is tried again, by whatever
process and in whatever parts, comes once.  Few rows travel to the driver with the news that they are there; many wait
in the database.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any, cast
from uuid import uuid4

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from ..errors import ForeignTransaction, NotMigrated, Unavailable
from ..kit import backend_of
from ..operations.claim import fresh_token
from ..operations.staging import DropStaged, MarkWritten, StageEvents, StageTasks, WriteBatch, skipped_in
from .incoming import BadRow, Chunk, Shape
from .options import WriteOptions
from .quarantine import quarantine
from .refusals import Travelling, plainly

_log = logging.getLogger("eventkit.spark")

_FEW = 65_536
"""Bytes of a partition up to which its rows travel with the message to the driver."""

_PATIENCE = 30.0
"""Seconds for which a commit is tried again while the database is away."""

_KEPT = 30 * 86_400_000
"""Milliseconds for which a single write is remembered."""


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one attempt at a partition has to say: what waits in the database, and what does not."""

    writer: str
    batch: int
    attempt: int
    part: int
    number: int
    chunks: int
    late: list[StageEvents | StageTasks]
    bad: list[BadRow] = field(default_factory=list)
    micro_batch: tuple[str, int] | None = None
    """The query and the number of the micro-batch in which this is written, also by a function of foreachBatch."""


class _Writing:
    """What both writers do."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._shape = Shape(options, schema)

    def stage(self, batches: Iterator[Any], writer: str, batch: int) -> Staged:
        """Put the rows of a partition aside."""
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
        """Write a batch; if it has been written before, log a warning that names *what*, and count it."""
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
        """Clear what was put aside; what cannot be cleared now goes with time."""
        with suppress(Unavailable), closing(self._connect()) as connection:
            connection.execute(DropStaged(writer, batch))

    def _operation(
        self, chunk: Chunk, writer: str, batch: int, attempt: int, part: int, position: int
    ) -> StageEvents | StageTasks:
        if self._options.queue is None:
            return StageEvents(writer, batch, attempt, part, position, chunk.name, cast(Any, chunk.rows))
        return StageTasks(writer, batch, attempt, part, position, chunk.name, cast(Any, chunk.rows))

    def _refuse(self, bad: list[BadRow], part: int) -> None:
        """Raise for a bad row.  The driver does, because a task that fails is tried again, and logs pages of Java."""
        if bad and self._options.quarantine is None:
            number, reason, row = bad[0]
            shown = row if len(row) <= 200 else f"{row[:200]}…"
            raise ValueError(
                f"row {number} of partition {part} cannot be written, and so nothing is: {reason}; it is {shown}. "
                f"With option quarantine such rows go to a folder, and the others are written"
            )

    def _connected(self) -> Any:
        """A connection; None where this process cannot have one, and rows go by way of the driver."""
        try:
            return self._connect(create=False)
        except (NotMigrated, Unavailable, ForeignTransaction):
            return None

    def _connect(self, create: bool = True) -> Any:
        url = self._options.address.resolve()
        return backend_of(url).connect(url, create=create)

    def _persistently(self, operation: WriteBatch) -> bool:
        """Write a batch until it is known to be written; False if it had been before."""
        deadline, pause, interrupted = monotonic() + _PATIENCE, 0.05, False
        while True:
            try:
                with closing(self._connect()) as connection:
                    # An interrupted attempt may have committed, so a later one that finds the mark finds its own.
                    return connection.execute(operation) or interrupted
            except Unavailable:
                if monotonic() > deadline:
                    raise
                interrupted = True
                sleep(pause)
                pause = min(2 * pause, 2.0)


class BatchWriter(Travelling, DataSourceArrowWriter):
    """Writes a DataFrame in one transaction; a repeat with the same id, or a version that is not newer, is skipped."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ValueError(
                "mode overwrite would delete what others have still to read: write with mode('append'), and delete by "
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
        """Put a partition aside."""
        return self._writing.stage(iterator, self._writer, self._batch)

    @plainly()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write it all."""
        self._writing.write(_staged(messages), self._keep, self._what)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Clear what waits."""
        self._writing.forget(self._writer, self._batch)


class StreamWriter(Travelling, DataSourceStreamArrowWriter):
    """Writes each micro-batch of a query in one transaction, once."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ValueError(
                "output mode complete writes everything again with each batch, and a stream keeps what it has: use "
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
        """Put a partition of a micro-batch aside."""
        query, batch = cast(tuple[str, int], _micro_batch(cast(TaskContext, TaskContext.get())))
        return self._writing.stage(iterator, f"query:{query}", batch)

    @plainly()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Write the micro-batch."""
        self._writing.write(_staged(messages), None, f"micro-batch {batchId} of this query")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Clear what waits; whose it is, only those tell that have come so far."""
        for message in _staged(messages)[:1]:
            self._writing.forget(message.writer, message.batch)


def _named(kind: str, name: str, options: WriteOptions) -> str:
    """The writer of this name, which is another one for each topic and queue."""
    return f"{kind}:{msgspec.json.encode([name, options.topic, options.queue]).decode()}"


def _micro_batch(context: TaskContext) -> tuple[str, int] | None:
    query, batch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
    return None if query is None or batch is None else (query, int(batch))


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]

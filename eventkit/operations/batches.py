"""Operations on many rows: extracts, archives, staged rows, rollups."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from ..errors import EventkitError
from . import Operation, Plan, Rows, all_rows, column, first, flag, nothing
from .enqueue import TaskRow, check_batch, check_bound
from .stream import EventRow, SaveOffset


class Extent(NamedTuple):
    """The extent of a topic: events up to *pruned_to* are pruned, and events up to *head* have settled."""

    known: bool
    pruned_to: int
    head: int


class ReadIdentity(Operation[str], frozen=True):
    """Read the database's identity; a copy has that of its original, and a new database has its own."""

    writes: ClassVar[bool] = False
    decode = first


class ListTopics(Operation[list[str]], frozen=True):
    """List the names of all topics that have events, settings or consumers."""

    writes: ClassVar[bool] = False
    decode = column


class ReadExtent(Operation[Extent], frozen=True):
    """Read the extent of a topic, and whether the topic has ever been used."""

    writes: ClassVar[bool] = False
    topic: str

    def decode(self, rows: Rows) -> Extent:
        known, pruned_to, head = rows[0]
        return Extent(bool(known), pruned_to, head)


class FindEnd(Operation[tuple[int, int]], frozen=True):
    """Find the last of the *most* events of a topic after *after*, up to *last*, and their number."""

    writes: ClassVar[bool] = False
    topic: str
    after: int
    last: int
    most: int

    def decode(self, rows: Rows) -> tuple[int, int]:
        """Return the offset and the number; *last* if there are fewer."""
        offset, number = rows[0]
        return (self.last if number < self.most else offset), number


class Fetching(Operation[Rows], frozen=True):
    """A read whose caller wants columns, so that a backend may answer with columns instead of rows."""

    writes: ClassVar[bool] = False
    columns: ClassVar[tuple[str, ...]]
    decode = all_rows


class FetchEvents(Fetching, frozen=True):
    """Read the events after *after* up to *last*, in order, of some keys if any are given, and within a time span.

    Times are in milliseconds.
    """

    columns: ClassVar[tuple[str, ...]] = ("offset", "key", "payload", "headers", "created_at")
    topic: str
    after: int
    last: int
    keys: list[str]
    since: int | None
    before: int | None
    limit: int


class FetchStanding(Fetching, frozen=True):
    """Read the database's identity, and the offset up to which the topic is pruned."""

    columns: ClassVar[tuple[str, ...]] = ("identity", "pruned_to")
    topic: str


class ReadTaskNumbers(Operation[tuple[int, int]], frozen=True):
    """Read a number below those of all tasks, and the highest of them."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> tuple[int, int]:
        below, last = rows[0]
        return below, last


class FindTaskEnd(Operation[tuple[int, int]], frozen=True):
    """Find the last of the *most* tasks after a number, up to *last*, and their count."""

    writes: ClassVar[bool] = False
    after: int
    last: int
    most: int

    def decode(self, rows: Rows) -> tuple[int, int]:
        """Return number and count; *last* if there are fewer."""
        number, count = rows[0]
        return (self.last if count < self.most else number), count


class FetchTasks(Fetching, frozen=True):
    """Read the tasks after a number up to another, in their state by the clock, all or those in one state."""

    columns: ClassVar[tuple[str, ...]] = (
        "id",
        "queue",
        "state",
        "payload",
        "key",
        "headers",
        "priority",
        "attempt",
        "max_attempts",
        "run_at",
        "enqueued_at",
        "expires_at",
        "lease_expires_at",
        "worker",
        "claimed_at",
        "finished_at",
        "reason",
        "error",
        "result",
    )
    after: int
    last: int
    state: str | None
    limit: int


class FetchResults(Fetching, frozen=True):
    """Read the unexpired results after an id."""

    columns: ClassVar[tuple[str, ...]] = ("id", "value", "expires_at")
    after: str
    limit: int


class FetchSchedules(Fetching, frozen=True):
    """Read all schedules."""

    columns: ClassVar[tuple[str, ...]] = (
        "name",
        "when",
        "tz",
        "queue",
        "payload",
        "headers",
        "priority",
        "max_attempts",
        "catch_up",
        "paused",
        "next_at",
        "last_at",
        "fired",
        "skipped",
    )


class FetchConsumers(Fetching, frozen=True):
    """Read the consumers of all topics, with the number of events after each one's offset."""

    columns: ClassVar[tuple[str, ...]] = ("topic", "name", "offset", "lag", "updated_at")


def skipped_in(query: str) -> str:
    """Return the writer whose mark is above the last micro-batch of Spark's *query* that skipped a write."""
    return f"skipped:{query}"


class StageEvents(Operation[None], frozen=True):
    """Stage events for a topic; those of a batch are published in the order of parts and positions."""

    writer: str
    batch: int
    attempt: int
    part: int
    position: int
    topic: str
    events: list[EventRow]
    decode = nothing


class StageTasks(Operation[None], frozen=True):
    """Stage tasks for a queue."""

    writer: str
    batch: int
    attempt: int
    part: int
    position: int
    queue: str
    tasks: list[TaskRow]
    decode = nothing


class DropStaged(Operation[None], frozen=True):
    """Delete the writer's staged rows for batches up to this one."""

    writer: str
    batch: int
    decode = nothing


class WriteBatch(Operation[bool], frozen=True):
    """Write the batch with its mark, whole or not at all; return False if it was written before.

    Its rows are the *chunks* that the attempts have staged, and the *late* ones, which are not staged.  They are tasks
    of *queue*, or, if that is None, events, some of them *deduplicated*.  The mark is kept for *keep* milliseconds, or
    for ever.
    """

    writer: str
    batch: int
    keep: int | None
    attempts: list[int]
    chunks: int
    late: list[StageEvents | StageTasks]
    queue: str | None
    number: int
    deduplicated: bool

    def plan(self) -> Plan[bool]:
        """Write the mark first: of two writers of the same batch, one waits for the other."""
        if not (yield MarkWritten(self.writer, self.batch, self.keep)):
            yield DropStaged(self.writer, self.batch)
            return False
        for chunk in self.late:
            yield from chunk.plan()
        yield from self._check_chunks()
        if self.queue is not None:
            bounded = yield from check_batch(self.queue, self.number)
            yield EnqueueStaged(self.writer, self.batch, self.attempts, self.queue)
            if bounded:
                yield from check_bound(self.queue)
        elif self.deduplicated:
            yield PublishStagedOnce(self.writer, self.batch, self.attempts)
        else:
            yield PublishStaged(self.writer, self.batch, self.attempts)
        yield DropStaged(self.writer, self.batch)
        return True

    def _check_chunks(self) -> Plan[None]:
        expected = self.chunks + len(self.late)
        found = len((yield LockStaged(self.writer, self.batch, self.attempts)))
        if found != expected:
            raise EventkitError(
                f"batch {self.batch} of {self.writer} has {found} of its {expected} chunks: write it again, "
                f"and check that all its writers use the same database, and that the database did not crash meanwhile"
            )


class MarkWritten(Operation[bool], frozen=True):
    """Record that the writer has reached this batch; False, and no row, if it was already there or beyond."""

    writer: str
    batch: int
    keep: int | None
    decode = flag


class MoveMark(Operation[bool], frozen=True):
    """Move the writer's mark from *after* to *to*; return False if the mark is elsewhere by now."""

    writer: str
    after: int
    to: int
    decode = flag


class WriteOnward(Operation[bool], frozen=True):
    """Move the writer's mark from *after* to *to*, and execute *what* with it; False if the mark is elsewhere."""

    writer: str
    after: int
    to: int
    what: Operation[Any]

    def plan(self) -> Plan[bool]:
        """Move the mark first: of two writers at the same mark, one waits for the other."""
        if not (yield MoveMark(self.writer, self.after, self.to)):
            return False
        yield from self.what.plan()
        return True


class ReadMark(Operation[int], frozen=True):
    """Read the writer's mark; 0 if there is none."""

    writes: ClassVar[bool] = False
    writer: str

    def decode(self, rows: Rows) -> int:
        return rows[0][0] if rows else 0


class LockStaged(Operation[None], frozen=True):
    """Lock the staged chunks of the batch until the transaction ends; one row for each."""

    writes: ClassVar[bool] = False
    writer: str
    batch: int
    attempts: list[int]


class PublishStaged(Operation[None], frozen=True):
    """Append the staged events, none of them with a dedup id."""

    writer: str
    batch: int
    attempts: list[int]


class PublishStagedOnce(Operation[None], frozen=True):
    """Append the staged events, except those whose dedup id the topic has."""

    writer: str
    batch: int
    attempts: list[int]


class EnqueueStaged(Operation[None], frozen=True):
    """Add the staged tasks, except those whose key is taken."""

    writer: str
    batch: int
    attempts: list[int]
    queue: str


CONSUMER = "rollup"
"""The consumer of a topic that shows how far its events are summed up."""


class Sum(NamedTuple):
    """An amount that was measured in an hour, which begins so many milliseconds after 1970."""

    subject: str
    name: str
    hour: int
    measure: str
    amount: int


class AddSums(Operation[bool], frozen=True):
    """Add the sums of a topic's events after *after* up to *last*; return False if another process has done so."""

    topic: str
    after: int
    last: int
    sums: list[Sum]

    def plan(self) -> Plan[bool]:
        """Move the mark first: of two processes that add the same range, one waits for the other."""
        if not (yield MoveMark(f"rollup:{self.topic}", self.after, self.last)):
            return False
        if self.sums:
            yield AddAmounts(self.sums)
        yield SaveOffset(self.topic, CONSUMER, self.last)
        return True


class AddAmounts(Operation[None], frozen=True):
    """Add amounts to the stored sums."""

    sums: list[Sum]


class ReadSums(Operation[list[Sum]], frozen=True):
    """Read the sums of hours from one up to another, exclusive."""

    writes: ClassVar[bool] = False
    since: int
    before: int

    def decode(self, rows: Rows) -> list[Sum]:
        return [Sum(*row) for row in rows]

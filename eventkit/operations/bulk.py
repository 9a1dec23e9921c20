"""Operations that write many rows: rows of a session, batches of Spark, sums, and the files of archives."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import EventkitError
from . import Operation, Plan, Read, Rows, column, each, flag, nothing, one, step
from .channel import Notify
from .enqueue import PLAIN, Enqueue, EnqueueMany, EnqueuePlain, TaskRow, check_batch, check_bound
from .position import Position, VerifyPosition
from .stream import EventRow, Publish, PublishPlain, SaveOffset, drop_events

CollectedEvent = tuple[str, str, str | None, str | None, str | None]
"""``topic``, followed by an `EventRow`."""

CollectedTask = tuple[
    str, str, str | None, int, int | None, str | None, int | None, int | None, int | None, int | None, str | None
]
"""``queue``, followed by a `TaskRow`."""

CollectedNotification = tuple[str, str, str | None]
"""``channel, payload, headers``."""


class PublishAll(Operation[None], frozen=True):
    """Append events to their topics, in this order."""

    events: list[CollectedEvent]
    decode = nothing


class EnqueueAll(Operation[None], frozen=True):
    """Add tasks to their queues, in this order."""

    tasks: list[CollectedTask]

    def plan(self) -> Plan[None]:
        """Run one statement, which adds nothing if a queue has limits for producers; then add them queue by queue."""
        if (yield self):
            return
        queues: dict[str, list[TaskRow]] = {}
        for queue, *task in self.tasks:
            queues.setdefault(queue, []).append(tuple(task))  # type: ignore[arg-type]  # a star loses the types
        for queue, tasks in queues.items():
            yield from EnqueueMany(queue, tasks).plan()


class NotifyAll(Operation[None], frozen=True):
    """Send notifications to their channels, in this order."""

    notifications: list[CollectedNotification]
    decode = nothing


def publish(events: list[CollectedEvent]) -> Operation[Any]:
    """Return the cheapest operation that writes *events*."""
    if len(events) == 1:
        [(topic, payload, key, headers, dedup)] = events
        if dedup is None:
            return Publish(topic, key, payload, headers)
    topics, payloads, *columns = zip(*events, strict=True)
    if _same(topics, topics[0]) and all(_same(column, None) for column in columns):
        return PublishPlain(topics[0], list(payloads))
    return PublishAll(events)


def enqueue(tasks: list[CollectedTask]) -> Operation[Any]:
    """Return the cheapest operation that writes *tasks*."""
    if len(tasks) == 1:
        [(queue, payload, headers, priority, max_attempts, *others)] = tasks
        if not any(other is not None for other in others):
            return Enqueue(queue, payload, headers, priority, max_attempts)
    queues, payloads, *columns = zip(*tasks, strict=True)
    if _same(queues, queues[0]) and all(map(_same, columns, PLAIN)):
        return EnqueuePlain(queues[0], list(payloads))
    return EnqueueAll(tasks)


def notify(notifications: list[CollectedNotification]) -> Operation[Any]:
    """Return the cheapest operation that writes *notifications*."""
    if len(notifications) == 1:
        return Notify(*notifications[0])
    return NotifyAll(notifications)


def _same(column: tuple[Any, ...], value: Any) -> bool:
    return column.count(value) == len(column)


class AckThen(Operation[bool], frozen=True):
    """Finish a task by *ack* and enqueue *tasks* in any queues, or do nothing if the lease was lost."""

    ack: Operation[bool]
    tasks: list[CollectedTask]

    def plan(self) -> Plan[bool]:
        """Ack first: no other worker can finish the row from then on, and it makes room for the others."""
        if not (yield from self.ack.plan()):
            return False
        yield from enqueue(self.tasks).plan()
        return True


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
            yield step("EnqueueStaged", writer=self.writer, batch=self.batch, attempts=self.attempts, queue=self.queue)
            if bounded:
                yield from check_bound(self.queue, self.number)
        elif self.deduplicated:
            yield step("PublishStagedOnce", writer=self.writer, batch=self.batch, attempts=self.attempts)
        else:
            yield step("PublishStaged", writer=self.writer, batch=self.batch, attempts=self.attempts)
        yield DropStaged(self.writer, self.batch)
        return True

    def _check_chunks(self) -> Plan[None]:
        expected = self.chunks + len(self.late)
        found = len((yield step("LockStaged", writer=self.writer, batch=self.batch, attempts=self.attempts)))
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


class ReadMark(Read[int], frozen=True):
    """Read the writer's mark; 0 if there is none."""

    writer: str
    decode = one(lambda mark=0: mark)


ROLLUP_CONSUMER = "rollup"
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
            yield step("AddAmounts", sums=self.sums)
        yield SaveOffset(self.topic, ROLLUP_CONSUMER, self.last)
        return True


class ReadSums(Read[list[Sum]], frozen=True):
    """Read the sums of hours from one up to another, exclusive."""

    since: int
    before: int
    decode = each(Sum)


ARCHIVE_CONSUMER = "archive"
"""The consumer of a topic that shows how much is archived; `keep_unconsumed` keeps the events after it."""


class ArchiveFile(NamedTuple):
    """A file of an archive: its path relative to the archive's folder, and its contents."""

    path: str
    date: str
    first: int
    last: int
    rows: int
    bytes: int
    oldest: int
    newest: int


class Archive(NamedTuple):
    """The archive of a topic: its *files*, in order, have every event up to the offset *covered* once.

    Events that were pruned before the topic was first archived are missing.
    """

    location: str
    format: str
    covered: int
    files: list[ArchiveFile]


class ArchiveStats(NamedTuple):
    """The numbers of a topic's archive."""

    topic: str
    location: str
    format: str
    covered: int
    files: int
    rows: int
    bytes: int
    updated_ms: int


class OpenArchive(Operation[tuple[int, int]], frozen=True):
    """Begin a lease for writing to a topic's archive; create it if there is none.

    Files of Parquet may become another *format*; None keeps the format.
    """

    topic: str
    location: str
    format: str | None

    def plan(self) -> Plan[tuple[int, int]]:
        """Return the next epoch and the covered offset; raise an error for another location or format."""
        if rows := (yield self):
            return rows[0][0], rows[0][1]
        [(location, format, *_), *_] = yield ReadArchive(self.topic)
        if location != self.location:
            raise EventkitError(f"the archive {self.topic!r} is in {location}, not in {self.location}: pass that one")
        raise EventkitError(f"the archive of stream {self.topic!r} has format {format}, not {self.format}: pass that")


class AdoptArchive(Operation[None], frozen=True):
    """Make the next lease of a topic's archive later than *epoch*."""

    topic: str
    epoch: int
    decode = nothing


class ReadArchive(Read[Archive | None], frozen=True):
    """Read the files of a topic's archive and the offset that they cover; None if there is no archive."""

    topic: str

    def decode(self, rows: Rows) -> Archive | None:
        """Return the archive: one row for each file, or one row without a file."""
        if not rows:
            return None
        location, format, covered, *_ = rows[0]
        return Archive(location, format, covered, [ArchiveFile(*row[3:]) for row in rows if row[3] is not None])


class ListArchives(Read[list[ArchiveStats]], frozen=True):
    """Read the numbers of all archives."""

    decode = each(ArchiveStats)


class ExtendArchive(Operation[bool], frozen=True):
    """Add the files that have everything after *after* up to *last*; return False if another writer has the lease.

    The database must still have the events that were *read* for them.
    """

    topic: str
    epoch: int
    after: int
    last: int
    files: list[ArchiveFile]
    read: Position

    def plan(self) -> Plan[bool]:
        """Write the offset first: of two writers of the same range, one waits for the other."""
        covered = yield step("CoverArchive", topic=self.topic, epoch=self.epoch, after=self.after, last=self.last)
        if not covered:
            return False
        if not (yield from VerifyPosition(self.topic, self.read).plan()):
            raise self.read.lost(self.topic, "archive it again")
        if self.files:
            yield step("AddFiles", topic=self.topic, files=self.files)
        yield SaveOffset(self.topic, ARCHIVE_CONSUMER, self.last)
        return True


class SwapFiles(Operation[bool], frozen=True):
    """Replace the files *old* by the files *new*, which hold the same events; False if another writer has the lease."""

    topic: str
    epoch: int
    old: list[str]
    new: list[ArchiveFile]

    def plan(self) -> Plan[bool]:
        """Replace all of the old files, or none."""
        if not (yield step("HoldArchive", topic=self.topic, epoch=self.epoch)):
            return False
        retired = yield step("RetireFiles", topic=self.topic, paths=self.old)
        if len(retired) != len(self.old):
            raise EventkitError(
                f"{len(self.old) - len(retired)} of the files to be replaced were retired meanwhile: compact again"
            )
        yield step("AddFiles", topic=self.topic, files=self.new)
        return True


class FindRetired(Read[list[str]], frozen=True):
    """Find the files that were retired so many milliseconds ago."""

    topic: str
    grace: int
    decode = column


class ListPaths(Read[list[str]], frozen=True):
    """List the files in the manifest, retired ones too."""

    topic: str
    decode = column


class ForgetFiles(Operation[None], frozen=True):
    """Delete retired files that no longer exist from the manifest."""

    topic: str
    paths: list[str]
    decode = nothing


class PruneArchived(Operation[int], frozen=True):
    """Delete the oldest archived events, at most *limit*; return their number."""

    topic: str
    location: str
    older_than: int | None
    keep_unconsumed: bool
    limit: int

    def plan(self) -> Plan[int]:
        """Read the offset that the manifest allows, and delete up to it."""
        [(last,)] = yield self
        return (yield from drop_events(self.topic, last))

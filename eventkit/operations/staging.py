"""What is asked of a database to write rows that come from many processes, all at once and once only.

Whoever writes puts rows aside, in chunks, under a number of their own (an *attempt*), as many processes as like.  One
process then moves what belongs to the *batch*, in one transaction with a mark that the *writer* has got so far.
A batch that has a mark is not moved again, so it may be tried as often as need be, with other attempts and in other
parts; what was put aside in vain goes with the batch, or with time.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ..errors import EventkitError
from . import Operation, Plan, Rows
from .enqueue import TaskRow, check_batch, check_bound
from .stream import EventRow


def skipped_in(query: str) -> str:
    """The writer whose mark lies above the last micro-batch of Spark's *query* in which a write was skipped."""
    return f"skipped:{query}"


class StageEvents(Operation[None], frozen=True):
    """Put events for a topic aside; those of a batch are published in the order of parts and positions."""

    writer: str
    batch: int
    attempt: int
    part: int
    position: int
    topic: str
    events: list[EventRow]

    def decode(self, rows: Rows) -> None:
        """Nothing to say."""


class StageTasks(Operation[None], frozen=True):
    """Put tasks for a queue aside."""

    writer: str
    batch: int
    attempt: int
    part: int
    position: int
    queue: str
    tasks: list[TaskRow]

    def decode(self, rows: Rows) -> None:
        """Nothing to say."""


class DropStaged(Operation[None], frozen=True):
    """Forget what the writer has put aside for batches up to this one."""

    writer: str
    batch: int

    def decode(self, rows: Rows) -> None:
        """Nothing to say."""


class WriteBatch(Operation[bool], frozen=True):
    """Write the batch, with its mark, whole or not at all; False if it has been written before.

    Its rows are the *chunks* that the attempts have put aside, and the *late* ones, which nobody has put aside yet.
    Those are tasks of *queue*, or, where that is None, events, of which some are *deduplicated*.
    The mark is kept for *keep* milliseconds, or for ever.
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
        """The mark comes first, so that of two who write the same batch one waits for the other."""
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
                f"of the {expected} chunks of batch {self.batch} of {self.writer} {found} are there: write it again, "
                f"and see that all who write it have the same database, which has not crashed meanwhile"
            )


class MarkWritten(Operation[bool], frozen=True):
    """Record that the writer has reached this batch; False, and no row, if it has been there, or beyond."""

    writer: str
    batch: int
    keep: int | None

    def decode(self, rows: Rows) -> bool:
        """Whether the mark is new."""
        return bool(rows)


class MoveMark(Operation[bool], frozen=True):
    """Have the writer, who was at *after*, be at *to*; False if the writer is elsewhere by now."""

    writer: str
    after: int
    to: int

    def decode(self, rows: Rows) -> bool:
        """Whether it moved."""
        return bool(rows)


class WriteOnward(Operation[bool], frozen=True):
    """Have the writer, who was at *after*, be at *to*, and do *what* belongs to that; False if they are elsewhere."""

    writer: str
    after: int
    to: int
    what: Operation[Any]

    def plan(self) -> Plan[bool]:
        """The mark comes first, so that of two who write the same one waits for the other."""
        if not (yield MoveMark(self.writer, self.after, self.to)):
            return False
        yield from self.what.plan()
        return True


class ReadMark(Operation[int], frozen=True):
    """Where the writer is; 0 if there is none."""

    writes: ClassVar[bool] = False
    writer: str

    def decode(self, rows: Rows) -> int:
        """The one row, if there is one."""
        return rows[0][0] if rows else 0


class LockStaged(Operation[None], frozen=True):
    """A row for each chunk that the attempts have put aside for the batch, which stays until the transaction ends."""

    writes: ClassVar[bool] = False
    writer: str
    batch: int
    attempts: list[int]


class PublishStaged(Operation[None], frozen=True):
    """Append the events that the attempts have put aside, none of which has a dedup id."""

    writer: str
    batch: int
    attempts: list[int]


class PublishStagedOnce(Operation[None], frozen=True):
    """Append the events that the attempts have put aside, but those whose dedup id the topic has."""

    writer: str
    batch: int
    attempts: list[int]


class EnqueueStaged(Operation[None], frozen=True):
    """Add the tasks that the attempts have put aside, but those whose key is taken."""

    writer: str
    batch: int
    attempts: list[int]
    queue: str

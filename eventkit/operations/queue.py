"""What is asked of a database about a queue as a whole: looking into it, and clearing it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

import msgspec

from ..arguments import as_datetime
from ..codec import Codec, as_text, encode_json
from ..findings import DeadLetters
from ..records import TaskInfo
from ..stats import QueueStats
from . import Operation, Plan, Rows
from .channel import Notify
from .claim import Sweep
from .finish import ForgetKeys, Remove, Revoke, unblock
from .history import Abandon, HoldHistory, settle

CANCELLED = "eventkit:cancelled"
"""The channel on which workers hear that a task of theirs was cancelled."""

MOST_COUNTED = 10_000
"""How far `ReadStats` counts."""


def task_info(row: tuple[Any, ...], codec: Codec) -> TaskInfo[Any]:
    """The task of a row that has what `TaskInfo` has."""
    columns = list(row)
    columns[3], columns[5] = codec.decode_or_wrap(row[3], row[5])
    columns[4] = row[4] and as_text(row[4])
    columns[-1] = row[-1] and msgspec.json.decode(row[-1])
    return TaskInfo(*columns)


class GetTask(Operation[TaskInfo[Any] | None], frozen=True):
    """One task of the queue, in whatever state."""

    writes: ClassVar[bool] = False
    queue: str
    id: int
    codec: Codec

    def decode(self, rows: Rows) -> TaskInfo[Any] | None:
        """The task, or None."""
        return task_info(rows[0], self.codec) if rows else None


class _ManyTasks(Operation[list[TaskInfo[Any]]], frozen=True):
    writes: ClassVar[bool] = False
    queue: str
    limit: int
    codec: Codec

    def decode(self, rows: Rows) -> list[TaskInfo[Any]]:
        """One task a row."""
        return [task_info(row, self.codec) for row in rows]


class ListTasks(_ManyTasks, frozen=True):
    """The queue's tasks by id, those in one state if it is given, after an id."""

    state: str | None
    after: int


class PeekTasks(_ManyTasks, frozen=True):
    """The tasks a claim would hand out, best first."""


class ListDead(_ManyTasks, frozen=True):
    """The queue's dead letters, newest first."""

    writes: ClassVar[bool] = True

    def plan(self) -> Plan[list[TaskInfo[Any]]]:
        """A sweep, which buries what has expired by now, and a look."""
        yield from Sweep(self.queue).plan()
        return self.decode((yield self))


class FindQueues(Operation[dict[int, str]], frozen=True):
    """The queues of tasks, by their ids; of tasks that are there, in whatever state."""

    writes: ClassVar[bool] = False
    ids: list[int]

    def decode(self, rows: Rows) -> dict[int, str]:
        """One a row."""
        return dict(rows)


class ReadStats(Operation[QueueStats], frozen=True):
    """The queue in numbers, each counted up to `MOST_COUNTED`."""

    writes: ClassVar[bool] = False
    queue: str
    limit: int = MOST_COUNTED + 1

    def decode(self, rows: Rows) -> QueueStats:
        """The numbers of the one row."""
        *counts, age, paused = rows[0]
        return queue_stats(counts, age, paused)


def queue_stats(counts: list[int], age: int | None, paused: int | bool) -> QueueStats:
    """The numbers: what is due but not moved yet has been counted apart, and is put where it belongs."""
    scheduled, ready, leased, dead, done, _, due_ready, was_ready, due_dead = counts
    numbers = [scheduled, max(0, ready + due_ready - was_ready), leased, dead + due_dead, done]
    approximate = max(*counts, *numbers) > MOST_COUNTED
    scheduled, ready, leased, dead, done = (min(number, MOST_COUNTED) for number in numbers)
    seconds = None if age is None else max(0, age) / 1000
    return QueueStats(scheduled, ready, leased, dead, done, seconds, bool(paused), approximate)


class ReadSize(Operation[int], frozen=True):
    """How many tasks are scheduled, ready or leased."""

    writes: ClassVar[bool] = False
    queue: str

    def decode(self, rows: Rows) -> int:
        """The number."""
        size: int = rows[0][0]
        return size


class ReadNextDue(Operation[datetime | None], frozen=True):
    """When the queue's next task is due: past or present if one is ready."""

    writes: ClassVar[bool] = False
    queue: str

    def decode(self, rows: Rows) -> datetime | None:
        """The moment; None for a queue in which nothing waits."""
        return None if rows[0][0] is None else as_datetime(rows[0][0])


class Cancel(Operation[bool], frozen=True):
    """Delete a task that waits, or with *running* one that is leased, whose worker is told; its key stays reserved."""

    writes: ClassVar[bool] = True
    queue: str
    id: int
    running: bool

    def plan(self) -> Plan[bool]:
        """A look whether it may go, then its removal, and word of it to whoever runs it."""
        for lane, leased in (yield self):
            yield Revoke(self.id)
            yield from Remove([self.id]).plan()
            yield from unblock(self.queue, [lane])
            if leased:
                yield Notify(CANCELLED, encode_json({"queue": self.queue, "id": self.id}), None)
            return True
        return False


class Purge(Operation[int], frozen=True):
    """Delete the queue's tasks in one state, those that finished long enough ago if that is said; how many."""

    queue: str
    state: str
    older_than: int | None

    def plan(self) -> Plan[int]:
        """A sweep, so that the states are those of this moment; the reservation of their keys; the deletion."""
        yield from Sweep(self.queue).plan()
        if self.state == "leased":
            yield Abandon(self.queue)
        yield ReserveKeysOfState(self.queue, self.state, self.older_than)
        rows = yield self
        yield ForgetKeys(2 * len(rows))
        yield from unblock(self.queue, [row[0] for row in rows])
        return len(rows)


class ReserveKeysOfState(Operation[None], frozen=True):
    """Keep the keys of what `Purge` is about to delete."""

    queue: str
    state: str
    older_than: int | None


class Requeue(Operation[int], frozen=True):
    """Give dead tasks, all or these, a new life: ready, with no attempt made."""

    queue: str
    every: bool
    ids: list[int]

    def plan(self) -> Plan[int]:
        """A sweep, which buries what has expired by now, and the new life."""
        yield from Sweep(self.queue).plan()
        return len((yield self))


class Drop(Operation[bool], frozen=True):
    """Forget the queue, its settings, its keys and, with *force*, all tasks that are left in it."""

    queue: str
    force: bool

    def plan(self) -> Plan[bool]:
        """A look for tasks, unless they do not matter; then everything, the keys after the tasks that have them."""
        if not self.force and (yield FindTasks(self.queue)):
            return False
        held = yield HoldHistory(self.queue, False)
        yield Abandon(self.queue)
        yield DropTasks(self.queue)
        yield DropKeysOfQueue(self.queue)
        yield DropSettings(self.queue)
        yield from settle(held)
        return True


class FindTasks(Operation[None], frozen=True):
    """A row if the queue has a task that is not done."""

    writes: ClassVar[bool] = False
    queue: str


class DropTasks(Operation[None], frozen=True):
    """Delete the queue's tasks, in whatever state."""

    queue: str


class DropKeysOfQueue(Operation[None], frozen=True):
    """Delete the queue's reservations of keys."""

    queue: str


class DropSettings(Operation[None], frozen=True):
    """Delete the queue's settings."""

    queue: str


class ListDeadByError(Operation[list[DeadLetters]], frozen=True):
    """How many dead tasks of the queue there are of each reason and error, most first."""

    queue: str
    limit: int

    def decode(self, rows: Rows) -> list[DeadLetters]:
        """One group a row."""
        return [DeadLetters(*row) for row in rows]

    def plan(self) -> Plan[list[DeadLetters]]:
        """A sweep, which buries what has expired by now, and a look."""
        yield from Sweep(self.queue).plan()
        return self.decode((yield self))

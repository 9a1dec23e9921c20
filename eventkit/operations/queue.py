"""Operations on tasks: history, preview, cancel, requeue, purge."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

import msgspec

from ..checks import as_datetime
from ..codec import Codec, as_text, encode_json
from ..errors import Unavailable
from ..values import DeadLetters, QueueStats, TaskInfo
from . import Operation, Plan, Rows, first
from .channel import Notify
from .claim import Sweep
from .finish import ForgetKeys, Remove, Revoke, unblock


class HoldHistory(Operation[None], frozen=True):
    """Lock the choice of queues that keep a history until the transaction ends.

    The row says whether triggers are *needed* once *queue* has its new setting; whether they *are* there; and, if a
    role without the privilege would have to change them, the remedy.
    """

    queue: str
    history: bool


class Abandon(Operation[None], frozen=True):
    """Record the deletion of the queue's claimed tasks as a cancellation until the transaction ends."""

    queue: str


class RecordEnqueued(Operation[None], frozen=True):
    """Record each new task."""


class RecordMoved(Operation[None], frozen=True):
    """Record each task that changes its state."""


class RecordGone(Operation[None], frozen=True):
    """Record each task that is deleted, finished or not."""


class ForgetEnqueued(Operation[None], frozen=True):
    """Undo `RecordEnqueued`."""


class ForgetMoved(Operation[None], frozen=True):
    """Undo `RecordMoved`."""


class ForgetGone(Operation[None], frozen=True):
    """Undo `RecordGone`."""


class SettleHistory(Operation[None], frozen=True):
    """Create or drop the triggers for *queue* to keep a history, or to stop doing so."""

    queue: str
    history: bool

    def plan(self) -> Plan[None]:
        yield from settle((yield HoldHistory(self.queue, self.history)))


class StopHistory(Operation[None], frozen=True):
    """Record nothing, regardless of the queues' settings, until `KeepHistory`."""

    def plan(self) -> Plan[None]:
        for _, there, obstacle in (yield HoldHistory("", False)):
            yield from settle([(False, there, obstacle)])


class KeepHistory(Operation[None], frozen=True):
    """Record again what queues are configured to."""

    def plan(self) -> Plan[None]:
        yield from settle((yield HoldHistory("", False)))


def settle(held: Rows) -> Plan[None]:
    """Create or drop the triggers, as `HoldHistory` has found; a missing privilege prevents only their creation."""
    [(needed, there, obstacle)] = held
    if needed and not there:
        if obstacle is not None:
            raise Unavailable(obstacle)
        yield RecordEnqueued()
        yield RecordMoved()
        yield RecordGone()
    if there and not needed and obstacle is None:
        yield ForgetEnqueued()
        yield ForgetMoved()
        yield ForgetGone()


CANCELLED = "eventkit:cancelled"
"""The channel of notifications that a leased task was cancelled."""

MOST_COUNTED = 10_000
"""The maximum number that `ReadStats` counts."""


def task_info(row: tuple[Any, ...], codec: Codec) -> TaskInfo[Any]:
    """Return the task of a row that has the fields of `TaskInfo`."""
    columns = list(row)
    columns[3], columns[5] = codec.decode_or_wrap(row[3], row[5])
    columns[4] = row[4] and as_text(row[4])
    columns[-1] = row[-1] and msgspec.json.decode(row[-1])
    return TaskInfo(*columns)


class GetTask(Operation[TaskInfo[Any] | None], frozen=True):
    """Read one task of the queue, in any state."""

    writes: ClassVar[bool] = False
    queue: str
    id: int
    codec: Codec

    def decode(self, rows: Rows) -> TaskInfo[Any] | None:
        return task_info(rows[0], self.codec) if rows else None


class _ManyTasks(Operation[list[TaskInfo[Any]]], frozen=True):
    writes: ClassVar[bool] = False
    queue: str
    limit: int
    codec: Codec

    def decode(self, rows: Rows) -> list[TaskInfo[Any]]:
        return [task_info(row, self.codec) for row in rows]


class ListTasks(_ManyTasks, frozen=True):
    """Read the queue's tasks by id, all or those in one state, after an id."""

    state: str | None
    after: int


class PeekTasks(_ManyTasks, frozen=True):
    """Read the tasks that a claim would return, in its order."""


class ListDead(_ManyTasks, frozen=True):
    """Read the queue's dead letters, newest first."""

    writes: ClassVar[bool] = True

    def plan(self) -> Plan[list[TaskInfo[Any]]]:
        """Sweep, which marks expired tasks dead, and read."""
        yield from Sweep(self.queue).plan()
        return self.decode((yield self))


class FindQueues(Operation[dict[int, str]], frozen=True):
    """Find the queues of tasks by their ids, for existing tasks in any state."""

    writes: ClassVar[bool] = False
    ids: list[int]

    def decode(self, rows: Rows) -> dict[int, str]:
        return dict(rows)


class ReadStats(Operation[QueueStats], frozen=True):
    """Read the queue's numbers, each counted up to `MOST_COUNTED`."""

    writes: ClassVar[bool] = False
    queue: str
    limit: int = MOST_COUNTED + 1

    def decode(self, rows: Rows) -> QueueStats:
        *counts, age, paused = rows[0]
        return queue_stats(counts, age, paused)


def queue_stats(counts: list[int], age: int | None, paused: int | bool) -> QueueStats:
    """Return the numbers; due tasks that were not moved yet are counted apart, and are added here to their states."""
    scheduled, ready, leased, dead, done, _, due_ready, was_ready, due_dead = counts
    numbers = [scheduled, max(0, ready + due_ready - was_ready), leased, dead + due_dead, done]
    approximate = max(*counts, *numbers) > MOST_COUNTED
    scheduled, ready, leased, dead, done = (min(number, MOST_COUNTED) for number in numbers)
    seconds = None if age is None else max(0, age) / 1000
    return QueueStats(scheduled, ready, leased, dead, done, seconds, bool(paused), approximate)


class ReadSize(Operation[int], frozen=True):
    """Read the number of scheduled, ready and leased tasks."""

    writes: ClassVar[bool] = False
    queue: str
    decode = first


class ReadNextDue(Operation[datetime | None], frozen=True):
    """Read when the queue's next task is due: past or present if one is ready."""

    writes: ClassVar[bool] = False
    queue: str

    def decode(self, rows: Rows) -> datetime | None:
        """Return the time; None if no task waits."""
        return None if rows[0][0] is None else as_datetime(rows[0][0])


class Cancel(Operation[bool], frozen=True):
    """Delete a waiting task, or with *running* a leased one, and notify its worker; the key stays reserved."""

    writes: ClassVar[bool] = True
    queue: str
    id: int
    running: bool

    def plan(self) -> Plan[bool]:
        """Lock the task, delete it, and notify its worker."""
        for lane, leased in (yield self):
            yield Revoke(self.id)
            yield from Remove([self.id]).plan()
            yield from unblock(self.queue, [lane])
            if leased:
                yield Notify(CANCELLED, encode_json({"queue": self.queue, "id": self.id}), None)
            return True
        return False


class Purge(Operation[int], frozen=True):
    """Delete the queue's tasks in one state, only those that finished long enough ago if a time is given."""

    queue: str
    state: str
    older_than: int | None

    def plan(self) -> Plan[int]:
        """Sweep, so that the states are current; reserve the keys; delete."""
        yield from Sweep(self.queue).plan()
        if self.state == "leased":
            yield Abandon(self.queue)
        yield ReserveKeysOfState(self.queue, self.state, self.older_than)
        rows = yield self
        yield ForgetKeys(2 * len(rows))
        yield from unblock(self.queue, [row[0] for row in rows])
        return len(rows)


class ReserveKeysOfState(Operation[None], frozen=True):
    """Reserve the keys of the tasks that `Purge` is about to delete."""

    queue: str
    state: str
    older_than: int | None


class Requeue(Operation[int], frozen=True):
    """Make dead tasks, all or these, ready again with their attempts reset."""

    queue: str
    every: bool
    ids: list[int]

    def plan(self) -> Plan[int]:
        """Sweep, which marks expired tasks dead, and requeue."""
        yield from Sweep(self.queue).plan()
        return len((yield self))


class Drop(Operation[bool], frozen=True):
    """Delete the queue, its settings, its keys and, with *force*, all tasks left in it."""

    queue: str
    force: bool

    def plan(self) -> Plan[bool]:
        """Find tasks unless *force*; then delete everything, the keys after the tasks that have them."""
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
    """Return a row if the queue has a task that is not done."""

    writes: ClassVar[bool] = False
    queue: str


class DropTasks(Operation[None], frozen=True):
    """Delete the queue's tasks, in any state."""

    queue: str


class DropKeysOfQueue(Operation[None], frozen=True):
    """Delete the queue's reservations of keys."""

    queue: str


class DropSettings(Operation[None], frozen=True):
    """Delete the queue's settings."""

    queue: str


class ListDeadByError(Operation[list[DeadLetters]], frozen=True):
    """Count the queue's dead tasks by reason and error, highest first."""

    queue: str
    limit: int

    def decode(self, rows: Rows) -> list[DeadLetters]:
        return [DeadLetters(*row) for row in rows]

    def plan(self) -> Plan[list[DeadLetters]]:
        """Sweep, which marks expired tasks dead, and count."""
        yield from Sweep(self.queue).plan()
        return self.decode((yield self))

"""Operations that put tasks into a queue."""

from __future__ import annotations

from itertools import chain, repeat
from typing import ClassVar

from ..errors import QueueFull
from ..values import Enqueued
from . import Operation, Plan, Probe, Rows, step

TaskRow = tuple[str, str | None, int, int | None, str | None, int | None, int | None, int | None, int | None]
"""``payload, headers, priority, max_attempts, key, delay, run_at, expires_in, expires_at``.

JSON text, and milliseconds from now or since 1970.
"""

PLAIN = (None, 0, None, None, None, None, None, None)
"""The fields of `TaskRow` after the payload, for a task that has nothing but a payload."""


class Enqueue(Operation[Enqueued], frozen=True):
    """Add one task that is due now, has no key and never expires: the common case, in one statement."""

    queue: str
    payload: str
    headers: str | None
    priority: int
    max_attempts: int | None

    def decode(self, rows: Rows) -> Enqueued:
        """Return the new id; no row means no room."""
        if not rows or rows[0][0] is None:
            raise full(self.queue)
        return Enqueued(rows[0][0], True)


class EnqueuePlain(Operation[list[Enqueued]], frozen=True):
    """Add tasks that have nothing but a payload, to a queue without a bound."""

    first_alone: ClassVar[bool] = True
    queue: str
    payloads: list[str]

    def plan(self) -> Plan[list[Enqueued]]:
        """Run one statement, which adds nothing if there is a bound; then check the bound and add them."""
        rows = yield self
        if not rows and self.payloads:
            return (yield from EnqueueMany(self.queue, [(payload, *PLAIN) for payload in self.payloads]).plan())
        # Equal to `Enqueued(id, True)` for each, in half the time.
        return list(map(tuple.__new__, repeat(Enqueued), zip(chain.from_iterable(rows), repeat(True))))


class EnqueueMany(Operation[list[Enqueued]], frozen=True):
    """Add tasks of any kind; a task whose key is taken is not added, and answers with the first one's id."""

    queue: str
    tasks: list[TaskRow]

    def plan(self) -> Plan[list[Enqueued]]:
        """Add the tasks, find the holders of taken keys, and check the bound if there is one."""
        bounded = yield from check_batch(self.queue, len(self.tasks))
        rows = yield self
        if bounded and rows:
            yield from check_bound(self.queue)
        if len(rows) == len(self.tasks):
            return [Enqueued(id, True) for id, _ in rows]
        plain = iter([id for id, key in rows if key is None])
        created: dict[str, int] = {key: id for id, key in rows if key is not None}
        wanted = {task[4] for task in self.tasks if task[4] is not None} - created.keys()
        taken: dict[str, int] = {}
        if wanted:
            taken = dict((yield step("FindKeys", queue=self.queue, keys=sorted(wanted))))
        answers: list[Enqueued] = []
        for task in self.tasks:
            key = task[4]
            if key is None:
                answers.append(Enqueued(next(plain), True))
            elif key in created:
                answers.append(Enqueued(created[key], True))
                taken[key] = created.pop(key)
            else:
                answers.append(Enqueued(taken[key], False))
        return answers


class EnqueueOne(Operation[Enqueued], frozen=True):
    """Add one task of any kind, unless its key is taken."""

    queue: str
    task: TaskRow

    def plan(self) -> Plan[Enqueued]:
        """Run `EnqueueMany` for one task."""
        [answer] = yield from EnqueueMany(self.queue, [self.task]).plan()
        return answer


class RoomAhead(Probe, frozen=True):
    """A probe that is ready when *count* more tasks fit into the queue."""

    subject = "task:{0.queue}"
    queue: str
    count: int


def check_batch(queue: str, count: int) -> Plan[bool]:
    """Return whether the queue has a bound; raise `QueueFull` for a batch that can never fit.

    Until the transaction ends, no other process can fill the room.
    """
    bounds = yield step("ReadRoom", queue=queue)
    for bound, _ in bounds:
        if count > bound:
            error = QueueFull(
                f"{count} tasks at once never fit into queue {queue!r}, whose max_size is {bound}: "
                f"enqueue fewer at a time, or configure a larger max_size"
            )
            error.fits = False
            raise error
    return bool(bounds)


def check_bound(queue: str) -> Plan[None]:
    """Raise `QueueFull` if the rows just written exceed the bound; the transaction then rolls back."""
    for bound, size in (yield step("ReadRoom", queue=queue)):
        if size > bound:
            raise full(queue)


def full(queue: str) -> QueueFull:
    """Return the error for a queue without room."""
    return QueueFull(
        f"queue {queue!r} has reached its max_size: wait for room with enqueue(..., wait=seconds), "
        f"run more workers, or configure a larger max_size"
    )

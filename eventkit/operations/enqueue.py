"""What is asked of a database to put tasks into a queue."""

from __future__ import annotations

from itertools import chain, repeat
from typing import ClassVar

from ..errors import QueueFull
from ..records import Enqueued
from . import Operation, Outlook, Plan, Probe, Rows

TaskRow = tuple[str, str | None, int, int | None, str | None, int | None, int | None, int | None, int | None]
"""``payload, headers, priority, max_attempts, key, delay, run_at, expires_in, expires_at``: JSON text, and
milliseconds from now or since 1970."""

PLAIN = (None, 0, None, None, None, None, None, None)
"""What `TaskRow` says beside the payload of a task of which nothing else is said."""


class Enqueue(Operation[Enqueued], frozen=True):
    """Add one task that is due now, has no key and never expires: the common case, in one statement."""

    queue: str
    payload: str
    headers: str | None
    priority: int
    max_attempts: int | None

    def decode(self, rows: Rows) -> Enqueued:
        """The new id; none means no room."""
        if not rows or rows[0][0] is None:
            raise full(self.queue)
        return Enqueued(rows[0][0], True)


class EnqueuePlain(Operation[list[Enqueued]], frozen=True):
    """Add tasks of which nothing but the payload is said, to a queue without a bound."""

    first_alone: ClassVar[bool] = True
    queue: str
    payloads: list[str]

    def plan(self) -> Plan[list[Enqueued]]:
        """One statement, which adds nothing where there is a bound; then the longer way."""
        rows = yield self
        if not rows and self.payloads:
            return (yield from EnqueueMany(self.queue, [(payload, *PLAIN) for payload in self.payloads]).plan())
        # As `Enqueued(id, True)` for each, in half the time.
        return list(map(tuple.__new__, repeat(Enqueued), zip(chain.from_iterable(rows), repeat(True))))


class EnqueueMany(Operation[list[Enqueued]], frozen=True):
    """Add tasks of any kind; a task whose key is taken is not added, and answers with the first one's id."""

    queue: str
    tasks: list[TaskRow]

    def plan(self) -> Plan[list[Enqueued]]:
        """One statement, a look for the holders of taken keys, and a look at the bound where there is one."""
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
            taken = dict((yield FindKeys(self.queue, sorted(wanted))))
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
        """`EnqueueMany` for one."""
        [answer] = yield from EnqueueMany(self.queue, [self.task]).plan()
        return answer


class FindKeys(Operation[None], frozen=True):
    """The ids that hold the keys, by a task or by a reservation."""

    writes: ClassVar[bool] = False
    queue: str
    keys: list[str]


class ReadRoom(Operation[None], frozen=True):
    """The queue's bound, and how many tasks count towards it; no row where there is no bound.

    Until the transaction ends, nobody else fills the room.
    """

    queue: str


class RoomAhead(Probe, frozen=True):
    """Whether *count* more tasks fit into the queue."""

    queue: str
    count: int

    @property
    def subjects(self) -> tuple[str, ...]:
        """The queue."""
        return (f"task:{self.queue}",)

    def decode(self, rows: Rows) -> Outlook:
        """Ready when they fit."""
        return Outlook(bool(rows[0][0]))


def check_batch(queue: str, count: int) -> Plan[bool]:
    """Whether the queue has a bound; a batch that can never fit is refused before anything is written."""
    bounds = yield ReadRoom(queue)
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
    """Refuse what has just been written if it is too much; the transaction then takes it back."""
    for bound, size in (yield ReadRoom(queue)):
        if size > bound:
            raise full(queue)


def full(queue: str) -> QueueFull:
    """The error for a queue without room."""
    return QueueFull(
        f"queue {queue!r} has reached its max_size: wait for room with enqueue(..., wait=seconds), "
        f"run more workers, or configure a larger max_size"
    )

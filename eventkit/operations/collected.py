"""What a session has collected, for whichever topics, queues and channels: as few statements as there are kinds.

Nobody waits for the offsets and ids, so these have no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from . import Operation, Plan, Rows
from .channel import Notify
from .enqueue import PLAIN, Enqueue, EnqueueMany, EnqueueOne, EnqueuePlain
from .stream import Publish, PublishMany, PublishOne, PublishPlain


class PublishAll(Operation[None], frozen=True):
    """Append events of any topics, in this order; ``topic, payload, key, headers, dedup``."""

    events: list[tuple[Any, ...]]

    def decode(self, rows: Rows) -> None:
        """Nothing to say."""


class EnqueueAll(Operation[None], frozen=True):
    """Add tasks of any kind to any queues, in this order; ``queue``, and what `TaskRow` has."""

    tasks: list[tuple[Any, ...]]

    def plan(self) -> Plan[None]:
        """One statement, which adds nothing where one of the queues has a bound; then queue by queue."""
        if (yield self):
            return
        queues: dict[str, list[Any]] = {}
        for queue, *task in self.tasks:
            queues.setdefault(queue, []).append(tuple(task))
        for queue, tasks in queues.items():
            yield from EnqueueMany(queue, tasks).plan()


class NotifyAll(Operation[None], frozen=True):
    """Send notifications to any channels, in this order; ``channel, payload, headers``."""

    notifications: list[tuple[Any, ...]]

    def decode(self, rows: Rows) -> None:
        """Nothing to say."""


class _Kind(NamedTuple):
    """What can be merged into one operation."""

    all: Callable[[list[tuple[Any, ...]]], Operation[Any]]
    rows: dict[type[Operation[Any]], Callable[[Any], list[tuple[Any, ...]]]]
    """The rows that each operation of the kind stands for."""
    alone: tuple[type[Operation[Any]], ...]
    """Those that are the shorter way where nothing has to be merged."""
    plain: Callable[[Any, list[Any]], Operation[Any]] | None = None
    """The shorter way for payloads of one topic or queue, where all else is the *rest*."""
    rest: tuple[Any, ...] = ()


_KINDS = (
    _Kind(
        PublishAll,
        {
            Publish: lambda it: [(it.topic, it.payload, it.key, it.headers, None)],
            PublishOne: lambda it: [(it.topic, *it.event)],
            PublishPlain: lambda it: [(it.topic, payload, None, None, None) for payload in it.payloads],
            PublishMany: lambda it: [(it.topic, *event) for event in it.events],
            PublishAll: lambda it: it.events,
        },
        (Publish, PublishPlain),
        PublishPlain,
        (None, None, None),
    ),
    _Kind(
        EnqueueAll,
        {
            Enqueue: lambda it: [
                (it.queue, it.payload, it.headers, it.priority, it.max_attempts, None, None, None, None, None)
            ],
            EnqueueOne: lambda it: [(it.queue, *it.task)],
            EnqueuePlain: lambda it: [(it.queue, payload, *PLAIN) for payload in it.payloads],
            EnqueueMany: lambda it: [(it.queue, *task) for task in it.tasks],
            EnqueueAll: lambda it: it.tasks,
        },
        (Enqueue, EnqueuePlain),
        EnqueuePlain,
        PLAIN,
    ),
    _Kind(
        NotifyAll,
        {
            Notify: lambda it: [(it.channel, it.payload, it.headers)],
            NotifyAll: lambda it: it.notifications,
        },
        (Notify,),
    ),
)


def merged(operations: Iterable[Operation[Any]]) -> list[Operation[Any]]:
    """What does the same as *operations*, in their order, in one operation for each kind."""
    operations = list(operations)
    answer = []
    for kind in _KINDS:
        of_kind = [operation for operation in operations if type(operation) in kind.rows]
        if of_kind:
            answer.append(_one(kind, of_kind))
    return answer


def _one(kind: _Kind, operations: list[Operation[Any]]) -> Operation[Any]:
    if len(operations) == 1 and isinstance(operations[0], kind.alone):
        return operations[0]
    rows = [row for operation in operations for row in kind.rows[type(operation)](operation)]
    if kind.plain is not None and rows:
        names, payloads, *columns = zip(*rows, strict=True)
        if all(set(column) == {usual} for column, usual in zip((names, *columns), (names[0], *kind.rest), strict=True)):
            return kind.plain(names[0], list(payloads))
    return kind.all(rows)

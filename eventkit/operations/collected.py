"""What a session has collected, for whichever topics, queues and channels: a statement for each kind.

Nobody waits for the offsets and ids, so what is made for many has no answer.
"""

from __future__ import annotations

from typing import Any

from . import Operation, Plan, Rows
from .channel import Notify
from .enqueue import PLAIN, Enqueue, EnqueueMany, EnqueuePlain, TaskRow
from .stream import Publish, PublishPlain

CollectedEvent = tuple[str, str, str | None, str | None, str | None]
"""``topic``, and what `EventRow` has."""

CollectedTask = tuple[str, str, str | None, int, int | None, str | None, int | None, int | None, int | None, int | None]
"""``queue``, and what `TaskRow` has."""

CollectedNotification = tuple[str, str, str | None]
"""``channel, payload, headers``."""


class PublishAll(Operation[None], frozen=True):
    """Append events to their topics, in this order."""

    events: list[CollectedEvent]

    def decode(self, rows: Rows) -> None:
        """Nothing to say."""


class EnqueueAll(Operation[None], frozen=True):
    """Add tasks to their queues, in this order."""

    tasks: list[CollectedTask]

    def plan(self) -> Plan[None]:
        """One statement, which adds nothing where one of the queues has a bound; then queue by queue."""
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

    def decode(self, rows: Rows) -> None:
        """Nothing to say."""


def publish(events: list[CollectedEvent]) -> Operation[Any]:
    """What writes *events*: the shortest way there is."""
    if len(events) == 1:
        [(topic, payload, key, headers, dedup)] = events
        if dedup is None:
            return Publish(topic, key, payload, headers)
    topics, payloads, *columns = zip(*events, strict=True)
    if _same(topics, topics[0]) and all(_same(column, None) for column in columns):
        return PublishPlain(topics[0], list(payloads))
    return PublishAll(events)


def enqueue(tasks: list[CollectedTask]) -> Operation[Any]:
    """What writes *tasks*: the shortest way there is."""
    if len(tasks) == 1:
        [(queue, payload, headers, priority, max_attempts, *others)] = tasks
        if not any(other is not None for other in others):
            return Enqueue(queue, payload, headers, priority, max_attempts)
    queues, payloads, *columns = zip(*tasks, strict=True)
    if _same(queues, queues[0]) and all(map(_same, columns, PLAIN)):
        return EnqueuePlain(queues[0], list(payloads))
    return EnqueueAll(tasks)


def notify(notifications: list[CollectedNotification]) -> Operation[Any]:
    """What writes *notifications*: the shortest way there is."""
    if len(notifications) == 1:
        return Notify(*notifications[0])
    return NotifyAll(notifications)


def _same(column: tuple[Any, ...], value: Any) -> bool:
    return column.count(value) == len(column)

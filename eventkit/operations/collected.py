"""Operations that a transaction runs together: rows of a session, chained tasks."""

from __future__ import annotations

from typing import Any

from . import Operation, Plan, nothing
from .channel import Notify
from .enqueue import PLAIN, Enqueue, EnqueueMany, EnqueuePlain, TaskRow
from .stream import Publish, PublishPlain

CollectedEvent = tuple[str, str, str | None, str | None, str | None]
"""``topic``, followed by an `EventRow`."""

CollectedTask = tuple[str, str, str | None, int, int | None, str | None, int | None, int | None, int | None, int | None]
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
        """Run one statement, which adds nothing if one of the queues has a bound; then add them queue by queue."""
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

"""What the database holds, as values: events, tasks, notifications, and what is said about them.

Moments are kept as integers and become timezone-aware datetimes when they are looked at, because most
of them never are.  Events, notifications and tasks are made by the thousand and hold nothing that could refer
back to them, so the garbage collector need not visit them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from .arguments import Duration, as_datetime

P = TypeVar("P", covariant=True)


class Event(msgspec.Struct, Generic[P], frozen=True, gc=False):
    """One event of a stream.  *offset* is its position: it grows along the topic and may have holes."""

    offset: int
    topic: str
    key: str | None
    payload: P
    headers: dict[str, str]
    created_ms: int

    @property
    def created_at(self) -> datetime:
        """When it was published, by the database's clock."""
        return as_datetime(self.created_ms)


class Notification(msgspec.Struct, Generic[P], frozen=True, gc=False):
    """One notification of a channel."""

    id: int
    channel: str
    payload: P
    headers: dict[str, str]
    created_ms: int

    @property
    def created_at(self) -> datetime:
        """When it was sent, by the database's clock."""
        return as_datetime(self.created_ms)


class Task(msgspec.Struct, Generic[P], frozen=True, gc=False):
    """A task that was claimed: the right to run it until `lease_expires_at`, proved by *token*.

    *lapsed* says that the run before ended because its lease ran out: it crashed, most probably.
    """

    id: int
    queue: str
    payload: P
    key: str | None
    headers: dict[str, str]
    priority: int
    attempt: int
    max_attempts: int
    run_ms: int
    enqueued_ms: int
    expires_ms: int | None
    lease_expires_ms: int
    token: int
    lease_ms: int
    lapsed: bool = False

    @property
    def run_at(self) -> datetime:
        """When it was due."""
        return as_datetime(self.run_ms)

    @property
    def enqueued_at(self) -> datetime:
        """When it was enqueued."""
        return as_datetime(self.enqueued_ms)

    @property
    def expires_at(self) -> datetime | None:
        """The moment after which it would not have been handed out."""
        return _optional(self.expires_ms)

    @property
    def lease_expires_at(self) -> datetime:
        """Until when the task is ours, unless it is extended."""
        return as_datetime(self.lease_expires_ms)


class TaskInfo(msgspec.Struct, Generic[P], frozen=True):
    """A task as it stands in the queue, in whatever state: ``scheduled ready leased dead done``.

    *error* is the text of the last failure, *reason* why it died: ``failed exhausted expired poison``.
    """

    id: int
    queue: str
    state: str
    payload: P
    key: str | None
    headers: dict[str, str]
    priority: int
    attempt: int
    max_attempts: int
    run_ms: int
    enqueued_ms: int
    expires_ms: int | None
    lease_expires_ms: int | None
    worker: str | None
    claimed_ms: int | None
    finished_ms: int | None
    reason: str | None
    error: str | None
    result: Any

    @property
    def run_at(self) -> datetime:
        """When it is or was due."""
        return as_datetime(self.run_ms)

    @property
    def enqueued_at(self) -> datetime:
        """When it was enqueued."""
        return as_datetime(self.enqueued_ms)

    @property
    def expires_at(self) -> datetime | None:
        """The moment after which it is not handed out."""
        return _optional(self.expires_ms)

    @property
    def lease_expires_at(self) -> datetime | None:
        """Until when its worker holds it, while it is leased."""
        return _optional(self.lease_expires_ms)

    @property
    def claimed_at(self) -> datetime | None:
        """When its latest run began."""
        return _optional(self.claimed_ms)

    @property
    def finished_at(self) -> datetime | None:
        """When it was done, or died."""
        return _optional(self.finished_ms)

    @property
    def died_at(self) -> datetime | None:
        """When it died, if it is dead."""
        return self.finished_at if self.state == "dead" else None


class Consumer(msgspec.Struct, frozen=True):
    """A consumer of a topic: the offset it saved, and how many events of the topic lie beyond."""

    name: str
    offset: int
    lag: int
    updated_ms: int

    @property
    def updated_at(self) -> datetime:
        """When the offset was saved last."""
        return as_datetime(self.updated_ms)


class PipelineInfo(msgspec.Struct, frozen=True):
    """A pipeline: from where to where, its last batch, its rows in all, how many events are ahead of it, and how it is.

    ``state`` is ``running``, ``done`` or ``failed``; one that was killed is ``running`` since ``updated_at``.
    """

    name: str
    source: str
    sink: str
    state: str
    batch: int | None
    rows: int
    lag: int | None
    error: str | None
    started_ms: int
    updated_ms: int

    @property
    def started_at(self) -> datetime:
        """When it was started last."""
        return as_datetime(self.started_ms)

    @property
    def updated_at(self) -> datetime:
        """When it was heard of last."""
        return as_datetime(self.updated_ms)


class Message(msgspec.Struct, Generic[P], frozen=True):
    """A message of an outbox, as it is delivered.  *message_id* is the same at every attempt."""

    message_id: str
    outbox: str
    key: str | None
    payload: P
    headers: dict[str, str]
    attempt: int
    enqueued_ms: int

    @property
    def enqueued_at(self) -> datetime:
        """When it was added, by the database's clock."""
        return as_datetime(self.enqueued_ms)


class Schedule(msgspec.Struct, frozen=True):
    """A schedule: *when* its fires come, in the zone *tz*, and what task each of them makes.

    *expires* is in seconds.  So many of its fires have been *fired*, and so many were *skipped* because they were
    missed.
    """

    name: str
    when: str
    tz: str
    queue: str
    payload: Any
    headers: dict[str, str]
    priority: int
    expires: float | None
    max_attempts: int | None
    catch_up: str
    paused: bool
    next_ms: int | None
    last_ms: int | None
    fired: int
    skipped: int

    @property
    def next_at(self) -> datetime | None:
        """When it fires next; None while it is paused."""
        return _optional(self.next_ms)

    @property
    def last_at(self) -> datetime | None:
        """The moment of its last fire, which the task has as ``run_at``."""
        return _optional(self.last_ms)


SCHEDULE, FIRE = "eventkit-schedule", "eventkit-fire"
"""The headers of a task that was made by a schedule: which one, and the moment of the fire."""


class Fire(msgspec.Struct, frozen=True):
    """A fire of a schedule, and the task that it made."""

    schedule: str
    queue: str
    fire_ms: int
    task_id: int

    @property
    def moment(self) -> datetime:
        """When it was due."""
        return as_datetime(self.fire_ms)


class Enqueued(NamedTuple):
    """The task's id, and whether this call created it; False means its key was taken, by that id."""

    id: int
    created: bool


class NewEvent(msgspec.Struct, frozen=True):
    """An event for `publish_many`, with the keywords of `publish`."""

    payload: Any
    key: str | None = None
    headers: Mapping[str, str] | None = None
    dedup: str | None = None


class NewTask(msgspec.Struct, frozen=True):
    """A task for `enqueue_many`, with the keywords of `enqueue`; and for ``ack(then=)``, if it says its *queue*.

    `TaskQueue.new` makes one that does, whose payload is checked and encoded by then.
    """

    payload: Any
    delay: Duration | None = None
    run_at: datetime | None = None
    priority: int = 0
    max_attempts: int | None = None
    expires: Duration | datetime | None = None
    key: str | None = None
    headers: Mapping[str, str] | None = None
    queue: str | None = None


def _optional(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else as_datetime(milliseconds)

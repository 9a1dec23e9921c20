"""The values that a database holds: events, tasks, notifications, settings."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from .checks import Duration, as_datetime
from .retry import Policy

P = TypeVar("P", covariant=True)


class Event(msgspec.Struct, Generic[P], frozen=True, gc=False):
    """One event of a stream.  *offset* is its position: it grows along the topic and may have gaps."""

    offset: int
    topic: str
    key: str | None
    payload: P
    headers: dict[str, str]
    created_ms: int

    @property
    def created_at(self) -> datetime:
        """The time at which it was published, by the database's clock."""
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
        """The time at which it was sent, by the database's clock."""
        return as_datetime(self.created_ms)


class Task(msgspec.Struct, Generic[P], frozen=True, gc=False):
    """A claimed task: the right to run it until `lease_expires_at`, proved by *token*.

    *lapsed* says that the lease of the previous run ran out, most probably because its process crashed.
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
        """The time at which it was due."""
        return as_datetime(self.run_ms)

    @property
    def enqueued_at(self) -> datetime:
        """The time at which it was enqueued."""
        return as_datetime(self.enqueued_ms)

    @property
    def expires_at(self) -> datetime | None:
        """The time after which no worker would have got it."""
        return _optional(self.expires_ms)

    @property
    def lease_expires_at(self) -> datetime:
        """The time until which the task is leased, unless it is extended."""
        return as_datetime(self.lease_expires_ms)


class TaskInfo(msgspec.Struct, Generic[P], frozen=True):
    """A task in any state of the queue: ``scheduled ready leased dead done``.

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
        """The time at which it is or was due."""
        return as_datetime(self.run_ms)

    @property
    def enqueued_at(self) -> datetime:
        """The time at which it was enqueued."""
        return as_datetime(self.enqueued_ms)

    @property
    def expires_at(self) -> datetime | None:
        """The time after which no worker gets it."""
        return _optional(self.expires_ms)

    @property
    def lease_expires_at(self) -> datetime | None:
        """The time until which its worker holds it, while it is leased."""
        return _optional(self.lease_expires_ms)

    @property
    def claimed_at(self) -> datetime | None:
        """The time at which its latest run began."""
        return _optional(self.claimed_ms)

    @property
    def finished_at(self) -> datetime | None:
        """The time at which it was done, or died."""
        return _optional(self.finished_ms)

    @property
    def died_at(self) -> datetime | None:
        """The time at which it died, if it is dead."""
        return self.finished_at if self.state == "dead" else None


class Consumer(msgspec.Struct, frozen=True):
    """A consumer of a topic: its saved offset, and the number of events after it."""

    name: str
    offset: int
    lag: int
    updated_ms: int

    @property
    def updated_at(self) -> datetime:
        """The time at which the offset was last saved."""
        return as_datetime(self.updated_ms)


class PipelineInfo(msgspec.Struct, frozen=True):
    """A pipeline: its source and sink, last batch, total rows, lag in events, and state.

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
        """The time at which it was last started."""
        return as_datetime(self.started_ms)

    @property
    def updated_at(self) -> datetime:
        """The time at which it last reported."""
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
        """The time at which it was added, by the database's clock."""
        return as_datetime(self.enqueued_ms)


class Schedule(msgspec.Struct, frozen=True):
    """A schedule: *when* it fires, in the zone *tz*, and the task that each fire creates.

    *expires* is in seconds.  *fired* and *skipped* count its fires, and those that were missed.
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
        """The time at which it fires next; None while it is paused."""
        return _optional(self.next_ms)

    @property
    def last_at(self) -> datetime | None:
        """The time of its last fire, which is the task's ``run_at``."""
        return _optional(self.last_ms)


SCHEDULE, FIRE = "eventkit-schedule", "eventkit-fire"
"""The headers of a task that a schedule created: its name, and the time of the fire."""


class Fire(msgspec.Struct, frozen=True):
    """A fire of a schedule, and the task that it created."""

    schedule: str
    queue: str
    fire_ms: int
    task_id: int

    @property
    def moment(self) -> datetime:
        """The time at which it was due."""
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
    """A task for `enqueue_many`, with the keywords of `enqueue`; and for ``ack(then=)``, if it names its *queue*.

    `TaskQueue.new` makes one that does, with its payload validated and encoded.
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


DAY = 86_400.0


class StreamSettings(msgspec.Struct, frozen=True):
    """The retention of a stream, its maximum number of events, and whether unconsumed events are kept.

    None means for ever, and all.
    """

    retain: float | None = None
    max_keep: int | None = None
    keep_unconsumed: bool = True


class ChannelSettings(msgspec.Struct, frozen=True):
    """The retention of a channel, and its maximum number of notifications; None means for ever, and all."""

    retain: float | None = DAY
    max_keep: int | None = None


class InboxSettings(msgspec.Struct, frozen=True):
    """The retention of the ids of seen messages; None means for ever."""

    retain: float | None = None


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a queue.  None stands for the default; for *history*, that is False."""

    max_attempts: int | None = None
    lease: float | None = None
    retry: Policy | None = None
    max_size: int | None = None
    rate: float | None = None
    burst: float | None = None
    max_running: int | None = None
    keep_done: float | None = None
    keep_dead: float | None = None
    key_ttl: float | None = None
    dead_letter_to: str | None = None
    history: bool = False


def seconds(milliseconds: int | None) -> float | None:
    """Return a duration of the database in seconds."""
    return None if milliseconds is None else milliseconds / 1000

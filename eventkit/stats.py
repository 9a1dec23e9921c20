"""The numbers of a database, and the diagnostics that an operator reads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from .checks import as_datetime
from .values import Consumer


class Finding(msgspec.Struct, frozen=True):
    """A diagnostic of a database: *level* is ``good``, ``doubtful`` or ``bad``, *remedy* says what to do about it."""

    level: str
    what: str
    remedy: str = ""


class DeadLetters(msgspec.Struct, frozen=True):
    """The dead tasks of a queue with the same *reason* and *error*: their *number*, and the id of the last."""

    reason: str
    error: str | None
    number: int
    first_ms: int
    last_ms: int
    last_id: int

    @property
    def first_at(self) -> datetime:
        """The time at which the first of them died."""
        return as_datetime(self.first_ms)

    @property
    def last_at(self) -> datetime:
        """The time at which the last of them died."""
        return as_datetime(self.last_ms)


class Maintained(msgspec.Struct, frozen=True):
    """The result of `EventKit.maintain`.

    It counts the due, lapsed or expired tasks that were *moved*, and the deleted rows: *done* and *dead* tasks whose
    retention has ended, *results*, rate limit windows and token buckets (*limits*), reservations of *keys*, *events*
    and *notifications*, ids of messages in an *inbox*, rows *staged* for a batch that was never written, and marks of
    *written* batches.
    """

    moved: int
    done: int
    dead: int
    results: int
    limits: int
    keys: int
    events: int
    notifications: int
    inbox: int
    staged: int
    written: int


class TaskLook(msgspec.Struct, frozen=True):
    """A task as shown in a list, with the beginning of its payload's JSON text and of its error."""

    id: int
    state: str
    key: str | None
    payload: str
    payload_length: int
    priority: int
    attempt: int
    max_attempts: int
    run_ms: int
    enqueued_ms: int
    lease_expires_ms: int | None
    worker: str | None
    claimed_ms: int | None
    finished_ms: int | None
    reason: str | None
    error: str | None


class EventLook(msgspec.Struct, frozen=True):
    """An event as shown in a list, with the beginning of its payload's JSON text."""

    offset: int
    key: str | None
    payload: str
    payload_length: int
    headers: Mapping[str, str]
    created_ms: int


class WorkerInfo(msgspec.Struct, frozen=True):
    """A worker: the *queues* it claims from, its *slots*, and how many of its tasks are *running*.

    *leased* is the number of tasks leased to it; of all workers together, 10,000 are counted.  A worker outside an
    `App` has only that number, and neither slots nor times.
    """

    name: str
    queues: list[str]
    slots: int | None
    running: int | None
    leased: int
    started_ms: int | None
    seen_ms: int | None
    oldest_claim_ms: int | None
    alive: bool

    @property
    def started_at(self) -> datetime | None:
        """The time at which it began."""
        return None if self.started_ms is None else as_datetime(self.started_ms)

    @property
    def seen_at(self) -> datetime | None:
        """The time at which it last reported, which it does every ten seconds while it is *alive*."""
        return None if self.seen_ms is None else as_datetime(self.seen_ms)

    @property
    def oldest_claim_at(self) -> datetime | None:
        """The time at which it claimed the task that it has held longest."""
        return None if self.oldest_claim_ms is None else as_datetime(self.oldest_claim_ms)


class LimitInfo(msgspec.Struct, frozen=True):
    """A limit that holds a count: a window of *per* seconds, or a token bucket, for which *per* is None.

    *amount* is how many calls the window has counted, or how many tokens the bucket had when it was last used; *until*
    is when the window ends, or when the bucket is full again at the latest.
    """

    name: str
    per: float | None
    amount: float
    counted_ms: int
    until_ms: int

    @property
    def counted_at(self) -> datetime:
        """The time at which it was last used."""
        return as_datetime(self.counted_ms)

    @property
    def until(self) -> datetime:
        """The time at which the window ends, or the bucket is full again."""
        return as_datetime(self.until_ms)


class QueueStats(msgspec.Struct, frozen=True):
    """The numbers of a queue.  *oldest_ready_age* is in seconds, None if no task is ready.

    Each state is counted up to 10,000.  *approximate* says that a count was cut off: a 10,000 then means "at least so
    many", and due tasks that were not moved yet are counted in part.  `TaskQueue.size` counts all.
    """

    scheduled: int
    ready: int
    leased: int
    dead: int
    done: int
    oldest_ready_age: float | None
    paused: bool
    approximate: bool


class OutboxStats(msgspec.Struct, frozen=True):
    """The numbers of an outbox.  *oldest_age* is that of the oldest message that is not delivered, in seconds.

    For the last minute, in this kit: how many messages were *delivered*, how many attempts *failed*, and the mean
    *latency* of those delivered, in seconds from `add`.
    """

    pending: int
    delivering: int
    dead: int
    oldest_age: float | None
    delivered: int
    failed: int
    latency: float | None


class TopicStats(msgspec.Struct, frozen=True):
    """The numbers of a topic: its *head*, the number of *events* it keeps, and its *consumers* by name.

    Events, and the lag of each consumer, are counted up to 10,000; *approximate* says that a count was cut off.
    """

    head: int
    events: int
    consumers: list[Consumer]
    approximate: bool


class ScheduleStats(msgspec.Struct, frozen=True):
    """The numbers of a schedule: the *queue* of its tasks, and how many of its fires were *fired* and *skipped*."""

    queue: str
    next_ms: int | None
    last_ms: int | None
    fired: int
    skipped: int

    @property
    def paused(self) -> bool:
        """True if it does not fire."""
        return self.next_ms is None

    @property
    def next_at(self) -> datetime | None:
        """The time at which it fires next; None while it is paused."""
        return None if self.next_ms is None else as_datetime(self.next_ms)

    @property
    def last_at(self) -> datetime | None:
        """The time of its last fire; None before the first."""
        return None if self.last_ms is None else as_datetime(self.last_ms)


class HeldLock(msgspec.Struct, frozen=True):
    """A held lock: the *holder*'s worker name and *fence*."""

    holder: str
    fence: int
    until_ms: int

    @property
    def until(self) -> datetime:
        """The time at which it expires, unless it is renewed."""
        return as_datetime(self.until_ms)


class Overview(msgspec.Struct, frozen=True):
    """The numbers of a whole kit, each by name.

    *queues* that have tasks or settings; *topics* that have or had events, or have consumers; *schedules*; held
    *locks*; and the number of *results*, up to 10,000.  *approximate* says that a count was cut off.
    """

    queues: dict[str, QueueStats]
    topics: dict[str, TopicStats]
    schedules: dict[str, ScheduleStats]
    locks: dict[str, HeldLock]
    results: int
    approximate: bool

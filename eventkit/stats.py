"""What is told of a database in numbers: of its queues, topics, schedules, locks and results.

Whatever could be a million is counted up to 10,000 here, so that looking costs the same however much there is.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from .arguments import as_datetime
from .records import Consumer


class QueueStats(msgspec.Struct, frozen=True):
    """A queue in numbers.  *oldest_ready_age* is in seconds, None when nothing is ready.

    Each state is counted up to 10,000.  *approximate* says that there were more somewhere: a 10,000 then means "at
    least so many", and what fell due and was not moved yet is told in part.  `TaskQueue.size` counts to the end.
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
    """An outbox in numbers.  *oldest_age* is that of the oldest message that is not delivered, in seconds.

    What this kit itself has done in the last minute: how many messages it has *delivered*, how many attempts have
    *failed*, and the mean *latency* of those delivered, in seconds from `add`.
    """

    pending: int
    delivering: int
    dead: int
    oldest_age: float | None
    delivered: int
    failed: int
    latency: float | None


class TopicStats(msgspec.Struct, frozen=True):
    """A topic in numbers: its *head*, how many *events* it has kept, and its *consumers* by name.

    Events, and the lag of each consumer, are counted up to 10,000; *approximate* says that there were more somewhere.
    """

    head: int
    events: int
    consumers: list[Consumer]
    approximate: bool


class ScheduleStats(msgspec.Struct, frozen=True):
    """A schedule in numbers: the *queue* of its tasks, and how many of its fires have been *fired* and *skipped*."""

    queue: str
    next_ms: int | None
    last_ms: int | None
    fired: int
    skipped: int

    @property
    def paused(self) -> bool:
        """Whether it does not fire."""
        return self.next_ms is None

    @property
    def next_at(self) -> datetime | None:
        """When it fires next; None while it is paused."""
        return None if self.next_ms is None else as_datetime(self.next_ms)

    @property
    def last_at(self) -> datetime | None:
        """The moment of its last fire; None before the first."""
        return None if self.last_ms is None else as_datetime(self.last_ms)


class HeldLock(msgspec.Struct, frozen=True):
    """A lock that somebody has: the *holder*'s worker name and *fence*."""

    holder: str
    fence: int
    until_ms: int

    @property
    def until(self) -> datetime:
        """When it expires, unless it is renewed."""
        return as_datetime(self.until_ms)


class Overview(msgspec.Struct, frozen=True):
    """All that a kit has, in numbers, each of them under its name and in the order of names.

    *queues* that have tasks or settings; *topics* that have or had events, or have consumers; *schedules*; *locks*
    that are held; and how many *results* there are, up to 10,000.  *approximate* says that there was more to count
    somewhere.
    """

    queues: dict[str, QueueStats]
    topics: dict[str, TopicStats]
    schedules: dict[str, ScheduleStats]
    locks: dict[str, HeldLock]
    results: int
    approximate: bool

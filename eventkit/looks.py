"""What is shown to whoever looks around in a database: tasks and events by their beginning, workers, and limits.

A payload may be half a megabyte, and a page shows fifty of them; so of what can be long there is only the beginning, as
text, and how many characters it has in all.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from .arguments import as_datetime


class TaskLook(msgspec.Struct, frozen=True):
    """A task as a list shows it, with the beginning of its payload's JSON text and of its error."""

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
    """An event as a list shows it, with the beginning of its payload's JSON text."""

    offset: int
    key: str | None
    payload: str
    payload_length: int
    headers: Mapping[str, str]
    created_ms: int


class WorkerInfo(msgspec.Struct, frozen=True):
    """A worker: the *queues* it works on, how many *slots* it has and how many of its tasks are *running*.

    *leased* is how many tasks are leased to it; of all workers together, 10,000 are counted.  Whoever claims without
    being an `App`'s worker has that number only, and neither slots nor a moment at which it was heard of.
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
        """When it began."""
        return None if self.started_ms is None else as_datetime(self.started_ms)

    @property
    def seen_at(self) -> datetime | None:
        """When it was heard of last, which is every ten seconds while it is *alive*."""
        return None if self.seen_ms is None else as_datetime(self.seen_ms)

    @property
    def oldest_claim_at(self) -> datetime | None:
        """When it has claimed the task that it holds longest."""
        return None if self.oldest_claim_ms is None else as_datetime(self.oldest_claim_ms)


class LimitInfo(msgspec.Struct, frozen=True):
    """A limit that has something to say: a window of *per* seconds, or a token bucket, for which *per* is None.

    *amount* is how many calls the window has counted, or how many tokens were left in the bucket when it was looked
    into last; *until* is when the window ends, or when the bucket is full again at the latest.
    """

    name: str
    per: float | None
    amount: float
    counted_ms: int
    until_ms: int

    @property
    def counted_at(self) -> datetime:
        """When it was looked into last."""
        return as_datetime(self.counted_ms)

    @property
    def until(self) -> datetime:
        """When it says nothing any more."""
        return as_datetime(self.until_ms)

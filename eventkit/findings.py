"""What whoever looks after a database is told: what stands well and ill, what died of what, what was cleared away."""

from __future__ import annotations

from datetime import datetime

import msgspec

from .arguments import as_datetime


class Finding(msgspec.Struct, frozen=True):
    """What was looked at in a database: *level* is ``good``, ``doubtful`` or ``bad``, *remedy* what to do about it."""

    level: str
    what: str
    remedy: str = ""


class DeadLetters(msgspec.Struct, frozen=True):
    """The dead tasks of a queue that died of the same *reason* and *error*: their *number*, and the id of the last."""

    reason: str
    error: str | None
    number: int
    first_ms: int
    last_ms: int
    last_id: int

    @property
    def first_at(self) -> datetime:
        """When the first of them died."""
        return as_datetime(self.first_ms)

    @property
    def last_at(self) -> datetime:
        """When the last of them died."""
        return as_datetime(self.last_ms)


class Maintained(msgspec.Struct, frozen=True):
    """What `EventKit.maintain` found to do: how many tasks it has *moved* that were due, lapsed or expired; and what it
    has deleted: tasks that were kept when *done* or *dead*, *results*, windows and buckets of *limits*, reservations of
    *keys*, *events* and *notifications*, what the *inbox* of any consumer was to remember, what was *staged* for a
    batch that did not come; and marks of batches that were *written*.
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

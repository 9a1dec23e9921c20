"""What is asked of a database about a queue's settings, and whether it hands out tasks."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from .. import retry
from ..settings import QueueSettings, seconds
from . import Operation, Plan, Rows
from .finish import settle_dead
from .history import SettleHistory

MAX_ATTEMPTS = 3
"""How many runs a task has where neither it nor its queue says; the statements have the same number."""


class SetPaused(Operation[None], frozen=True):
    """Let the queue hand out tasks, or not."""

    queue: str
    paused: bool

    def decode(self, rows: Rows) -> None:
        """Nothing to say."""


class StoredSettings(msgspec.Struct, frozen=True):
    """What `configure` stores; None is the default.  Durations in milliseconds, *retry* as JSON."""

    max_attempts: int | None = None
    lease: int | None = None
    retry: str | None = None
    max_size: int | None = None
    rate: float | None = None
    burst: float | None = None
    max_running: int | None = None
    keep_done: int | None = None
    keep_dead: int | None = None
    key_ttl: int | None = None
    dead_letter_to: str | None = None
    history: bool | None = None


class Configure(Operation[None], frozen=True):
    """Store some settings of the queue and leave the others as they are."""

    queue: str
    changes: dict[str, Any]

    def plan(self) -> Plan[None]:
        """The settings so far, and the new ones over them; before them, whatever a change of *history* takes."""
        if "history" in self.changes:
            yield from SettleHistory(self.queue, bool(self.changes["history"])).plan()
        yield HoldSettings(self.queue)
        [row] = yield ReadSettings(self.queue)
        settings = StoredSettings(*row)
        changed = msgspec.structs.replace(settings, **self.changes)
        yield WriteSettings(self.queue, *msgspec.structs.astuple(changed))
        most = changed.max_attempts or MAX_ATTEMPTS
        if most < (settings.max_attempts or MAX_ATTEMPTS):
            rows = yield Exhaust(self.queue, most)
            yield from settle_dead(self.queue, [(id, lane) for id, lane in rows])


class Exhaust(Operation[None], frozen=True):
    """Make dead letters of the tasks that wait for another attempt and have had *most* of them."""

    queue: str
    most: int


class CreateQueue(Operation[bool], frozen=True):
    """Make a queue of which nothing is known yet, with these settings; False if there is one."""

    queue: str
    changes: dict[str, Any]

    def plan(self) -> Plan[bool]:
        """Its row, and its settings."""
        created = bool((yield AddQueue(self.queue)))
        if created:
            yield from Configure(self.queue, self.changes).plan()
        return created


class AddQueue(Operation[None], frozen=True):
    """A row for a queue that has neither settings nor tasks."""

    queue: str


class FindQueue(Operation[bool], frozen=True):
    """Whether there is a queue of that name: it has settings, or tasks."""

    writes: ClassVar[bool] = False
    queue: str

    def decode(self, rows: Rows) -> bool:
        """Whether there is a row."""
        return bool(rows)


class HoldSettings(Operation[None], frozen=True):
    """Let nobody else write the queue's settings until the transaction ends."""

    queue: str


class ReadSettings(Operation[QueueSettings], frozen=True):
    """The queue's settings, in the order of `StoredSettings`; no row where there never were any."""

    writes: ClassVar[bool] = False
    queue: str

    def decode(self, rows: Rows) -> QueueSettings:
        """Durations in seconds, and the policy as a value."""
        stored = StoredSettings(*rows[0]) if rows else StoredSettings()
        return QueueSettings(
            max_attempts=stored.max_attempts,
            lease=seconds(stored.lease),
            retry=None if stored.retry is None else retry.decode(stored.retry),
            max_size=stored.max_size,
            rate=stored.rate,
            burst=stored.burst,
            max_running=stored.max_running,
            keep_done=seconds(stored.keep_done),
            keep_dead=seconds(stored.keep_dead),
            key_ttl=seconds(stored.key_ttl),
            dead_letter_to=stored.dead_letter_to,
            history=bool(stored.history),
        )


class WriteSettings(Operation[None], frozen=True):
    """Store the queue's settings, and fill its bucket if the rate or the burst is new."""

    queue: str
    max_attempts: int | None
    lease: int | None
    retry: str | None
    max_size: int | None
    rate: float | None
    burst: float | None
    max_running: int | None
    keep_done: int | None
    keep_dead: int | None
    key_ttl: int | None
    dead_letter_to: str | None
    history: bool | None

"""Operations on the settings of queues, streams and channels."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from .. import retry
from ..values import ChannelSettings, InboxSettings, QueueSettings, StreamSettings, seconds
from . import Operation, Plan, Rows, flag, nothing
from .finish import SettleDead
from .queue import SettleHistory

MAX_ATTEMPTS = 3
"""The default number of attempts of a task; the statements have the same number."""


class SetPaused(Operation[None], frozen=True):
    """Pause or resume the queue."""

    queue: str
    paused: bool
    decode = nothing


class StoredSettings(msgspec.Struct, frozen=True):
    """The settings that `configure` stores; None is the default.  Durations in milliseconds, *retry* as JSON."""

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
        """Change the triggers if *history* changes; read the settings, and write the new ones over them."""
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
            if rows:
                yield from SettleDead(self.queue, [id for id, _ in rows], [lane for _, lane in rows]).rows()


class Exhaust(Operation[None], frozen=True):
    """Make dead letters of the waiting tasks that have had *most* attempts."""

    queue: str
    most: int


class CreateQueue(Operation[bool], frozen=True):
    """Create a queue that has neither settings nor tasks, with these settings; return False if it exists."""

    queue: str
    changes: dict[str, Any]

    def plan(self) -> Plan[bool]:
        """Add its row, and write its settings."""
        created = bool((yield AddQueue(self.queue)))
        if created:
            yield from Configure(self.queue, self.changes).plan()
        return created


class AddQueue(Operation[None], frozen=True):
    """Add a row for a queue that has neither settings nor tasks."""

    queue: str


class FindQueue(Operation[bool], frozen=True):
    """Read whether a queue exists: it has settings, or tasks."""

    writes: ClassVar[bool] = False
    queue: str
    decode = flag


class HoldSettings(Operation[None], frozen=True):
    """Lock the queue's settings until the transaction ends."""

    queue: str


class ReadSettings(Operation[QueueSettings], frozen=True):
    """Read the queue's settings, in the order of `StoredSettings`; no row if it never had any."""

    writes: ClassVar[bool] = False
    queue: str

    def decode(self, rows: Rows) -> QueueSettings:
        """Return the settings: durations in seconds, and the policy as a value."""
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


class _Configure(Operation[None], frozen=True):
    """Store some settings and leave the others as they are."""

    decode = nothing


class ConfigureStream(_Configure, frozen=True):
    """Store settings of a topic."""

    topic: str
    given: list[str]
    retain: int | None = None
    max_keep: int | None = None
    keep_unconsumed: bool = True


class ReadStreamSettings(Operation[StreamSettings], frozen=True):
    """Read the settings of a topic."""

    writes: ClassVar[bool] = False
    topic: str

    def decode(self, rows: Rows) -> StreamSettings:
        """Return the settings of the row, or the defaults."""
        for retain, max_keep, keep_unconsumed in rows:
            return StreamSettings(seconds(retain), max_keep, bool(keep_unconsumed))
        return StreamSettings()


class ConfigureChannel(_Configure, frozen=True):
    """Store settings of a channel."""

    channel: str
    given: list[str]
    retain: int | None = None
    max_keep: int | None = None


class ReadChannelSettings(Operation[ChannelSettings], frozen=True):
    """Read the settings of a channel."""

    writes: ClassVar[bool] = False
    channel: str

    def decode(self, rows: Rows) -> ChannelSettings:
        """Return the settings of the row, or the defaults."""
        for retain, max_keep in rows:
            return ChannelSettings(seconds(retain), max_keep)
        return ChannelSettings()


class ConfigureInbox(_Configure, frozen=True):
    """Store settings of a consumer's inbox."""

    consumer: str
    given: list[str]
    retain: int | None = None


class ReadInboxSettings(Operation[InboxSettings], frozen=True):
    """Read the settings of a consumer's inbox."""

    writes: ClassVar[bool] = False
    consumer: str

    def decode(self, rows: Rows) -> InboxSettings:
        """Return the settings of the row, or the defaults."""
        return InboxSettings(seconds(rows[0][0])) if rows else InboxSettings()

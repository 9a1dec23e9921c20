"""Streams and channels: events that are kept, in order, and notifications for listeners."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol

from ..checks import Duration
from ..values import ChannelSettings, Consumer, Event, NewEvent, Notification, StreamSettings
from .iterators import KEEP, AsyncSubscription, P, Subscription


class EventStream(Protocol[P]):
    """A topic: events in the order of their offsets, kept until they are pruned."""

    topic: str

    def publish(
        self,
        payload: P,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        dedup: str | None = None,
        tx: Any = None,
    ) -> int:
        """Append an event; return its offset.

        Offsets grow, are never reused once committed, and may have gaps.  A reader that has read up to an offset never
        later finds an event at or below it.  Publishing a *dedup* id that the topic still holds writes nothing and
        returns the first event's offset.
        """
        ...

    def publish_many(self, items: Iterable[P | NewEvent], tx: Any = None) -> list[int]:
        """Append events, all or none, in this order; return their offsets."""
        ...

    def read(self, after: int = 0, limit: int = 1000, *, on_truncated: str = "raise") -> list[Event[P]]:
        """Return the first *limit* events after the offset *after*.

        If events after *after* were pruned, raise `Truncated`, unless ``on_truncated="skip"`` or *after* is 0.
        """
        ...

    def subscribe(
        self,
        consumer: str | None = None,
        *,
        start: str | int | datetime = "committed",
        batch: int = 1000,
        save_every_n: int = 1000,
        save_every_s: Duration = 1.0,
        on_truncated: str = "raise",
        exclusive: bool = True,
    ) -> Subscription[Event[P]]:
        """Iterate over the existing events and then the new ones, without a gap or a duplicate.

        *start* is ``"committed"`` (after the consumer's saved offset), ``"earliest"``, ``"latest"``, an offset or a
        time.  An event counts as handled when the loop asks for the next one.  The consumer's offset is saved every
        *save_every_n* events, every *save_every_s* seconds, when no event is waiting, and at the end; with both 0,
        never.

        A consumer's name has one holder at a time, which gets the events.  Another subscriber waits as a standby, and
        continues from the saved offset when the holder ends or dies.  A holder that was replaced gets `LeaseLost`.
        With *exclusive* false, every subscriber gets all events, even under the same name.
        """
        ...

    def offset(self, consumer: str) -> int:
        """Return the consumer's saved offset; 0 if it has none."""
        ...

    def save_offset(self, consumer: str, offset: int, tx: Any = None) -> bool:
        """Move the consumer forward; return False if it is already at or beyond *offset*."""
        ...

    def seek(self, consumer: str, offset: int, tx: Any = None) -> None:
        """Move the consumer to any offset."""
        ...

    def head(self) -> int:
        """Return the highest offset at or below which no new event can appear; 0 for a new topic."""
        ...

    def offset_at(self, moment: datetime) -> int:
        """Return the *after* with which `read` returns all events created at or after *moment*."""
        ...

    def consumers(self) -> list[Consumer]:
        """Return the consumers that have saved an offset, by name."""
        ...

    def prune(
        self, *, older_than: Duration | None = None, max_keep: int | None = None, keep_unconsumed: bool = True
    ) -> int:
        """Delete events older than *older_than*, and all but the newest *max_keep*; return their number.

        With *keep_unconsumed*, events that a consumer has still to read are kept.
        """
        ...

    def configure(
        self,
        *,
        retain: Duration | None = KEEP,
        max_keep: int | None = KEEP,
        keep_unconsumed: bool | None = KEEP,
    ) -> None:
        """Store what `EventKit.maintain` prunes: events older than *retain*, and all but the newest *max_keep*.

        None restores the default: keep all events for ever, and keep those that a consumer has still to read.  Omitted
        settings stay as they are.
        """
        ...

    def settings(self) -> StreamSettings:
        """Return the stream's settings."""
        ...


class AsyncEventStream(Protocol[P]):
    """`EventStream`, awaited."""

    topic: str

    async def publish(
        self,
        payload: P,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        dedup: str | None = None,
        tx: Any = None,
    ) -> int: ...

    async def publish_many(self, items: Iterable[P | NewEvent], tx: Any = None) -> list[int]: ...

    async def read(self, after: int = 0, limit: int = 1000, *, on_truncated: str = "raise") -> list[Event[P]]: ...

    def subscribe(
        self,
        consumer: str | None = None,
        *,
        start: str | int | datetime = "committed",
        batch: int = 1000,
        save_every_n: int = 1000,
        save_every_s: Duration = 1.0,
        on_truncated: str = "raise",
        exclusive: bool = True,
    ) -> AsyncSubscription[Event[P]]: ...

    async def offset(self, consumer: str) -> int: ...

    async def save_offset(self, consumer: str, offset: int, tx: Any = None) -> bool: ...

    async def seek(self, consumer: str, offset: int, tx: Any = None) -> None: ...

    async def head(self) -> int: ...

    async def offset_at(self, moment: datetime) -> int: ...

    async def consumers(self) -> list[Consumer]: ...

    async def prune(
        self, *, older_than: Duration | None = None, max_keep: int | None = None, keep_unconsumed: bool = True
    ) -> int: ...

    async def configure(
        self,
        *,
        retain: Duration | None = KEEP,
        max_keep: int | None = KEEP,
        keep_unconsumed: bool | None = KEEP,
    ) -> None: ...

    async def settings(self) -> StreamSettings: ...


class NotificationChannel(Protocol[P]):
    """A channel: its listeners receive the notifications that are committed while they listen."""

    name: str

    def notify(self, payload: P, *, headers: Mapping[str, str] | None = None, tx: Any = None) -> int:
        """Send a notification to all listeners; return its id.  Ids grow."""
        ...

    def listen(self, *, start: str | int = "now") -> Subscription[Notification[P]]:
        """Iterate over the notifications that are committed after this call.

        *start* may also be ``"earliest"``, or the id after which to start.
        """
        ...

    def prune(self, *, older_than: Duration | None = None, max_keep: int | None = None) -> int:
        """Delete notifications older than *older_than*, and all but the newest *max_keep*; return their number."""
        ...

    def configure(self, *, retain: Duration | None = KEEP, max_keep: int | None = KEEP) -> None:
        """Store what `EventKit.maintain` prunes: notifications older than *retain*, and all but the newest *max_keep*.

        By default, a channel keeps one day.  None means to keep all of them for ever.  Omitted settings stay as they
        are.
        """
        ...

    def settings(self) -> ChannelSettings:
        """Return the channel's settings."""
        ...


class AsyncNotificationChannel(Protocol[P]):
    """`NotificationChannel`, awaited."""

    name: str

    async def notify(self, payload: P, *, headers: Mapping[str, str] | None = None, tx: Any = None) -> int: ...

    def listen(self, *, start: str | int = "now") -> AsyncSubscription[Notification[P]]: ...

    async def prune(self, *, older_than: Duration | None = None, max_keep: int | None = None) -> int: ...

    async def configure(self, *, retain: Duration | None = KEEP, max_keep: int | None = KEEP) -> None: ...

    async def settings(self) -> ChannelSettings: ...

"""Streams: events that are kept, in order, and the consumers that read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol

from ..arguments import Duration
from ..records import Consumer, Event, NewEvent
from ..settings import StreamSettings
from .subscriptions import AsyncSubscription, Subscription
from .terms import KEEP, P


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
        """Append an event; its offset.

        Offsets grow, are never reused once committed, and may have holes.  Whoever has read up to one never
        later finds an event at or below it.  Publishing a *dedup* id that the topic still holds writes
        nothing and gives the first one's offset.
        """
        ...

    def publish_many(self, items: Iterable[P | NewEvent], tx: Any = None) -> list[int]:
        """Append events, all or none, in this order; their offsets."""
        ...

    def read(self, after: int = 0, limit: int = 1000, *, on_truncated: str = "raise") -> list[Event[P]]:
        """The first *limit* events after the offset *after*.

        `Truncated` if events behind *after* were pruned, unless ``on_truncated="skip"`` or *after* is 0.
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
        """Iterate over the events there are and those to come, without a gap or a duplicate between.

        *start* is ``"committed"`` (after the consumer's saved offset), ``"earliest"``, ``"latest"``, an offset
        or a moment.  A handled event is saved as the consumer's offset after the loop has asked for the next
        one: every *save_every_n* events, every *save_every_s* seconds, when there is nothing to do, and at
        the end; with both 0, never.

        A consumer's name has one holder at a time, who gets the events.  Another subscriber waits as a standby, and
        goes on from the saved offset when the holder ends or has died.  A holder that was replaced gets `LeaseLost`.
        With *exclusive* false each subscriber gets all events, under one name as well.
        """
        ...

    def offset(self, consumer: str) -> int:
        """Where the consumer is; 0 if it is unknown."""
        ...

    def save_offset(self, consumer: str, offset: int, tx: Any = None) -> bool:
        """Move the consumer forward; False if it is there or beyond already."""
        ...

    def seek(self, consumer: str, offset: int, tx: Any = None) -> None:
        """Move the consumer anywhere."""
        ...

    def head(self) -> int:
        """The highest offset at or below which nothing will appear any more; 0 for a new topic."""
        ...

    def offset_at(self, moment: datetime) -> int:
        """The *after* that yields everything created at or after *moment*."""
        ...

    def consumers(self) -> list[Consumer]:
        """The consumers that have saved an offset, by name."""
        ...

    def prune(
        self, *, older_than: Duration | None = None, max_keep: int | None = None, keep_unconsumed: bool = True
    ) -> int:
        """Drop events older than *older_than*, and all but the newest *max_keep*; how many.

        With *keep_unconsumed*, what a consumer has still to read stays.
        """
        ...

    def configure(
        self,
        *,
        retain: Duration | None = KEEP,
        max_keep: int | None = KEEP,
        keep_unconsumed: bool | None = KEEP,
    ) -> None:
        """Store what `EventKit.maintain` prunes from then on: events older than *retain*, and all but *max_keep*.

        None is the default again: to keep all for ever, or to keep what a consumer has still to read.  What is left
        out stays as it is.
        """
        ...

    def settings(self) -> StreamSettings:
        """What the stream is configured to."""
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

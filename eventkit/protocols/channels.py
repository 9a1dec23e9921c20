"""Channels: notifications for whoever listens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ..arguments import Duration
from ..records import Notification
from ..settings import ChannelSettings
from .subscriptions import AsyncSubscription, Subscription
from .terms import KEEP, P


class NotificationChannel(Protocol[P]):
    """A channel: whoever listens is told what is committed from then on."""

    name: str

    def notify(self, payload: P, *, headers: Mapping[str, str] | None = None, tx: Any = None) -> int:
        """Tell everyone who listens; the notification's id, which grows."""
        ...

    def listen(self, *, start: str | int = "now") -> Subscription[Notification[P]]:
        """Iterate over what is committed from this call on.

        *start* may also be ``"earliest"``, or an id to go on after.
        """
        ...

    def prune(self, *, older_than: Duration | None = None, max_keep: int | None = None) -> int:
        """Drop notifications older than *older_than*, and all but the newest *max_keep*; how many."""
        ...

    def configure(self, *, retain: Duration | None = KEEP, max_keep: int | None = KEEP) -> None:
        """Store what `EventKit.maintain` prunes from then on: what is older than *retain*, and all but *max_keep*.

        A day is what is kept where nothing else was said; None is to keep all for ever.  What is left out stays as
        it is.
        """
        ...

    def settings(self) -> ChannelSettings:
        """What the channel is configured to."""
        ...


class AsyncNotificationChannel(Protocol[P]):
    """`NotificationChannel`, awaited."""

    name: str

    async def notify(self, payload: P, *, headers: Mapping[str, str] | None = None, tx: Any = None) -> int: ...

    def listen(self, *, start: str | int = "now") -> AsyncSubscription[Notification[P]]: ...

    async def prune(self, *, older_than: Duration | None = None, max_keep: int | None = None) -> int: ...

    async def configure(self, *, retain: Duration | None = KEEP, max_keep: int | None = KEEP) -> None: ...

    async def settings(self) -> ChannelSettings: ...

"""`NotificationChannel`: one channel of the database, as a handle; and the commits of the database."""

from collections.abc import Callable
from typing import Any

from . import checks, protocols
from .checks import KEEP, MOST, Duration, Headers
from .codec import Codec, traced_headers
from .errors import PASSING
from .loops import Feed, located
from .operations import Operation
from .operations import channel as operations
from .operations.admin import CommitsAhead, ReadCommits
from .operations.queue import ConfigureChannel, ReadChannelSettings
from .plans import HAND, Plan, Sleep
from .values import ChannelStart, Notification


@protocols.documented(protocols.NotificationChannel)
class Channel:
    """The implementation of `protocols.NotificationChannel` and `AsyncNotificationChannel`."""

    def __init__(self, execute: Callable[..., Any], loops: Any, name: str, codec: Codec) -> None:
        self.name = checks.name("channel", name)
        self._execute = execute
        self._loops = loops
        self._codec = codec

    def notify(self, payload: Any, *, headers: Headers = None, tx: Any = None) -> Any:
        text = traced_headers(headers)
        return self._execute(operations.Notify(self.name, self._codec.encode(payload), text), tx)

    def listen(self, *, start: ChannelStart | int = "latest") -> Any:
        channels = (self.name,)
        return self._loops.iterate(Notifications(channels, self._codec, origin(start, channels)))

    def head(self) -> Any:
        return self._execute(operations.ReadChannelHead(self.name))

    def prune(self, *, older_than: Duration | None = None, keep_count: int | None = None) -> Any:
        return self._execute(operations.PruneNotifications(self.name, *checks.retention(older_than, keep_count)))

    def configure(self, *, keep: Duration | None = KEEP, keep_count: int | None = KEEP) -> Any:
        given = checks.settings(keep=(keep, checks.milliseconds), keep_count=(keep_count, checks.count))
        return self._execute(ConfigureChannel(self.name, list(given), **given))

    def settings(self) -> Any:
        return self._execute(ReadChannelSettings(self.name))


def origin(start: ChannelStart | int, channels: tuple[str, ...]) -> Any:
    """Return the operation that finds the id after which to start, or that id if it is known."""
    if isinstance(start, int):
        return checks.count("start", start)
    if checks.choice("start", start, ChannelStart) == "earliest":
        return 0
    return operations.FindNow(channels)


class Notifications(Feed[Notification[Any]]):
    """The notifications of some channels that are committed from now on."""

    def __init__(self, channels: tuple[str, ...], codec: Codec, origin: Operation[Any] | int) -> None:
        super().__init__()
        self._channels = channels
        self._codec = codec
        self._origin = origin
        self._last: tuple[int, int] | None = None
        self._seen: frozenset[int] = frozenset()

    def attach(self) -> Plan[None]:
        """Find the id after which to start."""
        if self._last is None:
            after, self._seen = yield from located(self._origin)
            last: Any = yield operations.FindNotification(self._channels, after, MOST)
            self._last = last

    def steps(self) -> Plan[None]:
        """Read and hand out."""
        while True:
            try:
                yield from self.attach()
                assert self._last is not None
                found, last = yield operations.FollowNotifications(self._channels, self._last, 1000, self._codec)
                self.items.extend(notification for notification in found if notification.id not in self._seen)
                while self.items:
                    yield HAND
                self._last = last
                if not found:
                    yield Sleep(operations.NotificationsAhead(self._channels, *last))
            except PASSING:
                continue

    def leave(self) -> Plan[None]:
        """Drop items that were not handed out: they are read again."""
        if self.current is not None:
            self._last = (self.current.id, self.current.created_ms)
        self.items.clear()
        yield from ()


class Changes(Feed[None]):
    """The commits of the database: an item for those since the last item was handed out."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: str | None = None

    def attach(self) -> Plan[None]:
        """Begin to notice commits: a backend may do so only once there is a waiter."""
        if self._seen is None:
            yield Sleep(CommitsAhead(""), 0.0)
            latest: Any = yield ReadCommits()
            self._seen = latest

    def steps(self) -> Plan[None]:
        """Sleep until the database is another one, and hand out."""
        while True:
            try:
                yield from self.attach()
                assert self._seen is not None
                yield Sleep(CommitsAhead(self._seen))
                latest: Any = yield ReadCommits()
                if latest != self._seen:
                    self._seen = latest
                    self.items.append(None)
                    yield HAND
            except PASSING:
                continue

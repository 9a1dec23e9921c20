"""`NotificationChannel`: one channel of the database, as a handle."""

from collections.abc import Callable, Mapping
from typing import Any

from . import checks
from .checks import KEEP, Duration
from .codec import Codec, encode_headers
from .feeds import Notifications
from .operations import channel as operations
from .operations.queue import ConfigureChannel, ReadChannelSettings
from .telemetry import with_trace


class Channel:
    """The implementation of `protocols.NotificationChannel` and `AsyncNotificationChannel`."""

    def __init__(self, execute: Callable[..., Any], loops: Any, name: str, codec: Codec) -> None:
        self.name = checks.name("channel", name)
        self._execute = execute
        self._loops = loops
        self._codec = codec

    def notify(self, payload: Any, *, headers: Mapping[str, str] | None = None, tx: Any = None) -> Any:
        """Send a notification to all listeners; return its id."""
        text = encode_headers(with_trace(headers))
        return self._execute(operations.Notify(self.name, self._codec.encode(payload), text), tx)

    def listen(self, *, start: str | int = "now") -> Any:
        """Iterate over the notifications that are committed from now on."""
        channels = (self.name,)
        return self._loops.iterate(Notifications(channels, self._codec, origin(start, channels)))

    def prune(self, *, older_than: Duration | None = None, max_keep: int | None = None) -> Any:
        """Delete the oldest notifications; return their number."""
        return self._execute(operations.PruneNotifications(self.name, *checks.retention(older_than, max_keep)))

    def configure(self, *, retain: Duration | None = KEEP, max_keep: int | None = KEEP) -> Any:
        """Store what `EventKit.maintain` prunes; None means to keep all, and omitted settings stay as they are."""
        given = checks.settings(retain=(retain, checks.milliseconds), max_keep=(max_keep, checks.count))
        return self._execute(ConfigureChannel(self.name, list(given), **given))

    def settings(self) -> Any:
        """Return the channel's settings."""
        return self._execute(ReadChannelSettings(self.name))


def origin(start: str | int, channels: tuple[str, ...]) -> Any:
    """Return the operation that finds the id after which to start, or that id if it is known."""
    if isinstance(start, int):
        return checks.count("start", start)
    if checks.choice("start", start, ("now", "earliest")) == "earliest":
        return 0
    return operations.FindNow(channels)

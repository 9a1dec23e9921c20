"""`NotificationChannel`: one channel of the database, as a handle."""

from collections.abc import Callable, Mapping
from typing import Any

from . import arguments
from .arguments import KEEP, Duration
from .codec import Codec, encode_headers
from .feeds import Notifications
from .operations import channel as operations
from .operations.retention import ConfigureChannel, ReadChannelSettings
from .telemetry import with_trace


class Channel:
    """Behaves as `eventkit.protocols.NotificationChannel` and `AsyncNotificationChannel` say."""

    def __init__(self, execute: Callable[..., Any], loops: Any, name: str, codec: Codec) -> None:
        self.name = arguments.name("channel", name)
        self._execute = execute
        self._loops = loops
        self._codec = codec

    def notify(self, payload: Any, *, headers: Mapping[str, str] | None = None, tx: Any = None) -> Any:
        """Tell everyone who listens; the notification's id."""
        text = encode_headers(with_trace(headers))
        return self._execute(operations.Notify(self.name, self._codec.encode(payload), text), tx)

    def listen(self, *, start: str | int = "now") -> Any:
        """Iterate over what is committed from now on."""
        channels = (self.name,)
        return self._loops.iterate(Notifications(channels, self._codec, origin(start, channels)))

    def prune(self, *, older_than: Duration | None = None, max_keep: int | None = None) -> Any:
        """Drop the oldest notifications; how many."""
        return self._execute(operations.PruneNotifications(self.name, *arguments.retention(older_than, max_keep)))

    def configure(self, *, retain: Duration | None = KEEP, max_keep: int | None = KEEP) -> Any:
        """Store what `EventKit.maintain` is to prune; None is for ever, or all, and what is left out stays."""
        given = arguments.settings(retain=(retain, arguments.milliseconds), max_keep=(max_keep, arguments.count))
        return self._execute(ConfigureChannel(self.name, list(given), **given))

    def settings(self) -> Any:
        """What the channel is configured to."""
        return self._execute(ReadChannelSettings(self.name))


def origin(start: str | int, channels: tuple[str, ...]) -> Any:
    """The operation that answers the id to start after; or that id, where it is known."""
    if isinstance(start, int):
        return arguments.count("start", start)
    if arguments.choice("start", start, ("now", "earliest")) == "earliest":
        return 0
    return operations.FindNow(channels)

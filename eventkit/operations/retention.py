"""What is asked of a database about how long things are kept: the settings of streams, channels and inboxes.

*given* names the settings that a call brings; the others stay as they are.  Durations are in milliseconds.
"""

from __future__ import annotations

from typing import ClassVar

from ..settings import ChannelSettings, InboxSettings, StreamSettings, seconds
from . import Operation, Rows


class _Configure(Operation[None], frozen=True):
    """Store some settings and leave the others as they are."""

    def decode(self, rows: Rows) -> None:
        """Nothing to say."""


class ConfigureStream(_Configure, frozen=True):
    """Store settings of a topic."""

    topic: str
    given: list[str]
    retain: int | None = None
    max_keep: int | None = None
    keep_unconsumed: bool = True


class ReadStreamSettings(Operation[StreamSettings], frozen=True):
    """The settings of a topic."""

    writes: ClassVar[bool] = False
    topic: str

    def decode(self, rows: Rows) -> StreamSettings:
        """Those of the row, or the defaults."""
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
    """The settings of a channel."""

    writes: ClassVar[bool] = False
    channel: str

    def decode(self, rows: Rows) -> ChannelSettings:
        """Those of the row, or the defaults."""
        for retain, max_keep in rows:
            return ChannelSettings(seconds(retain), max_keep)
        return ChannelSettings()


class ConfigureInbox(_Configure, frozen=True):
    """Store settings of a consumer's inbox."""

    consumer: str
    given: list[str]
    retain: int | None = None


class ReadInboxSettings(Operation[InboxSettings], frozen=True):
    """The settings of a consumer's inbox."""

    writes: ClassVar[bool] = False
    consumer: str

    def decode(self, rows: Rows) -> InboxSettings:
        """Those of the row, or the defaults."""
        return InboxSettings(seconds(rows[0][0])) if rows else InboxSettings()

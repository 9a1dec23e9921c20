"""What is asked of a database about notification channels."""

from __future__ import annotations

from typing import Any, ClassVar

from ..codec import Codec, DecodeError, decode_headers
from ..records import Notification
from . import Operation, Outlook, Rows


class Notify(Operation[int], frozen=True):
    """Send a notification; its id."""

    channel: str
    payload: str
    headers: str | None

    def decode(self, rows: Rows) -> int:
        """The id."""
        id: int = rows[0][0]
        return id


class ReadNotifications(Operation[list[Notification[Any]]], frozen=True):
    """The notifications of some channels after an id, in order."""

    writes: ClassVar[bool] = False
    channels: tuple[str, ...]
    after: int
    limit: int
    codec: Codec

    def decode(self, rows: Rows) -> list[Notification[Any]]:
        """One notification a row, with `Undecodable` for a payload that does not decode."""
        decode = self.codec.decode
        try:
            return [
                Notification(id, channel, decode(payload), decode_headers(headers), created)
                for id, channel, payload, headers, created in rows
            ]
        except DecodeError:
            return [
                Notification(id, channel, *self.codec.decode_or_wrap(payload, headers), created)
                for id, channel, payload, headers, created in rows
            ]


class ReadLastNotification(Operation[int], frozen=True):
    """The highest id a notification of any channel has had."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> int:
        """The id; 0 before the first."""
        return rows[0][0] if rows else 0


class NotificationsAhead(Operation[Outlook], frozen=True):
    """Whether any of the channels has a notification after an id."""

    writes: ClassVar[bool] = False
    channels: tuple[str, ...]
    after: int

    def decode(self, rows: Rows) -> Outlook:
        """Ready or not; no moment will change it."""
        return Outlook(bool(rows[0][0]))


class PruneNotifications(Operation[int], frozen=True):
    """Drop the channel's notifications older than a duration, and those beyond a number; how many."""

    channel: str
    older_than: int | None
    max_keep: int | None

    def decode(self, rows: Rows) -> int:
        """How many went."""
        return len(rows)

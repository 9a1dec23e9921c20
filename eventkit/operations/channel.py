"""What is asked of a database about notification channels."""

from __future__ import annotations

from typing import Any, ClassVar

from ..codec import Codec, DecodeError, decode_headers
from ..records import Notification
from . import Operation, Origin, Outlook, Plan, Probe, Rows


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


class FollowNotifications(Operation[tuple[list[Notification[Any]], tuple[int, int]]], frozen=True):
    """The notifications after the last one that was read, given by id and moment; and what is then the last one.

    A database that has gone back gives ids once more: reading goes on behind the last notification that is no younger.
    """

    writes: ClassVar[bool] = False
    channels: tuple[str, ...]
    last: tuple[int, int]
    limit: int
    codec: Codec

    def plan(self) -> Plan[tuple[list[Notification[Any]], tuple[int, int]]]:
        """Read the last one once more with the next ones: while it is there, nothing was lost."""
        (after, created), rows = self.last, []
        if created:
            rows = yield ReadNotifications(self.channels, after - 1, self.limit + 1, self.codec)
        if rows and rows[0][0] == after and rows[0][-1] <= created:
            del rows[0]
        else:
            if created:  # It was pruned, or is lost.
                [(after, created)] = yield FindNotification(self.channels, after, created)
            rows = yield ReadNotifications(self.channels, after, self.limit, self.codec)
        found = ReadNotifications(self.channels, after, self.limit, self.codec).decode(rows)
        return found, (rows[-1][0], rows[-1][-1]) if rows else (after, created)


class FindNotification(Operation[tuple[int, int]], frozen=True):
    """The channels' last notification up to an id and a moment, by id and moment; zeros where there is none."""

    writes: ClassVar[bool] = False
    channels: tuple[str, ...]
    last: int
    created: int

    def decode(self, rows: Rows) -> tuple[int, int]:
        """The one row."""
        id, created = rows[0]
        return id, created


class FindNow(Operation[Origin], frozen=True):
    """Where what the channels are told from now on begins."""

    writes: ClassVar[bool] = False
    channels: tuple[str, ...]

    def decode(self, rows: Rows) -> Origin:
        """The first row is the last id, and further ones are notifications above it that are visible already."""
        (last,), *seen = rows
        return Origin(last, frozenset(id for (id,) in seen))


class NotificationsAhead(Probe, frozen=True):
    """Whether any of the channels has a notification after an id, or has lost that one, of that moment."""

    channels: tuple[str, ...]
    after: int
    created: int = 0

    @property
    def subjects(self) -> tuple[str, ...]:
        """The channels."""
        return tuple(f"notification:{channel}" for channel in self.channels)

    def decode(self, rows: Rows) -> Outlook:
        """Ready or not; and when to look for what is committed but has not settled, where that can be."""
        ready, *moments = rows[0]
        return Outlook(bool(ready), *moments)


class PruneNotifications(Operation[int], frozen=True):
    """Drop the channel's notifications older than a duration, and those beyond a number; how many."""

    channel: str
    older_than: int | None
    max_keep: int | None

    def plan(self) -> Plan[int]:
        """Find the last of them, and drop up to it."""
        [(last,)] = yield FindPrunableNotifications(self.channel, self.older_than, self.max_keep)
        return 0 if last is None else len((yield DropNotifications(self.channel, last)))


class FindPrunableNotifications(Operation[int | None], frozen=True):
    """The last id of what `PruneNotifications` would drop; None for nothing."""

    writes: ClassVar[bool] = False
    channel: str
    older_than: int | None
    max_keep: int | None

    def decode(self, rows: Rows) -> int | None:
        """The id."""
        last: int | None = rows[0][0]
        return last


class DropNotifications(Operation[None], frozen=True):
    """Delete the channel's notifications up to an id."""

    channel: str
    last: int

"""Operations on notification channels."""

from __future__ import annotations

from typing import Any

from ..codec import Codec, DecodeError, decode_headers
from ..values import Notification
from . import Operation, Origin, Plan, Probe, Read, Rows, first, step


class Notify(Operation[int], frozen=True):
    """Send a notification; return its id."""

    channel: str
    payload: str
    headers: str | None
    decode = first


class ReadNotifications(Read[list[Notification[Any]]], frozen=True):
    """Read the notifications of some channels after an id, in order."""

    channels: tuple[str, ...]
    after: int
    limit: int
    codec: Codec

    def decode(self, rows: Rows) -> list[Notification[Any]]:
        """Return the notifications, with `Undecodable` for a payload that does not decode."""
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


class FollowNotifications(Read[tuple[list[Notification[Any]], tuple[int, int]]], frozen=True):
    """Read the notifications after the last one read, which is given by id and time; return the new last one too.

    A database restored to an earlier state assigns ids again: reading continues after the last notification that is no
    younger.
    """

    channels: tuple[str, ...]
    last: tuple[int, int]
    limit: int
    codec: Codec

    def plan(self) -> Plan[tuple[list[Notification[Any]], tuple[int, int]]]:
        """Read the last one again with the next ones: while it is there, none was lost."""
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


class FindNotification(Read[tuple[int, int]], frozen=True):
    """Find the channels' last notification up to an id and a time; return its id and time, or zeros if none."""

    channels: tuple[str, ...]
    last: int
    created: int

    def decode(self, rows: Rows) -> tuple[int, int]:
        id, created = rows[0]
        return id, created


class FindNow(Read[Origin], frozen=True):
    """Find the start of a listener that wants notifications committed from now on."""

    channels: tuple[str, ...]

    def decode(self, rows: Rows) -> Origin:
        """Return the last id from the first row; further rows are notifications above it that are visible already."""
        (last,), *seen = rows
        return Origin(last, frozenset(id for (id,) in seen))


class NotificationsAhead(Probe, frozen=True):
    """A probe that is ready when a channel has a notification after an id, or lost the one with that id and time."""

    channels: tuple[str, ...]
    after: int
    created: int = 0

    @property
    def subjects(self) -> tuple[str, ...]:
        return tuple(f"notification:{channel}" for channel in self.channels)


class ReadChannelHead(Read[int], frozen=True):
    """Read the id of the channel's last settled notification; 0 if none is stored."""

    channel: str
    decode = first


class PruneNotifications(Operation[int], frozen=True):
    """Delete the channel's notifications older than a duration, and those beyond a number; return their number."""

    channel: str
    older_than: int | None
    keep_count: int | None

    def plan(self) -> Plan[int]:
        """Find the last of them, and delete up to it."""
        [(last,)] = yield FindPrunableNotifications(self.channel, self.older_than, self.keep_count)
        return 0 if last is None else len((yield step("DropNotifications", channel=self.channel, last=last)))


class FindPrunableNotifications(Read[int | None], frozen=True):
    """Find the last id that `PruneNotifications` would delete; None if there is none."""

    channel: str
    older_than: int | None
    keep_count: int | None
    decode = first

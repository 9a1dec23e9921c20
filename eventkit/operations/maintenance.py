"""Operations of maintenance: move due tasks, delete expired rows.

`upkeep` yields all of them, to execute one after the other, each in a transaction of its own.  Those that change rows
are chores: each takes a bounded number of rows, so that its transaction is short, and returns how many it found.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, ClassVar

from ..values import Maintained
from . import Operation, Plan, Rows, all_rows, column
from .channel import FindPrunableNotifications
from .claim import MOVED_AT_ONCE, promote
from .finish import ForgetKeys, Remove
from .stream import FindPrunable, drop_events


class _Chore(Operation[int], frozen=True):
    """A part of the work; it returns a number of rows, less than `limit` when the work is done."""

    kind: ClassVar[str]
    limit: int = MOVED_AT_ONCE

    def decode(self, rows: Rows) -> int:
        """Return the number of rows."""
        return len(rows)


class FindDueQueues(Operation[list[str]], frozen=True):
    """Find the queues that have due, lapsed or expired tasks which were not moved yet."""

    writes: ClassVar[bool] = False
    decode = column


class MoveDue(_Chore, frozen=True, kw_only=True):
    """Move the queue's due tasks."""

    kind: ClassVar[str] = "moved"
    queue: str

    def plan(self) -> Plan[int]:
        return (yield from promote(self.queue, self.limit))


class BoundLeases(_Chore, frozen=True):
    """Shorten leases that a clock ahead of the present one has granted to at most their length from now."""

    kind: ClassVar[str] = "moved"


class DropKeys(_Chore, frozen=True):
    """Delete expired reservations of keys."""

    kind: ClassVar[str] = "keys"

    def plan(self) -> Plan[int]:
        return len((yield ForgetKeys(self.limit)))


class DropDone(_Chore, frozen=True):
    """Delete done tasks whose retention has ended; all of them if their queue no longer keeps any."""

    kind: ClassVar[str] = "done"


class DropDead(_Chore, frozen=True):
    """Delete dead letters whose retention by their queue has ended."""

    kind: ClassVar[str] = "dead"

    def plan(self) -> Plan[int]:
        """Find them, and delete them; their keys may still be reserved afterwards."""
        ids = [id for (id,) in (yield self)]
        if ids:
            yield from Remove(ids).plan()
        return len(ids)


class DropResults(_Chore, frozen=True):
    """Delete expired results."""

    kind: ClassVar[str] = "results"


class DropRates(_Chore, frozen=True):
    """Delete past rate limit windows, and full token buckets."""

    kind: ClassVar[str] = "limits"


class DropSeen(_Chore, frozen=True):
    """Delete the ids of messages that inboxes have remembered for long enough."""

    kind: ClassVar[str] = "inbox"


class DropLeftStaged(_Chore, frozen=True):
    """Delete rows that were staged a day ago, and not taken since."""

    kind: ClassVar[str] = "staged"


class DropWritten(_Chore, frozen=True):
    """Delete the expired marks of batches."""

    kind: ClassVar[str] = "written"


class FindStaleTopics(Operation[Rows], frozen=True):
    """Find the topics that may have events to prune: ``topic, retain, max_keep, keep_unconsumed``."""

    writes: ClassVar[bool] = False
    decode = all_rows


class PruneTopic(_Chore, frozen=True, kw_only=True):
    """Delete the topic's first events up to an offset, while its settings are unchanged."""

    kind: ClassVar[str] = "events"
    topic: str
    retain: int | None
    max_keep: int | None
    keep_unconsumed: bool
    last: int

    def plan(self) -> Plan[int]:
        """Lock the range of this step against other processes, and delete it."""
        [(last,)] = yield self
        return (yield from drop_events(self.topic, last))


class FindStaleChannels(Operation[Rows], frozen=True):
    """Find the channels that may have notifications to prune: ``channel, retain, max_keep``."""

    writes: ClassVar[bool] = False
    decode = all_rows


class PruneChannel(_Chore, frozen=True, kw_only=True):
    """Delete the channel's first notifications up to an id, while its settings are unchanged."""

    kind: ClassVar[str] = "notifications"
    channel: str
    retain: int | None
    max_keep: int | None
    last: int


def upkeep() -> Generator[Operation[Any], Any, Maintained]:
    """Yield all operations of maintenance, and return what was found."""
    found = dict.fromkeys(Maintained.__struct_fields__, 0)
    yield from _exhaust(BoundLeases(), found)
    # Expired keys go before dead letters, whose deletion removes some uncounted.
    for queue in (yield FindDueQueues()):
        yield from _exhaust(MoveDue(queue=queue), found)
    for drop in (DropKeys, DropDone, DropDead, DropResults, DropRates, DropSeen, DropLeftStaged, DropWritten):
        yield from _exhaust(drop(), found)
    for topic, retain, max_keep, keep in (yield FindStaleTopics()):
        last = yield FindPrunable(topic, retain, max_keep, keep)
        if last is not None:
            step = PruneTopic(topic=topic, retain=retain, max_keep=max_keep, keep_unconsumed=keep, last=last)
            yield from _exhaust(step, found)
    for channel, retain, max_keep in (yield FindStaleChannels()):
        last = yield FindPrunableNotifications(channel, retain, max_keep)
        if last is not None:
            yield from _exhaust(PruneChannel(channel=channel, retain=retain, max_keep=max_keep, last=last), found)
    return Maintained(**found)


def _exhaust(chore: _Chore, found: dict[str, int]) -> Generator[Operation[Any], Any, None]:
    number = chore.limit
    while number >= chore.limit:
        number = yield chore
        found[chore.kind] += number

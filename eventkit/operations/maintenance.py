"""What is asked of a database to put it in order: moving what is due, deleting what says nothing any more.

`upkeep` is all there is to do, as operations to execute one after the other, each in a transaction of its own.  Those
that change something are chores: each takes a bounded number of rows, so that its transaction is short, and answers
how many it has found.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, ClassVar

from ..findings import Maintained
from . import Operation, Plan, Rows
from .channel import FindPrunableNotifications
from .claim import MOVED_AT_ONCE, promote
from .finish import ForgetKeys, Remove
from .stream import FindPrunable, drop_events
from .tick import BoundSchedules


class _Chore(Operation[int], frozen=True):
    """Some of the work; how many rows it came to, which are fewer than `limit` when the work is done."""

    kind: ClassVar[str]
    limit: int = MOVED_AT_ONCE

    def decode(self, rows: Rows) -> int:
        """As many as rows."""
        return len(rows)


class FindDueQueues(Operation[list[str]], frozen=True):
    """The queues in which tasks are due, have lapsed or have expired and were not moved yet."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> list[str]:
        """One name a row."""
        return [name for (name,) in rows]


class MoveDue(_Chore, frozen=True, kw_only=True):
    """Move what is due in the queue."""

    kind: ClassVar[str] = "moved"
    queue: str

    def plan(self) -> Plan[int]:
        """One step of a sweep."""
        return (yield from promote(self.queue, self.limit))


class BoundLeases(_Chore, frozen=True):
    """Have leases of tasks that a clock ahead of ours has claimed end at most their length from now."""

    kind: ClassVar[str] = "moved"


class BoundRates(_Chore, frozen=True):
    """Have windows and buckets that a clock ahead of ours has counted go on from now."""

    kind: ClassVar[str] = "moved"


class BoundBuckets(_Chore, frozen=True):
    """Have the buckets of queues that a clock ahead of ours has filled go on from now."""

    kind: ClassVar[str] = "moved"


class DropKeys(_Chore, frozen=True):
    """Delete reservations of keys that have ended."""

    kind: ClassVar[str] = "keys"

    def plan(self) -> Plan[int]:
        """The oldest of them."""
        return len((yield ForgetKeys(self.limit)))


class DropDone(_Chore, frozen=True):
    """Delete tasks that were kept when they were done, for as long as their queue says; all, if it says so no more."""

    kind: ClassVar[str] = "done"


class DropDead(_Chore, frozen=True):
    """Delete dead letters that were kept for as long as their queue says."""

    kind: ClassVar[str] = "dead"

    def plan(self) -> Plan[int]:
        """A look for them, and their removal, after which their keys may still be reserved."""
        ids = [id for (id,) in (yield self)]
        if ids:
            yield from Remove(ids).plan()
        return len(ids)


class DropResults(_Chore, frozen=True):
    """Delete results that have expired."""

    kind: ClassVar[str] = "results"


class DropRates(_Chore, frozen=True):
    """Delete windows that are over, and buckets that are full again."""

    kind: ClassVar[str] = "limits"


class DropSeen(_Chore, frozen=True):
    """Forget messages that inboxes have remembered for as long as they were told to."""

    kind: ClassVar[str] = "inbox"


class DropLeftStaged(_Chore, frozen=True):
    """Delete what was put aside for a batch a day ago, and not taken since."""

    kind: ClassVar[str] = "staged"


class DropWritten(_Chore, frozen=True):
    """Forget the marks of batches that were to be kept until now."""

    kind: ClassVar[str] = "written"


class FindStaleTopics(Operation[Rows], frozen=True):
    """The topics of which something may have to go: ``topic, retain, max_keep, keep_unconsumed``."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> Rows:
        """A topic a row."""
        return rows


class PruneTopic(_Chore, frozen=True, kw_only=True):
    """Drop the topic's first events up to an offset, as long as its settings stay what they were."""

    kind: ClassVar[str] = "events"
    topic: str
    retain: int | None
    max_keep: int | None
    keep_unconsumed: bool
    last: int

    def plan(self) -> Plan[int]:
        """How far this step goes, which nobody else takes meanwhile, and the step."""
        [(last,)] = yield self
        return (yield from drop_events(self.topic, last))


class FindStaleChannels(Operation[Rows], frozen=True):
    """The channels of which something may have to go: ``channel, retain, max_keep``."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> Rows:
        """A channel a row."""
        return rows


class PruneChannel(_Chore, frozen=True, kw_only=True):
    """Drop the channel's first notifications up to an id, as long as its settings stay what they were."""

    kind: ClassVar[str] = "notifications"
    channel: str
    retain: int | None
    max_keep: int | None
    last: int


def upkeep() -> Generator[Operation[Any], Any, Maintained]:
    """All there is to do, and what was found."""
    found = dict.fromkeys(Maintained.__struct_fields__, 0)
    for bound in (BoundLeases, BoundRates, BoundBuckets):
        yield from _exhaust(bound(), found)
    found["moved"] += yield BoundSchedules()
    # Keys that have ended go before dead letters, which take some along that would not be counted.
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

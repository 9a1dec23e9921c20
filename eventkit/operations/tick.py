"""What is asked of a database to fire schedules.

A fire is a task, and the schedule's step to its next moment, in one transaction; whoever ticks holds the schedules
meanwhile.  So whoever else ticks, and whenever anybody dies, each fire comes to one task.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from ..arguments import as_datetime, moment
from ..codec import decode_headers, encode_headers
from ..cron import Cron, Interval, When, parse
from ..records import FIRE, SCHEDULE, Fire
from . import Operation, Plan
from .schedule import Settings

MOST_FIRES = 64
"""How many missed fires ``catch_up="all"`` makes up for at once."""

LATE = 60_000
"""Milliseconds by which ``catch_up="none"`` still lets a schedule be late."""

MOST_COUNTED = 10_000
"""How many missed fires of a cron expression are counted: each has to be searched for."""

_AT_ONCE = 100
"""Schedules in one transaction, or fewer where `MOST_COUNTED` fires were searched for."""

FiredTask = tuple[str, str, str | None, int, int | None, int, int | None]
"""``queue, payload, headers, priority, max_attempts, run_at, expires_at``."""

Move = tuple[str, int, int | None, int, int]
"""``name, next_at, last_at``, and by how many there are more ``fired`` and ``skipped``."""


class Ticked(NamedTuple):
    """What a tick came to, at which moment, and whether there may be *more* to fire."""

    fires: list[Fire]
    moment: int | None
    more: bool


class Tick(Operation[Ticked], frozen=True):
    """Fire what is due at *moment*, or now."""

    moment: int | None
    limit: int = _AT_ONCE

    def plan(self) -> Plan[Ticked]:
        """The schedules that are due; their tasks; their next moments."""
        due = yield self
        if not due:
            return Ticked([], self.moment, False)
        # Each row tells the time for itself, and the last may have been found later than the first.
        now: int = max(row[-1] for row in due)
        fires: list[tuple[str, str, int]] = []
        tasks: list[FiredTask] = []
        moves: list[Move] = []
        searched = 0
        for name, *row, next_at, _ in due:
            settings = Settings(*row)
            came = missed(parse(settings.when, settings.tz), next_at, max(now, next_at))
            moments = came.caught_up(settings.catch_up, now)
            fires += [(name, settings.queue, at) for at in moments]
            tasks += _tasks(name, settings, moments)
            moves.append((name, came.following, max(moments, default=None), len(moments), came.number - len(moments)))
            searched += came.searched
            if searched >= MOST_COUNTED:
                break
        ids = (yield EnqueueFires(tasks)) if tasks else []
        yield MoveSchedules(moves)
        more = len(moves) < len(due) or len(due) == self.limit
        return Ticked([Fire(*fire, id) for fire, (id,) in zip(fires, ids, strict=True)], now, more)


class BoundSchedules(Operation[int], frozen=True):
    """Move the next fire of each schedule to its first one after now, if a clock that was ahead has set a later one."""

    def plan(self) -> Plan[int]:
        """A look at all that are not due, and the move of those that are too late; how many."""
        moves: list[Move] = []
        for name, when, tz, next_at, now in (yield self):
            first = _first_after(parse(when, tz), next_at, now)
            if first < next_at:
                moves.append((name, first, None, 0, 0))
        if moves:
            yield MoveSchedules(moves)
        return len(moves)


class EnqueueFires(Operation[None], frozen=True):
    """Add the tasks to their queues, and tell their ids, in this order."""

    tasks: list[FiredTask]


class MoveSchedules(Operation[None], frozen=True):
    """Let the schedules go on to their next fires."""

    moves: list[Move]


class Missed(NamedTuple):
    """The fires that have come since somebody looked last: the *oldest*, the *newest*, and the *number* of all."""

    oldest: list[int]
    newest: int
    number: int
    following: int
    """The one that has not come yet."""
    searched: int
    """How many took a search."""

    def caught_up(self, catch_up: str, now: int) -> list[int]:
        """Those that are to be made up for."""
        if catch_up == "all":
            return self.oldest
        if catch_up == "latest" or now - self.newest <= LATE:
            return [self.newest]
        return []


def missed(when: When, first: int, now: int) -> Missed:
    """The fires from *first*, which is one, up to *now*."""
    if isinstance(when, Interval):
        length = int(when.length.total_seconds()) * 1000
        number = (now - first) // length + 1
        oldest = [first + n * length for n in range(min(number, MOST_FIRES))]
        newest = first + (number - 1) * length
        return Missed(oldest, newest, number, newest + length, len(oldest))
    found = list(islice(_moments(when, first, now), MOST_COUNTED))
    newest = found[-1] if len(found) < MOST_COUNTED else _newest(when, found[-1], now)
    return Missed(found[:MOST_FIRES], newest, len(found), _after(when, now), len(found))


def _tasks(schedule: str, settings: Settings, moments: list[int]) -> Iterator[FiredTask]:
    names = decode_headers(settings.headers)
    for at in moments:
        headers = encode_headers({**names, SCHEDULE: schedule, FIRE: as_datetime(at).isoformat()})
        expires_at = None if settings.expires is None else at + settings.expires
        yield (settings.queue, settings.payload, headers, settings.priority, settings.max_attempts, at, expires_at)


def _first_after(when: When, known: int, now: int) -> int:
    """Return the first fire after *now*, where *known* is a later one."""
    if isinstance(when, Interval):
        length = int(when.length.total_seconds()) * 1000
        return now + ((known - now) % length or length)
    return _after(when, now)


def _after(cron: Cron, milliseconds: int) -> int:
    return moment("a fire", cron.after(as_datetime(milliseconds)))


def _moments(cron: Cron, first: int, now: int) -> Iterator[int]:
    while first <= now:
        yield first
        first = _after(cron, first)


def _newest(cron: Cron, known: int, now: int) -> int:
    """The last fire up to *now*, where *known* is one."""
    none_since = now
    while known < none_since:
        middle = (known + none_since) // 2
        found = _after(cron, middle)
        if found <= now:
            known = found
        else:
            none_since = middle
    return known

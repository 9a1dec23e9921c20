"""Operations on schedules, and the tick that fires them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from ..checks import as_datetime, moment
from ..codec import Codec, decode_headers, encode_headers
from ..cron import Cron, Interval, When, parse
from ..values import FIRE, SCHEDULE, Fire, Schedule
from . import Operation, Plan, Probe, Read, Rows, first, first_time, flag, step


class Settings(msgspec.Struct, frozen=True):
    """The settings of a schedule: when it fires, and the task it creates.  *payload* and *headers* are JSON text."""

    when: str
    tz: str
    queue: str
    payload: str
    headers: str | None
    priority: int
    expires: int | None
    max_attempts: int | None
    catch_up: str

    def next_after(self, milliseconds: int) -> int:
        """Return the first fire after a time."""
        return moment("a fire", parse(self.when, self.tz).after(as_datetime(milliseconds)))


class ReadClock(Read[int], frozen=True):
    """Read the database's clock."""

    decode = first


class AddSchedule(Operation[None], frozen=True):
    """Add a schedule, or replace the one with the same name."""

    name: str
    settings: Settings
    paused: bool

    def plan(self) -> Plan[None]:
        """Read the clock, and write the schedule with its next fire."""
        [(now,)] = yield ReadClock()
        next_at = None if self.paused else self.settings.next_after(now)
        yield step("WriteSchedule", name=self.name, next_at=next_at, **msgspec.structs.asdict(self.settings))


class ChangeSchedule(Operation[bool], frozen=True):
    """Change some settings of a schedule, or *paused*; return False if there is none with that name."""

    name: str
    changes: dict[str, Any]
    paused: bool | None = None

    def plan(self) -> Plan[bool]:
        """Read and lock the schedule, and rewrite it."""
        rows = yield step("HoldSchedule", name=self.name)
        if not rows:
            return False
        *settings, next_at = rows[0]
        before = Settings(*settings)
        after = msgspec.structs.replace(before, **self.changes)
        paused = next_at is None if self.paused is None else self.paused
        if paused:
            next_at = None
        elif next_at is None or (after.when, after.tz) != (before.when, before.tz):
            [(now,)] = yield ReadClock()
            next_at = after.next_after(now)
        yield step("RewriteSchedule", name=self.name, next_at=next_at, **msgspec.structs.asdict(after))
        return True


class RemoveSchedule(Operation[bool], frozen=True):
    """Delete a schedule; return False if there is none with that name."""

    name: str
    decode = flag


class GetSchedule(Read[Schedule | None], frozen=True):
    """Read a schedule; None if there is none with that name."""

    name: str
    codec: Codec

    def decode(self, rows: Rows) -> Schedule | None:
        return _schedule(self.codec, rows[0]) if rows else None


class ListSchedules(Read[list[Schedule]], frozen=True):
    """Read all schedules, by name."""

    codec: Codec

    def decode(self, rows: Rows) -> list[Schedule]:
        return [_schedule(self.codec, row) for row in rows]


class ReadUpcoming(Read[list[datetime]], frozen=True):
    """Return the next *count* times at which a schedule fires, if it is not changed."""

    name: str
    count: int
    codec: Codec

    def plan(self) -> Plan[list[datetime]]:
        """Read the schedule's next fire, and compute those that follow."""
        schedule = yield from GetSchedule(self.name, self.codec).plan()
        if schedule is None or schedule.next_at is None:
            return []
        when = parse(schedule.when, schedule.tz)
        moments = [schedule.next_at]
        while len(moments) < self.count:
            moments.append(when.after(moments[-1]))
        return moments


class ReadSoonest(Read[datetime | None], frozen=True):
    """Read when the next schedule fires."""

    decode = first_time


class SchedulesAhead(Probe, frozen=True):
    """A probe that is ready when a tick would fire a schedule, and due at the next fire."""

    subject = "schedule:all"


def _schedule(codec: Codec, row: tuple[Any, ...]) -> Schedule:
    name, when, tz, queue, payload, headers, priority, expires, max_attempts, catch_up, next_at, *history = row
    value, names = codec.decode_or_wrap(payload, headers)
    seconds = None if expires is None else expires / 1000
    paused = next_at is None
    return Schedule(
        name, when, tz, queue, value, names, priority, seconds, max_attempts, catch_up, paused, next_at, *history
    )


MOST_FIRES = 64
"""The maximum number of missed fires that ``catch_up="all"`` creates at once."""

LATE = 60_000
"""The milliseconds by which a fire may be late with ``catch_up="none"``."""

MOST_COUNTED = 10_000
"""The maximum number of missed fires of a cron expression that are counted: each has to be searched for."""

_AT_ONCE = 100
"""The schedules in one transaction, or fewer where `MOST_COUNTED` fires were searched for."""

FiredTask = tuple[str, str, str | None, int, int | None, int, int | None]
"""``queue, payload, headers, priority, max_attempts, run_at, expires_at``."""

Move = tuple[str, int, int | None, int, int]
"""``name, next_at, last_at``, and what to add to ``fired`` and ``skipped``."""


class Ticked(NamedTuple):
    """The fires of a tick, its time, and whether there may be *more* to fire."""

    fires: list[Fire]
    moment: int | None
    more: bool


class Tick(Operation[Ticked], frozen=True):
    """Fire what is due at *moment*, or now.  A tick now also repairs schedules set by a clock that was ahead."""

    moment: int | None
    limit: int = _AT_ONCE

    def plan(self) -> Plan[Ticked]:
        """Read the due schedules, enqueue their tasks, and move them to their next fires."""
        due = yield self
        if not due:
            return Ticked([], self.moment, False)
        # Each row has its own time, and the last row may be read later than the first.
        now: int = max(at for *_, at in due)
        fires: list[tuple[str, str, int]] = []
        tasks: list[FiredTask] = []
        moves: list[Move] = []
        searched = 0
        for name, *row, next_at, _ in due:
            settings = Settings(*row)
            when = parse(settings.when, settings.tz)
            if next_at > now:  # The clock was ahead when it was set.
                moves.append((name, min(next_at, _first_after(when, next_at, now)), None, 0, 0))
                continue
            came = missed(when, next_at, now)
            moments = came.caught_up(settings.catch_up, now)
            fires += [(name, settings.queue, at) for at in moments]
            tasks += _tasks(name, settings, moments)
            moves.append((name, came.following, max(moments, default=None), len(moments), came.number - len(moments)))
            searched += came.searched
            if searched >= MOST_COUNTED:
                break
        ids = (yield step("EnqueueFires", tasks=tasks)) if tasks else []
        yield step("MoveSchedules", moves=moves)
        more = len(moves) < len(due) or len(due) == self.limit
        return Ticked([Fire(*fire, id) for fire, (id,) in zip(fires, ids, strict=True)], now, more)


def tick(now: int | None = None, whole: bool = False) -> Generator[Any, Any, list[Fire]]:
    """Fire everything that is due at *now*, or at present: in several transactions, or if *whole* in the caller's."""
    fires: list[Fire] = []
    while True:
        ticked: Ticked = (yield from Tick(now).plan()) if whole else (yield Tick(now))
        fires += ticked.fires
        if not ticked.more:
            return fires
        now = ticked.moment


class TickWhole(Operation[list[Fire]], frozen=True):
    """Fire everything that is due at *moment*, or now, in one transaction."""

    moment: int | None

    def plan(self) -> Plan[list[Fire]]:
        return tick(self.moment, whole=True)


class Missed(NamedTuple):
    """The fires since the last tick: the *oldest*, the *newest*, and the *number* of all."""

    oldest: list[int]
    newest: int
    number: int
    following: int
    """The first fire in the future."""
    searched: int
    """The number of fires that were found by a search."""

    def caught_up(self, catch_up: str, now: int) -> list[int]:
        """Return the fires to create."""
        if catch_up == "all":
            return self.oldest
        if catch_up == "latest" or now - self.newest <= LATE:
            return [self.newest]
        return []


def missed(when: When, first: int, now: int) -> Missed:
    """Return the fires from *first*, which is one, up to *now*."""
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
    """Return the last fire up to *now*, where *known* is one."""
    none_since = now
    while known < none_since:
        middle = (known + none_since) // 2
        found = _after(cron, middle)
        if found <= now:
            known = found
        else:
            none_since = middle
    return known

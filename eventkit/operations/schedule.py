"""What is asked of a database to keep schedules; `tick` is what fires them.

The database knows when a schedule fires next, and nothing of cron expressions: whoever writes a schedule says it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

import msgspec

from ..arguments import as_datetime, moment
from ..codec import Codec
from ..cron import parse
from ..records import Schedule
from . import Operation, Outlook, Plan, Probe, Rows


class Settings(msgspec.Struct, frozen=True):
    """What a schedule says: when it fires, and what task that makes.  *payload* and *headers* are JSON text."""

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
        """The first fire after a moment."""
        return moment("a fire", parse(self.when, self.tz).after(as_datetime(milliseconds)))


class ReadClock(Operation[int], frozen=True):
    """What time the database has."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> int:
        """Milliseconds since 1970."""
        now: int = rows[0][0]
        return now


class AddSchedule(Operation[None], frozen=True):
    """Keep a schedule, in the place of one of the same name."""

    name: str
    settings: Settings
    paused: bool

    def plan(self) -> Plan[None]:
        """The time, and the schedule with its next fire."""
        [(now,)] = yield ReadClock()
        next_at = None if self.paused else self.settings.next_after(now)
        yield WriteSchedule(self.name, next_at, *msgspec.structs.astuple(self.settings))


class WriteSchedule(Operation[None], frozen=True):
    """Make a schedule.  One that is there keeps its next fire where its time is the same, and stays paused."""

    name: str
    next_at: int | None
    when: str
    tz: str
    queue: str
    payload: str
    headers: str | None
    priority: int
    expires: int | None
    max_attempts: int | None
    catch_up: str

    def decode(self, rows: Rows) -> None:
        """Nothing to say."""


class ChangeSchedule(Operation[bool], frozen=True):
    """Change some settings of a schedule, or whether it is *paused*; False if there is none of that name."""

    name: str
    changes: dict[str, Any]
    paused: bool | None = None

    def plan(self) -> Plan[bool]:
        """The schedule as it is, and as it shall be."""
        rows = yield HoldSchedule(self.name)
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
        yield RewriteSchedule(self.name, next_at, *msgspec.structs.astuple(after))
        return True


class HoldSchedule(Operation[None], frozen=True):
    """A schedule, as `Settings` has it, and its next fire.  Until the transaction ends, nobody else changes it."""

    name: str


class RewriteSchedule(WriteSchedule, frozen=True):
    """Let a schedule that is there be like this."""


class RemoveSchedule(Operation[bool], frozen=True):
    """Forget a schedule; False if there is none of that name."""

    name: str

    def decode(self, rows: Rows) -> bool:
        """A row is gone."""
        return bool(rows)


class GetSchedule(Operation[Schedule | None], frozen=True):
    """A schedule."""

    writes: ClassVar[bool] = False
    name: str
    codec: Codec

    def decode(self, rows: Rows) -> Schedule | None:
        """None if there is none of that name."""
        return _schedule(self.codec, rows[0]) if rows else None


class ListSchedules(Operation[list[Schedule]], frozen=True):
    """All schedules, by name."""

    writes: ClassVar[bool] = False
    codec: Codec

    def decode(self, rows: Rows) -> list[Schedule]:
        """One for each row."""
        return [_schedule(self.codec, row) for row in rows]


class ReadUpcoming(Operation[list[datetime]], frozen=True):
    """The next *count* moments at which a schedule fires, if nobody changes it."""

    writes: ClassVar[bool] = False
    name: str
    count: int
    codec: Codec

    def plan(self) -> Plan[list[datetime]]:
        """The schedule's next fire, and those that follow."""
        rows = yield GetSchedule(self.name, self.codec)
        schedule = _schedule(self.codec, rows[0]) if rows else None
        if schedule is None or schedule.next_at is None:
            return []
        when = parse(schedule.when, schedule.tz)
        moments = [schedule.next_at]
        while len(moments) < self.count:
            moments.append(when.after(moments[-1]))
        return moments


class ReadSoonest(Operation[datetime | None], frozen=True):
    """When the next schedule fires."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> datetime | None:
        """The moment; None where no schedule will fire."""
        return None if rows[0][0] is None else as_datetime(rows[0][0])


class SchedulesAhead(Probe, frozen=True):
    """Whether a tick would come to something now, or when it will."""

    @property
    def subjects(self) -> tuple[str, ...]:
        """All schedules."""
        return ("schedule:all",)

    def decode(self, rows: Rows) -> Outlook:
        """Ready, or due at the soonest fire."""
        ready, due, now = rows[0]
        return Outlook(True, None, now) if ready else Outlook(False, due, now)


def _schedule(codec: Codec, row: tuple[Any, ...]) -> Schedule:
    name, when, tz, queue, payload, headers, priority, expires, max_attempts, catch_up, next_at, *history = row
    value, names = codec.decode_or_wrap(payload, headers)
    seconds = None if expires is None else expires / 1000
    paused = next_at is None
    return Schedule(
        name, when, tz, queue, value, names, priority, seconds, max_attempts, catch_up, paused, next_at, *history
    )

"""The fires of a schedule: cron expressions in a time zone, and plain intervals.

A cron expression refers to the local clock, which a zone sets forward and back.  If its hour field begins with ``*``,
the expression follows real time: it fires whenever the local clock matches, again in a repeated hour, and not in a
skipped one.  Any other hour field refers to the local day: a time that is skipped fires once, at the first moment after
the gap, and a time that is repeated fires the first time only.
"""

import re
from copy import copy
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from croniter import CroniterBadDateError, CroniterError, croniter

from . import checks

_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_INTERVAL = re.compile(r"@every (?:\d{1,9}[smhd])+")
_RANGE = re.compile(r"([0-9a-z]+)-([0-9a-z]+)(?:/\d+)?")
_CHANCE = re.compile(r"(?<![a-z])[rh](?![a-z])")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_NUMBERS = {name: number for names in (_MONTHS, _DAYS) for number, name in enumerate(names, 1)}
"""The numbers of months and days in the order of ranges: Sunday is the last day here."""

_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)


class Interval(NamedTuple):
    """A fixed interval, counted from the previous fire."""

    length: timedelta

    def after(self, moment: datetime) -> datetime:
        """Return the next fire after one at *moment*."""
        return moment.astimezone(UTC) + self.length


class Cron(NamedTuple):
    """A cron expression with seconds, in a zone."""

    expression: str
    zone: tzinfo
    real: bool
    """True if it follows real time rather than the local clock."""

    def after(self, moment: datetime) -> datetime:
        """Return the first fire later than *moment*."""
        moment = moment.astimezone(UTC)
        return self._real_after(moment) if self.real else self._wall_after(moment)

    def _match_after(self, local: datetime) -> datetime:
        """Return the first match after a local time; the zone may skip it."""
        search = copy(_search(self.expression))
        # croniter would round fractions of a second, and they are no part of the answer.
        search.set_current(local.replace(microsecond=0))
        found: datetime = search.get_next(datetime)
        return found

    def _real_after(self, moment: datetime) -> datetime:
        begin = moment
        while True:
            offset = self._offset(begin)
            # The local time if the zone's offset did not change.
            found = self._match_after((begin + offset).replace(tzinfo=None)).replace(tzinfo=UTC) - offset
            change = self._change(begin, found)
            if change is None:
                return found
            begin = change
            if self._shows_match(begin):
                return begin

    def _wall_after(self, moment: datetime) -> datetime:
        local = moment.astimezone(self.zone).replace(tzinfo=None)
        while True:
            local = self._match_after(local)
            found = local.replace(tzinfo=self.zone).astimezone(UTC)
            if found.astimezone(self.zone).replace(tzinfo=None) != local:
                gap = self._change(found - _DAY, found)
                assert gap is not None
                found = gap
            if found > moment:
                return found

    def _shows_match(self, moment: datetime) -> bool:
        local = moment.astimezone(self.zone).replace(tzinfo=None, microsecond=0)
        return self._match_after(local - _SECOND) == local

    def _offset(self, moment: datetime) -> timedelta:
        offset = moment.astimezone(self.zone).utcoffset()
        assert offset is not None
        return offset

    def _change(self, begin: datetime, end: datetime) -> datetime | None:
        """Return the first time after *begin*, up to *end*, at which the zone's offset changes, to the second."""
        offset = self._offset(begin)
        while begin < end:
            following = min(begin + _DAY, end)
            if self._offset(following) != offset:
                while following - begin > _SECOND:
                    middle = begin + (following - begin) / 2
                    if self._offset(middle) == offset:
                        begin = middle
                    else:
                        following = middle
                return following.replace(microsecond=0)
            begin = following
        return None


When = Interval | Cron


@lru_cache(1000)
def _search(expression: str) -> croniter:
    """Return a search to copy: parsing an expression takes longer than a search."""
    return croniter(expression, datetime(2000, 1, 1), second_at_beginning=True)


@lru_cache(1000)
def parse(when: str, tz: str = "UTC") -> When:
    """Parse *when*, in the zone *tz*; raise `ValueError` for one that is invalid or never fires."""
    zone = _zone(tz)
    text = " ".join(when.split()).lower() if isinstance(when, str) else ""
    if text.startswith("@every"):
        return _interval(when, text)
    fields = _ALIASES.get(text, text).split(" ")
    if len(fields) not in (5, 6):
        raise _refused(when, "it takes five fields, six with the seconds first, @hourly and the like, or '@every 30s'")
    if any(_CHANCE.search(field) for field in fields):
        raise _refused(when, "random fields are not supported: write the number")
    fields = [_with_ranges(when, field) for field in fields]
    cron = Cron(" ".join(["0", *fields] if len(fields) == 5 else fields), zone, fields[-4].startswith("*"))
    try:
        cron.after(datetime(2000, 1, 1, tzinfo=UTC))
    except CroniterBadDateError:
        raise _refused(when, "there is no such date") from None
    except CroniterError as error:
        raise _refused(when, str(error)) from None
    return cron


def next_after(when: str, moment: datetime, tz: str = "UTC") -> datetime:
    """Return the first fire of *when*, in the zone *tz*, after *moment*: a timezone-aware datetime in UTC."""
    checks.moment("moment", moment)
    return parse(when, tz).after(moment)


def _interval(when: str, text: str) -> Interval:
    if not _INTERVAL.fullmatch(text):
        raise _refused(when, "an interval is a number of s, m, h or d, as in '@every 1h30m'")
    seconds = sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)([smhd])", text))
    if not 0 < seconds <= 100 * 366 * 86400:
        raise _refused(when, "an interval is longer than nothing and shorter than a century")
    return Interval(timedelta(seconds=seconds))


def _with_ranges(when: str, field: str) -> str:
    """Return *field* with ascending ranges; a range of one number becomes that number."""

    def checked(found: re.Match[str]) -> str:
        low, high = (_NUMBERS.get(bound, bound) for bound in found.groups())
        if str(low).isdigit() and str(high).isdigit():
            if int(low) > int(high):
                raise _refused(when, f"the range {found[0]} goes backwards: write two ranges, with a comma between")
            if int(low) == int(high):
                return found[1]
        return found[0]

    return _RANGE.sub(checked, field)


def _zone(tz: str) -> tzinfo:
    if tz == "UTC":
        return UTC
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise ValueError(
            f"there is no time zone {tz!r}: use one such as 'Europe/Berlin'; if the system has none, pip install tzdata"
        ) from None


def _refused(when: object, reason: str) -> ValueError:
    return ValueError(f"{when!r} is no time for a schedule: {reason}")

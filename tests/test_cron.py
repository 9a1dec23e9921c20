"""When a schedule fires (K5): the fires of expressions, and refused expressions."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventkit.conformance import proves
from eventkit.cron import next_after, parse

NEW_YORK = "America/New_York"
BERLIN = "Europe/Berlin"
LORD_HOWE = "Australia/Lord_Howe"


def fires(when: str, tz: str, begin: str, count: int) -> list[str]:
    """Return the next fires after a local time, as local times with their offsets."""
    zone = ZoneInfo(tz)
    moment = datetime.fromisoformat(begin).replace(tzinfo=zone)
    found = []
    for _ in range(count):
        moment = parse(when, tz).after(moment)
        assert moment.tzinfo is UTC
        found.append(moment.astimezone(zone).strftime("%d %H:%M:%S %z"))
    return found


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("*/20 * * * *", ["2026-01-01 00:20", "2026-01-01 00:40", "2026-01-01 01:00"]),
        ("*/20 * * * * *", ["2026-01-01 00:00:20", "2026-01-01 00:00:40", "2026-01-01 00:01:00"]),
        ("30 5 * * 1-5", ["2026-01-01 05:30", "2026-01-02 05:30", "2026-01-05 05:30"]),
        ("0 0 * * FRI-SUN", ["2026-01-02", "2026-01-03", "2026-01-04"]),
        ("0 0 29 2 *", ["2028-02-29", "2032-02-29", "2036-02-29"]),
        ("5-5 * * * *", ["2026-01-01 00:05", "2026-01-01 01:05", "2026-01-01 02:05"]),
        ("0 0 13 * 5", ["2026-01-02", "2026-01-09", "2026-01-13"]),
        ("@hourly", ["2026-01-01 01:00", "2026-01-01 02:00", "2026-01-01 03:00"]),
        ("@daily", ["2026-01-02", "2026-01-03", "2026-01-04"]),
        ("@weekly", ["2026-01-04", "2026-01-11", "2026-01-18"]),
        ("@monthly", ["2026-02-01", "2026-03-01", "2026-04-01"]),
        ("@yearly", ["2027-01-01", "2028-01-01", "2029-01-01"]),
        ("@every 30s", ["2026-01-01 00:00:30", "2026-01-01 00:01:00", "2026-01-01 00:01:30"]),
        ("@every 1h30m", ["2026-01-01 01:30", "2026-01-01 03:00", "2026-01-01 04:30"]),
        (" 0  12 * *\t* ", ["2026-01-01 12:00", "2026-01-02 12:00", "2026-01-03 12:00"]),
    ],
)
def test_fires_follow_one_another(when: str, expected: list[str]) -> None:
    """Each is later than the one before; a day of the month and one of the week are alternatives."""
    moment, found = datetime(2026, 1, 1, tzinfo=UTC), []
    for _ in expected:
        moment = parse(when).after(moment)
        found.append(moment)
    assert found == [datetime.fromisoformat(text).replace(tzinfo=UTC) for text in expected]


@pytest.mark.parametrize(
    "when",
    [
        "60 * * * *",
        "5-1 * * * *",
        "0 22-2 * * *",
        "0 0 * nov-feb *",
        "*/0 * * * *",
        "1-5/0 * * * *",
        "0 0 30 2 *",
        "0 0 31 4,6 *",
        "0 24 * * *",
        "0 0 * 13 *",
        "@every 0s",
        "@every",
        "@every 5",
        "@every -5s",
        "@every 1.5s",
        "@every 5w",
        "@every 99999999d",
        "@reboot",
        "",
        "* * * *",
        "* * * * * * 2030",
        "r * * * *",
        "h * * * *",
        "R(0-10) * * * *",
        "a b c d e",
        "1,2,,3 * * * *",
    ],
)
def test_what_can_never_be_is_refused(when: str) -> None:
    """The error quotes the expression and names a valid one."""
    with pytest.raises(ValueError, match="is no time for a schedule: ") as refused:
        parse(when)
    assert repr(when) in str(refused.value)


@pytest.mark.parametrize("tz", ["Europe/Berlín", "", "../etc/passwd", "Mars"])
def test_a_zone_that_is_none_is_refused(tz: str) -> None:
    """The error names a valid zone."""
    with pytest.raises(ValueError, match="Europe/Berlin"):
        parse("@daily", tz)


def test_a_skipped_time_fires_once_after_the_gap() -> None:
    """02:30 does not exist on the day the clocks go forward, and neither does any other time in the gap."""
    day = "2026-03-08 00:00"
    assert fires("30 2 * * *", NEW_YORK, day, 2) == ["08 03:00:00 -0400", "09 02:30:00 -0400"]
    assert fires("0,15,30 2,3 * * *", NEW_YORK, day, 3) == [
        "08 03:00:00 -0400",
        "08 03:15:00 -0400",
        "08 03:30:00 -0400",
    ]
    assert fires("30 2 * * *", BERLIN, "2026-03-29 00:00", 2) == ["29 03:00:00 +0200", "30 02:30:00 +0200"]
    assert fires("15 2 * * *", LORD_HOWE, "2026-10-04 00:00", 2) == ["04 02:30:00 +1100", "05 02:15:00 +1100"]


def test_a_repeated_time_fires_once() -> None:
    """It fires the first time."""
    day = "2026-11-01 00:00"
    assert fires("30 1 * * *", NEW_YORK, day, 2) == ["01 01:30:00 -0400", "02 01:30:00 -0500"]
    assert fires("0,30 1-2 * * *", NEW_YORK, day, 3) == ["01 01:00:00 -0400", "01 01:30:00 -0400", "01 02:00:00 -0500"]
    assert fires("30 2 * * *", BERLIN, "2026-10-25 00:00", 2) == ["25 02:30:00 +0200", "26 02:30:00 +0100"]
    assert fires("45 1 * * *", LORD_HOWE, "2026-04-05 00:00", 2) == ["05 01:45:00 +1100", "06 01:45:00 +1030"]


def test_in_the_second_pass_the_first_is_over() -> None:
    """A question between the two never gets a fire in the past."""
    second = datetime(2026, 11, 1, 6, 10, tzinfo=UTC)
    found = parse("30 1 * * *", NEW_YORK).after(second)
    assert found == datetime(2026, 11, 2, 6, 30, tzinfo=UTC)


def test_every_hour_is_every_real_hour() -> None:
    """An hour field that begins with a star follows real time, through gaps and repetitions."""
    forward = ["08 00:30:00 -0500", "08 01:30:00 -0500", "08 03:30:00 -0400", "08 04:30:00 -0400"]
    assert fires("30 * * * *", NEW_YORK, "2026-03-08 00:00", 4) == forward
    back = ["01 00:30:00 -0400", "01 01:30:00 -0400", "01 01:30:00 -0500", "01 02:30:00 -0500"]
    assert fires("30 * * * *", NEW_YORK, "2026-11-01 00:00", 4) == back
    on_the_hour = ["29 01:00:00 +0100", "29 03:00:00 +0200", "29 04:00:00 +0200"]
    assert fires("@hourly", BERLIN, "2026-03-29 00:00", 3) == on_the_hour
    half = ["05 01:00:00 +1100", "05 01:45:00 +1100", "05 01:45:00 +1030", "05 02:00:00 +1030", "05 02:45:00 +1030"]
    assert fires("0,45 */1 * * *", LORD_HOWE, "2026-04-05 00:50", 5) == half
    lost = ["04 01:00:00 +1030", "04 01:30:00 +1030", "04 02:30:00 +1100", "04 03:00:00 +1100"]
    assert fires("0,30 * * * *", LORD_HOWE, "2026-10-04 00:40", 4) == lost


def test_a_star_hour_far_away_is_found_across_changes() -> None:
    """A match of next year lies behind several changes of the clocks."""
    assert fires("0 * 15 7 *", BERLIN, "2026-07-15 23:30", 1) == ["15 00:00:00 +0200"]
    assert fires("0 * 15 1 *", BERLIN, "2026-07-15 23:30", 1) == ["15 00:00:00 +0100"]


@given(
    st.sampled_from(
        ["*/7 * * * *", "30 * * * *", "13 */5 * * *", "30 1 * * *", "15,45 2 * * *", "5 1-3 * * *", "@every 7m"]
    ),
    st.sampled_from([NEW_YORK, BERLIN, LORD_HOWE, "UTC", "Asia/Kolkata"]),
    st.datetimes(datetime(2026, 1, 1), datetime(2028, 1, 1)),
    st.integers(1, 5000),
)
def test_nothing_lies_between(when: str, tz: str, begin: datetime, seconds: int) -> None:
    """The next fire after any moment before a fire is that fire; after the fire itself, a later one."""
    cron, moment = parse(when, tz), begin.replace(tzinfo=UTC)
    found = cron.after(moment)
    assert found > moment
    if not when.startswith("@every"):
        between = min(found - timedelta(microseconds=1), moment + timedelta(seconds=seconds))
        assert cron.after(between) == found
        assert found.second == found.microsecond == 0


def test_the_zone_of_the_host_does_not_matter() -> None:
    """This includes the dates of the host's own clock changes."""
    program = (
        "from datetime import *; from eventkit.cron import parse; "
        "moment = datetime(2026, 3, 29, 0, 50, tzinfo=UTC); "
        "print(*[parse(when, 'Europe/Berlin').after(moment) for when in ('30 2 * * *', '7 * * * *')])"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", program], env=os.environ | {"TZ": tz}, capture_output=True, text=True, check=True
        ).stdout
        for tz in (NEW_YORK, BERLIN)
    }
    assert answers == {"2026-03-29 01:00:00+00:00 2026-03-29 01:07:00+00:00\n"}


@proves("K5")
def test_next_after_needs_no_kit() -> None:
    autumn = datetime(2026, 10, 24, 12, tzinfo=UTC)
    assert next_after("30 2 * * *", autumn, BERLIN) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    with pytest.raises(ValueError, match="no time for a schedule"):
        next_after("60 * * * *", autumn)
    with pytest.raises(ValueError, match="needs a time zone"):
        next_after("@hourly", autumn.replace(tzinfo=None))

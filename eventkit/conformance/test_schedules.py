"""Schedules (K4), and when they fire (K5)."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eventkit import EventKit
from eventkit.testing import advance
from eventkit.values import Schedule

from .clauses import proves
from .processes import spawn
from .scheduling import upcoming_in_zone

_HOUR = timedelta(hours=1)


def _get(kit: EventKit, name: str) -> Schedule:
    schedule = kit.schedules.get(name)
    assert schedule is not None
    return schedule


def _next(kit: EventKit, name: str) -> datetime:
    next_at = _get(kit, name).next_at
    assert next_at is not None
    return next_at


def _now(kit: EventKit) -> datetime:
    """Return the database's time."""
    stream = kit.stream("clock")
    offset = stream.publish(None)
    return stream.read(offset - 1)[0].created_at


@proves("K4", "G8")
def test_a_schedule_is_kept_as_it_was_given(kit: EventKit) -> None:
    """All its settings come back, by its name and in the list."""
    payload = {"to": ["ann", None, 1.5, "🦊"]}
    kit.schedules.add(
        "mail",
        "30 2 * * *",
        "mails",
        payload,
        tz="Europe/Berlin",
        priority=-3,
        expires=1.5,
        max_attempts=7,
        catch_up="none",
        headers={"tenant": "7"},
    )
    kit.schedules.add("least", "@hourly", "q")
    mail, least = _get(kit, "mail"), _get(kit, "least")
    assert (mail.name, mail.when, mail.tz, mail.queue) == ("mail", "30 2 * * *", "Europe/Berlin", "mails")
    assert (mail.payload, mail.headers) == (payload, {"tenant": "7"})
    assert (mail.priority, mail.expires, mail.max_attempts, mail.catch_up) == (-3, 1.5, 7, "none")
    assert (mail.paused, mail.fired, mail.skipped, mail.last_at) == (False, 0, 0, None)
    assert (least.tz, least.payload, least.headers, least.priority) == ("UTC", None, {}, 0)
    assert (least.expires, least.max_attempts, least.catch_up, least.paused) == (None, None, "all", False)
    assert least.next_at is not None
    assert timedelta() <= least.next_at - _now(kit) <= _HOUR
    assert (least.next_at.minute, least.next_at.second) == (0, 0)
    assert kit.schedules.list() == [least, mail]
    assert kit.schedules.get("unknown") is None


@proves("K4")
def test_adding_again_replaces_what_is_said_and_keeps_what_happened(kit: EventKit) -> None:
    """An application that adds its schedules at every start neither resets them nor loses their history."""
    kit.schedules.add("s", "@every 1h", "q", 1)
    advance(kit, 3600)
    assert len(kit.schedules.tick()) == 1
    before = _get(kit, "s")
    kit.schedules.add("s", "@every 1h", "other", 2, priority=5, catch_up="none", expires=9, max_attempts=2)
    after = _get(kit, "s")
    assert (after.queue, after.payload, after.priority, after.catch_up) == ("other", 2, 5, "none")
    assert (after.expires, after.max_attempts) == (9, 2)
    assert (after.next_at, after.last_at, after.fired) == (before.next_at, before.last_at, 1)
    kit.schedules.add("s", "@every 1h", "q")
    assert (_get(kit, "s").payload, _get(kit, "s").expires) == (None, None)

    kit.schedules.add("s", "@every 2h", "q")
    assert abs(_next(kit, "s") - _now(kit) - 2 * _HOUR) < timedelta(minutes=1)
    kit.schedules.add("s", "0 12 * * *", "q")
    utc = _next(kit, "s")
    kit.schedules.add("s", "0 12 * * *", "q", tz="Asia/Tokyo")
    assert _next(kit, "s") != utc
    assert (_get(kit, "s").fired, _get(kit, "s").last_at) == (1, before.last_at)


@proves("K4")
def test_a_paused_schedule_stays_paused(kit: EventKit) -> None:
    """Adding a schedule can pause it and never resumes it, because a user may have paused it."""
    kit.schedules.add("s", "@every 1h", "q", paused=True)
    assert (_get(kit, "s").paused, _get(kit, "s").next_at, kit.schedules.soonest()) == (True, None, None)
    kit.schedules.add("s", "@every 2h", "q", 1)
    assert (_get(kit, "s").paused, _get(kit, "s").next_at, _get(kit, "s").payload) == (True, None, 1)
    assert kit.schedules.resume("s") is True
    assert abs(_next(kit, "s") - _now(kit) - 2 * _HOUR) < timedelta(minutes=1)
    kit.schedules.add("s", "@every 2h", "q", paused=True)
    assert _get(kit, "s").paused


@proves("K4")
def test_what_comes_during_a_pause_is_not_missed(kit: EventKit) -> None:
    """A resumed schedule continues from now; `resume` does not change a running one."""
    kit.schedules.add("s", "@every 10s", "q")
    assert kit.schedules.pause("s") is True
    assert kit.schedules.pause("s") is True
    advance(kit, 100)
    assert kit.schedules.tick() == []
    assert kit.schedules.resume("s") is True
    assert kit.schedules.tick() == []
    assert timedelta() < _next(kit, "s") - _now(kit) <= timedelta(seconds=10)
    assert (_get(kit, "s").fired, _get(kit, "s").skipped) == (0, 0)
    advance(kit, 5)
    before = _next(kit, "s")
    assert kit.schedules.resume("s") is True
    assert _next(kit, "s") == before


@proves("K4", "G13")
def test_a_schedule_that_is_not_there_is_an_answer(kit: EventKit) -> None:
    """Calls on a schedule return whether it exists."""
    schedules = kit.schedules
    kit.schedules.add("s", "@hourly", "q")
    for missing in ("S", "s ", "t"):
        assert schedules.remove(missing) is schedules.pause(missing) is schedules.resume(missing) is False
        assert schedules.update(missing, payload=1) is schedules.update(missing) is False
        assert schedules.upcoming(missing, 3) == []
    assert schedules.update("s") is True
    assert schedules.remove("s") is True
    assert schedules.remove("s") is False
    assert (schedules.list(), schedules.soonest(), schedules.tick()) == ([], None, [])


@proves("K4")
def test_update_changes_what_is_given_and_nothing_else(kit: EventKit) -> None:
    """None is a value; omitted settings are unchanged."""
    given: dict[str, Any] = {
        "payload": {"a": 1},
        "priority": 2,
        "expires": 30.0,
        "max_attempts": 4,
        "catch_up": "latest",
        "headers": {"a": "b"},
    }
    changed: dict[str, Any] = {
        "queue": "other",
        "payload": None,
        "priority": -2,
        "expires": None,
        "max_attempts": None,
        "catch_up": "none",
        "headers": None,
        "tz": "Asia/Tokyo",
        "when": "0 4 * * *",
        "paused": True,
    }
    for name, value in changed.items():
        kit.schedules.add("s", "0 3 * * *", "q", **given)
        before = _get(kit, "s")
        assert kit.schedules.update("s", **{name: value}) is True
        after = _get(kit, "s")
        differing = {field for field in before.__struct_fields__ if getattr(before, field) != getattr(after, field)}
        if name in ("tz", "when"):
            assert after.next_at != before.next_at
        assert differing - {"next_ms"} == {name}
        assert getattr(after, name) == ({} if name == "headers" else value)
    kit.schedules.update("s", paused=False, expires=timedelta(minutes=1))
    assert (_get(kit, "s").paused, _get(kit, "s").expires) == (False, 60)


@proves("K4")
def test_another_time_counts_from_now(kit: EventKit) -> None:
    """Setting the same time again does not."""
    kit.schedules.add("s", "@every 1h", "q")
    advance(kit, 1800)
    before = _next(kit, "s")
    kit.schedules.update("s", when="@every 1h", tz="UTC")
    assert _next(kit, "s") == before
    kit.schedules.update("s", when="@every 50m")
    assert abs(_next(kit, "s") - _now(kit) - timedelta(minutes=50)) < timedelta(minutes=1)
    kit.schedules.update("s", paused=True, when="@every 3h")
    assert _get(kit, "s").next_at is None
    kit.schedules.update("s", paused=False)
    assert abs(_next(kit, "s") - _now(kit) - 3 * _HOUR) < timedelta(minutes=1)


@proves("K4")
def test_the_soonest_and_the_next_ones(kit: EventKit) -> None:
    """`soonest` is the first fire of all schedules that are not paused; `upcoming` fires nothing."""
    assert kit.schedules.soonest() is None
    kit.schedules.add("late", "@every 2h", "q")
    kit.schedules.add("soon", "@every 1h", "q")
    kit.schedules.add("never", "@every 1s", "q", paused=True)
    assert kit.schedules.soonest() == _next(kit, "soon")
    first = _next(kit, "soon")
    assert kit.schedules.upcoming("soon", 3) == [first, first + _HOUR, first + 2 * _HOUR]
    assert kit.schedules.upcoming("never", 3) == []
    kit.schedules.add("noon", "0 12 * * *", "q", tz="America/New_York")
    moments = kit.schedules.upcoming("noon", 400)
    assert moments[0] == _next(kit, "noon")
    assert len(moments) == 400
    assert {moment.hour for moment in moments} == {16, 17}
    assert [schedule.fired for schedule in kit.schedules.list()] == [0, 0, 0, 0]
    assert kit.queue("q").size() == 0


@proves("K5", "K4", "G13")
def test_what_makes_no_sense_is_refused(kit: EventKit) -> None:
    """Impossible times and invalid settings are refused before anything is written."""
    schedules: Any = kit.schedules
    schedules.add("s", "@hourly", "q")
    before = schedules.list()
    for when in ("60 * * * *", "5-1 * * * *", "*/0 * * * *", "@every 0s", "0 0 30 2 *", "", "* * * *", "@fortnightly"):
        with pytest.raises(ValueError, match="no time for a schedule"):
            schedules.add("x", when, "q")
        with pytest.raises(ValueError, match="no time for a schedule"):
            schedules.update("s", when=when)
        with pytest.raises(ValueError, match="no time for a schedule"):
            schedules.next_after(when, datetime.now(UTC))
    values: list[Callable[[], Any]] = [
        lambda: schedules.add("x", "@hourly", "q", tz="Mars/Olympus"),
        lambda: schedules.update("s", tz="Mars/Olympus"),
        lambda: schedules.add("x", "@hourly", "q", catch_up="some"),
        lambda: schedules.add("x", "@hourly", "q", expires=-1),
        lambda: schedules.add("x", "@hourly", "q", max_attempts=0),
        lambda: schedules.add("x", "@hourly", "q", priority=2**31),
        lambda: schedules.add("x", "@hourly", "q", float("nan")),
        lambda: schedules.add("x", "@hourly", "q", headers={"eventkit-schedule": "x"}),
        lambda: schedules.update("s", headers={"eventkit-fire": "x"}),
        lambda: schedules.add("", "@hourly", "q"),
        lambda: schedules.add("x", "@hourly", "a\nb"),
        lambda: schedules.update("s", queue=""),
        lambda: schedules.get("\0"),
        lambda: schedules.upcoming("s", 0),
        lambda: schedules.tick(datetime(2026, 1, 1)),
        lambda: schedules.next_after("@hourly", datetime(2026, 1, 1)),
    ]
    types: list[Callable[[], Any]] = [
        lambda: schedules.add("x", 5, "q"),
        lambda: schedules.add("x", ["@hourly"], "q"),
        lambda: schedules.add("x", "@hourly", "q", tz=5),
        lambda: schedules.add("x", "@hourly", None),
        lambda: schedules.add("x", "@hourly", "q", paused=None),
        lambda: schedules.update("s", paused=None),
        lambda: schedules.add("x", "@hourly", "q", expires="soon"),
        lambda: schedules.add("x", "@hourly", "q", {1: 2}),
        lambda: schedules.add("x", "@hourly", "q", headers={"a": 1}),
        lambda: schedules.add(None, "@hourly", "q"),
        lambda: schedules.update("s", colour="red"),
        lambda: schedules.tick(5),
        lambda: schedules.next_after("@hourly", "now"),
    ]
    for expected, calls in ((ValueError, values), (TypeError, types)):
        for call in calls:
            with pytest.raises(expected):
                call()
    assert schedules.list() == before


@proves("G1", "K5")
def test_next_after_asks_no_database(kit: EventKit) -> None:
    """It needs no await, works on a closed kit, and answers in UTC for every zone of the argument."""
    next_after = kit.schedules.next_after
    kit.close()
    autumn = datetime(2026, 10, 24, 12, tzinfo=UTC)
    assert next_after("30 2 * * *", autumn, "Europe/Berlin") == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert next_after("@every 1h30m", autumn) == autumn + 1.5 * _HOUR
    assert next_after("*/20 * * * * *", autumn) == autumn + timedelta(seconds=20)
    assert next_after("@hourly", autumn.astimezone()).utcoffset() == timedelta()


@proves("K5")
def test_the_hosts_time_zone_is_irrelevant(kit: EventKit, url: str) -> None:
    """Processes in other time zones see the same fires."""
    for number, (when, tz) in enumerate(
        [("30 2 * * *", "Europe/Berlin"), ("0 */6 * * *", "America/New_York"), ("15 2 * * 0", "Australia/Lord_Howe")]
    ):
        kit.schedules.add(f"s{number}", when, "q", tz=tz)
        here = kit.schedules.upcoming(f"s{number}", 800)
        for zone in ("Pacific/Kiritimati", "America/New_York"):
            with spawn(upcoming_in_zone, url, zone, f"s{number}", when, tz) as elsewhere:
                pass
            assert elsewhere.result() == (here, here[0])

"""Ticks of schedules, sequential and concurrent."""

import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import eventkit
from eventkit import EventKit
from eventkit.testing import advance

from .clauses import both_flavours, proves
from .processes import PATIENCE, background, spawn
from .scheduling import SECOND, STEPS, die_ticking, fires, go_together, next_fire, the_schedule, tick_along
from .threads import rolled_back
from .urls import with_options

_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)


def _stand_at(kit: EventKit, name: str, moment: datetime) -> None:
    """Set the schedule's next fire to *moment*, which has passed."""
    advance(kit, next_fire(kit, name) - moment)


def _moments(kit: EventKit, now: datetime | None = None) -> list[datetime]:
    """Return when the fires of a tick were due."""
    return [fire.moment for fire in kit.schedules.tick(now)]


@proves("K4", "K6")
def test_a_fire_is_a_task(kit: EventKit) -> None:
    """It has the schedule's settings, is due at the time of the fire, and expires that long after it."""
    payload = {"to": "ann 🦊", "n": 2**53 + 1}
    kit.schedules.add(
        "mail", "@every 1h", "mails", payload, priority=4, expires=7200, max_attempts=2, headers={"a": "b"}
    )
    kit.schedules.add("plain", "@every 30m", "plain tasks")
    due = {name: next_fire(kit, name) for name in ("mail", "plain")}
    assert kit.schedules.tick() == []
    advance(kit, 3700)
    first, second, third = sorted(kit.schedules.tick(), key=lambda fire: (fire.schedule, fire.moment))
    past = timedelta(seconds=3700)
    assert (first.schedule, first.queue, first.moment) == ("mail", "mails", due["mail"] - past)
    assert (second.schedule, second.queue, second.moment) == ("plain", "plain tasks", due["plain"] - past)
    assert third.moment == second.moment + _HOUR / 2
    mail, plain = kit.queue("mails").get(first.task_id), kit.queue("plain tasks").get(third.task_id)
    assert mail is not None
    assert plain is not None
    assert (mail.state, mail.payload, mail.priority, mail.max_attempts) == ("ready", payload, 4, 2)
    assert mail.headers == {"a": "b", "eventkit-schedule": "mail", "eventkit-fire": first.moment.isoformat()}
    assert (mail.run_at, mail.expires_at) == (first.moment, first.moment + 2 * _HOUR)
    assert (plain.payload, plain.priority, plain.max_attempts, plain.expires_at) == (None, 0, 3, None)
    assert plain.headers == {"eventkit-schedule": "plain", "eventkit-fire": third.moment.isoformat()}
    assert (the_schedule(kit, "mail").fired, the_schedule(kit, "mail").last_at) == (1, first.moment)
    assert (the_schedule(kit, "plain").fired, the_schedule(kit, "plain").last_at) == (2, third.moment)
    assert kit.schedules.tick() == []


@proves("K6")
def test_a_full_queue_does_not_refuse_a_fire(kit: EventKit) -> None:
    """A refused fire would be lost; `max_size` is for callers that can wait."""
    kit.queue("q").configure(max_size=1)
    kit.schedules.add("s", "@every 1m", "q")
    advance(kit, 200)
    assert len(kit.schedules.tick()) == kit.queue("q").size() == 3
    with pytest.raises(eventkit.QueueFull):
        kit.queue("q").enqueue(1)


@proves("K6", "Q2")
def test_a_late_fire_is_handed_out_at_once(kit: EventKit) -> None:
    """Tasks that were due later may have been claimed before."""
    queue = kit.queue("q")
    kit.schedules.add("s", "@every 1s", "q")
    for _ in range(2):
        later = time.monotonic() + 1.3
        while time.monotonic() < later:
            queue.enqueue("in between")
            assert queue.receive()[0].payload == "in between"
            time.sleep(0.01)
        fired = kit.schedules.tick()
        assert [task.id for task in queue.receive(10)] == [fire.task_id for fire in fired] != []


@proves("K6", "W1")
def test_a_fire_wakes_waiting_workers(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """Waiters of each of the queues wake without a poll."""
    worker = connect(with_options(url, fallback_poll=86_400))
    waiting = [background(lambda n=n: worker.queue(f"q{n}").claim("w", wait=PATIENCE)) for n in range(3)]
    for n in range(3):
        kit.schedules.add(f"s{n}", "@every 1s", f"q{n}")
    time.sleep(1.5)
    assert not any(claimed.done() for claimed in waiting)
    kit.schedules.tick()
    for claimed in waiting:
        [task] = claimed.result(PATIENCE / 2)
        assert task.headers["eventkit-schedule"] == task.queue.replace("q", "s")


@proves("K6")
def test_a_late_fire_that_has_expired_is_a_dead_task(kit: EventKit) -> None:
    """Its expiry counts from the time of the fire, not from the tick."""
    kit.schedules.add("s", "@every 1m", "q", expires=90)
    advance(kit, 125)
    assert len(kit.schedules.tick()) == 2
    advance(kit, 40)
    [task] = kit.queue("q").claim("w", 10)
    [dead] = kit.queue("q").dead()
    assert dead.reason == "expired"
    assert dead.run_at == task.run_at - timedelta(minutes=1)


@proves("K6")
@pytest.mark.parametrize("when", ["@every 1s", "* * * * * *"])
def test_an_hour_away_with_a_schedule_of_a_second(kit: EventKit, when: str) -> None:
    """`all` makes up for the first 64 and counts the rest; `latest` fires once; `none` not at all."""
    for catch_up in ("all", "latest", "none"):
        kit.schedules.add(catch_up, when, f"queue of {catch_up}", catch_up=catch_up)
    advance(kit, 3600)
    first = {catch_up: next_fire(kit, catch_up) for catch_up in ("all", "latest", "none")}
    now = first["all"] + _HOUR - SECOND / 2
    kit.schedules.tick(now)
    for catch_up, expected in (("all", 64), ("latest", 1), ("none", 1)):
        schedule = the_schedule(kit, catch_up)
        assert (schedule.fired, schedule.fired + schedule.skipped) == (expected, (now - first[catch_up]) // SECOND + 1)
        assert next_fire(kit, catch_up) - SECOND <= now < next_fire(kit, catch_up)
        assert (next_fire(kit, catch_up) - first[catch_up]) % SECOND == timedelta()
    assert [moment for _, moment in fires(kit, "queue of all")] == [
        (first["all"] + n * SECOND).isoformat() for n in range(64)
    ]
    assert the_schedule(kit, "latest").last_at == next_fire(kit, "latest") - SECOND
    assert kit.schedules.tick(now) == []


@proves("K6")
def test_none_forgives_a_minute(kit: EventKit) -> None:
    """A fire that is more than a minute late is skipped, with those before it."""
    for late, expected in ((30, 1), (59, 1), (62, 0), (4000, 0)):
        kit.schedules.add(f"{late}", "@every 2h", f"queue {late}", catch_up="none")
        advance(kit, 3 * 7200 + late)
        assert len(kit.schedules.tick()) == expected
        schedule = the_schedule(kit, f"{late}")
        assert (schedule.fired, schedule.skipped) == (expected, 3 - expected)
        assert (schedule.last_at is not None) is bool(expected)
        kit.schedules.remove(f"{late}")
    kit.schedules.add("s", "@every 2h", "q", catch_up="none")
    first = next_fire(kit, "s")
    assert _moments(kit, first) == [first]
    assert _moments(kit, first + 2 * _HOUR + timedelta(seconds=62)) == []
    assert (the_schedule(kit, "s").last_at, the_schedule(kit, "s").skipped, next_fire(kit, "s")) == (
        first,
        1,
        first + 4 * _HOUR,
    )
    assert _moments(kit, first + 5 * _HOUR) == []
    assert _moments(kit, first + 6 * _HOUR) == [first + 6 * _HOUR]
    assert _moments(kit, first + 8 * _HOUR + timedelta(seconds=60)) == [first + 8 * _HOUR]
    assert (the_schedule(kit, "s").fired, the_schedule(kit, "s").skipped) == (3, 2)


@proves("K6", "K5")
def test_an_interval_keeps_its_grid(kit: EventKit) -> None:
    """After a late fire, the next one is a whole number of intervals after the first."""
    kit.schedules.add("s", "@every 7s", "q", catch_up="latest")
    first = next_fire(kit, "s")
    for late in (0.0, 3.2, 6.999, 7.0, 50.5, 1000.0):
        due = next_fire(kit, "s")
        [moment] = _moments(kit, due + timedelta(seconds=late))
        assert (moment - first) % timedelta(seconds=7) == timedelta()
        assert moment <= due + timedelta(seconds=late) < next_fire(kit, "s") == moment + timedelta(seconds=7)


@proves("K6")
def test_years_away_cost_next_to_nothing(kit: EventKit) -> None:
    """The tick finds the newest fire and the next without visiting the millions between."""
    kit.schedules.add("often", "* * * * * *", "q", catch_up="latest")
    kit.schedules.add("daily", "30 2 * * *", "q", catch_up="latest", tz="Europe/Berlin")
    kit.schedules.add("interval", "@every 1s", "q", catch_up="none")
    first = next_fire(kit, "interval")
    now = first.replace(year=first.year + 10, microsecond=0) + timedelta(minutes=1)
    began = time.monotonic()
    kit.schedules.tick(now)
    assert time.monotonic() - began < 20
    assert (the_schedule(kit, "often").last_at, next_fire(kit, "often")) == (now, now + SECOND)
    assert the_schedule(kit, "often").skipped == 9_999
    last = the_schedule(kit, "daily").last_at
    assert last is not None
    assert last <= now < next_fire(kit, "daily")
    assert next_fire(kit, "daily") - last <= _DAY + _HOUR
    assert 3640 <= the_schedule(kit, "daily").skipped <= 3660
    assert the_schedule(kit, "interval").fired + the_schedule(kit, "interval").skipped == (now - first) // SECOND + 1


@proves("K4")
def test_a_tick_at_another_moment(kit: EventKit) -> None:
    """A tick before the fire does nothing; after a tick ahead of time, the task waits for its time."""
    kit.schedules.add("s", "@every 1h", "q")
    due = next_fire(kit, "s")
    assert _moments(kit, due - timedelta(milliseconds=1)) == []
    assert _moments(kit, due) == [due]
    assert _moments(kit, due) == []
    assert _moments(kit, due - _DAY) == []
    assert kit.queue("q").claim("w") == []
    [task] = kit.queue("q").tasks("scheduled")
    assert task.run_at == due
    advance(kit, 3700)
    assert kit.queue("q").claim("w")[0].id == task.id


@proves("K4", "K6")
def test_one_tick_fires_however_many_are_due(kit: EventKit) -> None:
    """Each fire makes a task of its own, in its queue."""
    with kit.transaction() as tx:
        for n in range(330):
            kit.schedules.add(f"schedule {n}", "@every 1h", f"queue {n % 7}", n, tx=tx)
    advance(kit, 3700)
    fired = kit.schedules.tick()
    assert sorted(fire.schedule for fire in fired) == sorted(f"schedule {n}" for n in range(330))
    assert {schedule.fired for schedule in kit.schedules.list()} == {1}
    tasks = {task.id: task for n in range(7) for task in kit.queue(f"queue {n}").tasks(limit=1000)}
    assert len(tasks) == 330
    for fire in fired:
        task = tasks[fire.task_id]
        assert (task.queue, f"schedule {task.payload}", task.run_at) == (fire.queue, fire.schedule, fire.moment)
    assert kit.schedules.tick() == []


@proves("K4", "G4")
@both_flavours
def test_a_tick_in_a_transaction_is_part_of_it(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """A tick that is rolled back has fired nothing; one that commits has fired all, beside other rows."""
    with kit.transaction() as tx:
        for n in range(150):
            kit.schedules.add(f"schedule {n:03}", "@every 1h", "q", n, tx=tx)
    advance(kit, 3700)
    before, other = kit.schedules.list(), connect(url)
    with rolled_back(kit) as tx:
        assert len(kit.schedules.tick(tx=tx)) == 150
        assert other.queue("q").size() == 0
    assert (kit.schedules.list(), kit.queue("q").size()) == (before, 0)
    with kit.transaction() as tx:
        fired = kit.schedules.tick(tx=tx)
        kit.stream("ticks").publish(len(fired), tx=tx)
    assert sorted(task.id for task in kit.queue("q").tasks(limit=1000)) == sorted(fire.task_id for fire in fired)
    assert [event.payload for event in kit.stream("ticks").read()] == [150]
    assert kit.schedules.tick() == []


@proves("K5")
@pytest.mark.parametrize(
    ("tz", "when", "night", "expected"),
    [
        ("Europe/Berlin", "30 2 * * *", "2026-03-29", "01:00"),
        ("Europe/Berlin", "30 2 * * *", "2025-10-26", "00:30"),
        ("America/New_York", "30 2 * * *", "2026-03-08", "07:00"),
        ("America/New_York", "30 1 * * *", "2025-11-02", "05:30"),
        ("Australia/Lord_Howe", "15 2 * * *", "2025-10-05", "15:30"),
        ("Australia/Lord_Howe", "45 1 * * *", "2026-04-05", "14:45"),
    ],
)
def test_a_time_that_the_clock_skips_or_repeats_fires_once(
    kit: EventKit, tz: str, when: str, night: str, expected: str
) -> None:
    """It fires at the first moment after the gap, or the first of the two; an hourly one fires in every real hour."""
    midnight = datetime.fromisoformat(f"{night}T00:00+00:00")
    begin = midnight - _DAY / 2
    for schedule in (when, "7 * * * *"):
        kit.schedules.add("s", schedule, "q", tz=tz)
        _stand_at(kit, "s", begin)
        assert _moments(kit, begin) == [begin]  # A time that no expression of the schedule matches.
        found = _moments(kit, begin + _DAY)
        if schedule == when:
            assert [f"{moment:%H:%M}" for moment in found] == [expected]
        else:
            assert found == _on_the_wall(7, tz, begin, begin + _DAY)


def _on_the_wall(minute: int, tz: str, after: datetime, until: datetime) -> list[datetime]:
    """Return all moments at which a wall clock shows this minute."""
    minutes = [after + timedelta(minutes=n) for n in range(1, (until - after) // timedelta(minutes=1) + 1)]
    return [moment for moment in minutes if moment.astimezone(ZoneInfo(tz)).minute == minute]


@proves("K6")
def test_three_schedulers_and_a_hundred_fires(kit: EventKit, url: str, flavour: str) -> None:
    """They make a hundred tasks."""
    kit.schedules.add("s", "@every 1s", "q")
    first = next_fire(kit, "s")
    moments = [first + n * SECOND for n in range(100)]
    processes = [spawn(tick_along, url, flavour, moments) for _ in range(3)]
    go_together(kit, 3)
    fired = sorted(fire for process in processes for fire in process.result())
    assert [moment for moment, _ in fired] == moments
    assert len({id for _, id in fired}) == 100
    assert fires(kit, "q") == [("s", moment.isoformat()) for moment in moments]
    assert (the_schedule(kit, "s").fired, the_schedule(kit, "s").skipped) == (100, 0)


def _kill(kit: EventKit, url: str, flavour: str, kills: int) -> None:
    chance = random.Random(kills)
    kit.schedules.add("s", "@every 1s", "q")
    kit.schedules.add("t", "@every 2s", "q")
    first = {name: next_fire(kit, name) for name in ("s", "t")}
    steps = [n % STEPS for n in range(kills)]
    chance.shuffle(steps)
    moments = [first["s"] + n * SECOND for n in range(kills)]
    deaths = list(zip(moments, steps, strict=True))
    for begin in range(0, kills, 4 * STEPS):  # A number that one process can handle within PATIENCE.
        some = deaths[begin : begin + 4 * STEPS]
        assert spawn(die_ticking, url, flavour, some).result() == [-9] * len(some)
    now = moments[-1] + SECOND / 2
    kit.schedules.tick(now)
    expected = [
        (name, (first[name] + n * length).isoformat())
        for name, length in (("s", SECOND), ("t", 2 * SECOND))
        for n in range((now - first[name]) // length + 1)
    ]
    assert fires(kit, "q") == expected
    assert sum(schedule.fired for schedule in kit.schedules.list()) == len(expected)


@proves("K6")
def test_a_scheduler_killed_at_any_step_neither_loses_nor_doubles_a_fire(kit: EventKit, url: str, flavour: str) -> None:
    """It is killed between any two statements, before the commit and after it, several times each."""
    _kill(kit, url, flavour, 4 * STEPS)


@proves("K6")
@pytest.mark.slow
def test_schedulers_killed_two_hundred_times(kit: EventKit, url: str, flavour: str) -> None:
    """The kills come in many orders."""
    _kill(kit, url, flavour, 200)

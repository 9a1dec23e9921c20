"""`run_scheduler` (K7): it sleeps until a fire is due, and fires then."""

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

import eventkit
from eventkit import EventKit
from eventkit.testing import advance

from .clauses import proves
from .processes import PATIENCE, background, spawn
from .scheduling import fires, go_together, run_for
from .threads import rolled_back
from .urls import with_options

_SECOND = timedelta(seconds=1)
_A_WHILE = 0.3
"""Seconds after which a scheduler without due fires sleeps."""

Connect = Callable[..., Any]


@contextmanager
def _running(connect: Connect, url: str) -> Iterator["Future[None]"]:
    """Run a sleeping scheduler without a fallback poll; check at the end that it still runs, and close its kit."""
    kit = connect(with_options(url, fallback_poll=86_400))
    running = background(kit.run_scheduler)
    time.sleep(_A_WHILE)
    yield running
    assert not running.done()
    kit.close()
    assert running.result(PATIENCE) is None


def _wait_for_a_fire(kit: EventKit, queue: str = "q") -> datetime:
    """Return the time of the next fire."""
    [task] = kit.queue(queue).claim("w", wait=PATIENCE)
    kit.queue(queue).ack(task)
    return task.run_at


@proves("K7")
def test_a_scheduler_fires_again_and_again(kit: EventKit, connect: Connect, url: str) -> None:
    """Each fire comes at its time, in order."""
    kit.schedules.add("s", "@every 1s", "q")
    first = kit.schedules.soonest()
    assert first is not None
    with _running(connect, url):
        assert [_wait_for_a_fire(kit) for _ in range(2)] == [first, first + _SECOND]


CHANGES: dict[str, Callable[[EventKit], object]] = {
    "add": lambda kit: kit.schedules.add("new", "@every 1s", "q"),
    "add again": lambda kit: kit.schedules.add("far", "@every 1s", "q"),
    "update": lambda kit: kit.schedules.update("far", when="@every 1s"),
    "update to no pause": lambda kit: kit.schedules.update("paused", paused=False),
    "resume": lambda kit: kit.schedules.resume("paused"),
    "time that passes": lambda kit: advance(kit, 86_400),
}


@proves("K7", "W1", "W2")
@pytest.mark.parametrize(
    ("flavour", "what"), [("async", "add"), *(("sync", what) for what in CHANGES)], indirect=["flavour"]
)
def test_a_change_is_noticed_by_a_scheduler_asleep(kit: EventKit, connect: Connect, url: str, what: str) -> None:
    """It does not sleep until the fire that it knew."""
    kit.schedules.add("far", "@every 1d", "q")
    kit.schedules.add("paused", "@every 1s", "q", paused=True)
    with _running(connect, url):
        CHANGES[what](kit)
        _wait_for_a_fire(kit)


@proves("K7")
def test_a_scheduler_stays_when_nothing_is_due(kit: EventKit, connect: Connect, url: str) -> None:
    """It stays without a schedule, after the last one was paused, and after it was removed."""
    with _running(connect, url) as running:
        kit.schedules.add("s", "@every 1s", "q")
        _wait_for_a_fire(kit)
        kit.schedules.pause("s")
        kit.queue("q").purge()
        time.sleep(1.2)
        assert not running.done()
        assert kit.queue("q").size() == 0
        kit.schedules.resume("s")
        _wait_for_a_fire(kit)
        kit.schedules.remove("s")
        kit.queue("q").purge()
        time.sleep(1.2)
        assert not running.done()
        assert kit.queue("q").size() == 0
        kit.schedules.add("other", "@every 1s", "q")
        _wait_for_a_fire(kit)


@proves("K7", "G4")
def test_a_scheduler_wakes_at_the_commit(kit: EventKit, connect: Connect, url: str) -> None:
    """A schedule in a rolled-back transaction has no effect."""
    with _running(connect, url):
        with rolled_back(kit) as tx:
            kit.schedules.add("undone", "@every 1s", "q", tx=tx)
            time.sleep(1.2)
        with kit.transaction() as tx:
            kit.schedules.add("done", "@every 1s", "q", tx=tx)
            time.sleep(_A_WHILE)
        _wait_for_a_fire(kit)
        assert {name for name, _ in fires(kit, "q")} <= {"done"}


@proves("K7")
def test_a_busy_database_does_not_end_a_scheduler(kit: EventKit, connect: Connect, url: str) -> None:
    """It retries the due fires for as long as the database is busy."""
    kit.schedules.add("s", "@every 1s", "q")
    first = kit.schedules.soonest()
    impatient = connect(with_options(url, busy_timeout=0.05))
    running = background(impatient.run_scheduler)
    with kit.transaction() as tx:
        kit.stream("t").publish("in the way", tx=tx)
        time.sleep(2)
    assert _wait_for_a_fire(kit) == first
    assert not running.done()


@proves("G1", "K7")
def test_a_scheduler_on_a_closed_kit_is_refused(connect: Connect, url: str) -> None:
    """It raises like any other call; closing the kit while it runs ends it normally."""
    kit = connect(url)
    kit.close()
    with pytest.raises(eventkit.Closed, match="connect again"):
        kit.run_scheduler()


@proves("K7")
def test_a_schedule_that_cannot_be_read_is_no_secret(kit: EventKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that does not know the time zone raises, and leaves the fires to those that do."""
    kit.schedules.add("s", "30 2 * * *", "q", tz="Europe/Berlin", catch_up="latest")
    advance(kit, 2 * 86_400)

    def unknown(when: str, tz: str) -> None:
        raise ValueError(f"there is no time zone {tz!r}")

    monkeypatch.setattr("eventkit.operations.schedule.parse", unknown)
    with pytest.raises(ValueError, match="no time zone 'Europe/Berlin'"):
        kit.run_scheduler()
    monkeypatch.undo()
    assert kit.queue("q").size() == 0
    assert len(kit.schedules.tick()) == 1


@proves("K7")
def test_a_cancelled_scheduler_leaves_the_kit_usable(url: str) -> None:
    """Another scheduler continues where it stopped."""

    async def main() -> None:
        async with eventkit.connect_async(url) as kit:
            for pause in (0.0, 0.01, 0.3, 1.1):
                await kit.schedules.add("s", "@every 1s", "q")
                running = asyncio.create_task(kit.run_scheduler())
                await asyncio.sleep(pause)
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
            running = asyncio.create_task(kit.run_scheduler())
            await kit.queue("q").claim("w", wait=PATIENCE)
        await asyncio.wait_for(running, PATIENCE)

    asyncio.run(main())


@proves("K6", "K7")
def test_three_schedulers_at_once_fire_each_fire_once(kit: EventKit, url: str, flavour: str) -> None:
    """They run in real time, with schedules that are due at the same moments."""
    for n in range(4):
        kit.schedules.add(f"s{n}", "* * * * * *", f"q{n % 2}")
    first = kit.schedules.soonest()
    processes = [spawn(run_for, url, flavour, 2.5) for _ in range(3)]
    go_together(kit, 3)
    for process in processes:
        process.join()
    for n in range(4):
        schedule = kit.schedules.get(f"s{n}")
        assert schedule is not None
        assert schedule.fired >= 2
        assert schedule.skipped == 0
        assert first is not None
        expected = [(f"s{n}", (first + k * _SECOND).isoformat()) for k in range(schedule.fired)]
        assert [fire for fire in fires(kit, f"q{n % 2}") if fire[0] == f"s{n}"] == expected

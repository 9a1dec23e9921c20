"""Functions that other processes run in the tests of schedules."""

import os
import signal
import time
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import eventkit
from eventkit.operations.schedule import Tick
from eventkit.values import Schedule

from .streaming import go, kit_on, wait_for_go
from .threads import PATIENCE, eventually, in_thread


def upcoming_in_zone(url: str, zone: str, name: str, when: str, tz: str) -> tuple[list[datetime], datetime | None]:
    """Return a schedule's upcoming fires and the next fire of a copy added here, both computed in *zone*."""
    os.environ["TZ"] = zone
    time.tzset()
    with eventkit.connect(url) as kit:
        kit.schedules.add(f"{name} in {zone}", when, "q", tz=tz)
        copy = kit.schedules.get(f"{name} in {zone}")
        assert copy is not None
        return kit.schedules.upcoming(name, 800), copy.next_at


SECOND = timedelta(seconds=1)


def the_schedule(kit: Any, name: str) -> Schedule:
    """Return the schedule of that name."""
    schedule: Schedule | None = kit.schedules.get(name)
    assert schedule is not None
    return schedule


def next_fire(kit: Any, name: str) -> datetime:
    """Return the moment of its next fire."""
    moment = the_schedule(kit, name).next_at
    assert moment is not None
    return moment


def fires(kit: Any, queue: str) -> list[tuple[str, str]]:
    """Return the schedule and the moment of each task in the queue, sorted."""
    tasks = kit.queue(queue).tasks(limit=1_000_000)
    return sorted((task.headers["eventkit-schedule"], task.headers["eventkit-fire"]) for task in tasks)


def go_together(kit: Any, processes: int) -> None:
    """Let the processes begin once all of them are ready."""
    eventually(lambda: kit.queue("ready").size() == processes)
    go(kit)


def _wait_for_go(kit: Any) -> None:
    kit.queue("ready").enqueue(None)
    wait_for_go(kit)


def tick_along(url: str, flavour: str, moments: list[datetime]) -> list[tuple[datetime, int]]:
    """Tick at each of the moments without a pause; return the moments of the fires, and their tasks."""
    fired: list[tuple[datetime, int]] = []
    with kit_on(url, flavour) as kit:
        _wait_for_go(kit)
        for moment in moments:
            fired += [(fire.moment, fire.task_id) for fire in kit.schedules.tick(moment)]
    return fired


def run_for(url: str, flavour: str, seconds: float) -> None:
    """Run a scheduler for some seconds after the start signal."""
    with kit_on(url, flavour) as kit:
        _wait_for_go(kit)
        running = in_thread(kit.run_scheduler)
        time.sleep(seconds)
        kit.close()
        running.result(PATIENCE)


STEPS = 5
"""The places where a tick may die: before its first statement, between any two, before its commit, and after it."""


def die_ticking(url: str, flavour: str, deaths: list[tuple[datetime, int]]) -> list[int]:
    """Let processes tick at the moments and each die at its step; return how they ended."""
    ends = []
    for moment, step in deaths:
        child = os.fork()
        if not child:
            _die_at(step)
            with kit_on(url, flavour) as kit:
                kit.schedules.tick(moment)
                _die()
        ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return ends


def _die_at(last: int) -> None:
    """Let a tick in this process kill it before statement number *last*, counted from 0; the commit counts too."""
    plan = Tick.plan

    def deadly(self: Tick) -> Any:
        steps = plan(self)
        rows: Any = None
        for number in count():
            try:
                step = steps.send(rows)
            except StopIteration as done:
                if number == last:
                    _die()
                return done.value
            if number == last:
                _die()
            rows = yield step

    Tick.plan = deadly  # type: ignore[method-assign]


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

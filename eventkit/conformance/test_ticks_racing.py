"""Ticks of several schedulers at once, and of those that are killed: each fire is one task (K6)."""

import random

import pytest

from eventkit import EventKit

from .clauses import proves
from .processes import spawn
from .scheduling import SECOND, STEPS, die_ticking, fires, go_together, next_fire, the_schedule, tick_along


@proves("K6")
def test_three_schedulers_and_a_hundred_fires(kit: EventKit, url: str, flavour: str) -> None:
    """Come to a hundred tasks, whoever makes them."""
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
    for begin in range(0, kills, 4 * STEPS):  # So many are not too many for the patience with one process.
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
    """Between any two statements, before the commit and after it, each a few times."""
    _kill(kit, url, flavour, 4 * STEPS)


@proves("K6")
@pytest.mark.slow
def test_schedulers_killed_two_hundred_times(kit: EventKit, url: str, flavour: str) -> None:
    """The same, in many orders."""
    _kill(kit, url, flavour, 200)

"""Ticks beside many schedules: whether schedules that are not due slow down ticks."""

import statistics
from collections.abc import Callable, Iterator
from datetime import timedelta
from time import perf_counter

import eventkit

from .report import Table, milliseconds, verdict
from .settings import Settings

_BAR = 0.005


def measure(settings: Settings) -> Iterator[Table]:
    """Measure ticks on a file."""
    yield ticks(settings, "", f"sqlite:///{settings.folder('schedules')}/kit.db")


def ticks(settings: Settings, title: str, url: str, note: str = "") -> Table:
    """Return a table of ticks that fire nothing, and of ticks that fire one schedule."""
    crowd = settings.count(10_000, least=200)
    rounds = settings.count(1_000, least=20)
    table = Table(
        f"{title}A tick beside {crowd:,} idle schedules".strip(),
        ("the tick", "median", "99 of 100 within", "bar for the median", "reached"),
        note=f"{rounds:,} ticks one after the other, each a transaction of its own. {note}".strip(),
    )
    with eventkit.connect(url) as kit:
        with kit.transaction() as tx:
            for number in range(crowd):
                kit.schedules.add(f"idle {number}", "30 2 1 1 *", "idle", tz="Europe/Berlin", tx=tx)
        kit.schedules.add("busy", "@every 1s", "busy")
        due = kit.schedules.soonest()
        assert due is not None
        first = due
        kinds: dict[str, tuple[Callable[[int], object], int]] = {
            "finds nothing due": (lambda number: kit.schedules.tick(first - timedelta(seconds=1)), 0),
            "fires one": (lambda number: kit.schedules.tick(first + timedelta(seconds=number)), rounds),
        }
        for kind, (tick, expected) in kinds.items():
            times = sorted(_seconds(tick, number) for number in range(rounds))
            fired = kit.queue("busy").size()
            if fired != expected:
                raise AssertionError(f"{fired} tasks came of {expected} fires")
            median = statistics.median(times)
            within = times[int(len(times) * 0.99) - 1]
            cells = [kind, milliseconds(median), milliseconds(within), f"≤ {milliseconds(_BAR)}"]
            table.add([*cells, verdict(median <= _BAR)])
    return table


def _seconds(tick: Callable[[int], object], number: int) -> float:
    start = perf_counter()
    tick(number)
    return perf_counter() - start

"""Looking at a large queue: whether the numbers of a million tasks are there at once."""

import statistics
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import eventkit
from eventkit import NewTask, TaskQueue

from .report import Table, milliseconds, verdict
from .settings import Settings

_BAR = 0.020
_AT_ONCE = 10_000


def measure(settings: Settings) -> Iterator[Table]:
    """The numbers of a file."""
    yield looks(settings, "", f"sqlite:///{settings.folder('overview')}/kit.db")


def looks(settings: Settings, title: str, url: str, note: str = "") -> Table:
    """A table of `stats` while most of the tasks are in one state, and in another."""
    crowd = settings.count(1_000_000, least=200)
    rounds = settings.count(100, least=5)
    table = Table(
        f"{title}stats of a queue of {crowd:,} tasks".strip(),
        ("most of them are", "median", "the slowest", "bar for the median", "reached"),
        note=f"{rounds} looks one after the other. {note}".strip(),
    )
    with eventkit.connect(url) as kit:
        for state, delay in (("ready", None), ("scheduled", 86_400)):
            queue = kit.queue(state)
            for start in range(0, crowd, _AT_ONCE):
                numbers = range(start, min(crowd, start + _AT_ONCE))
                queue.enqueue_many(numbers if delay is None else [NewTask(number, delay=delay) for number in numbers])
            stats = queue.stats()
            times = [_seconds(queue) for _ in range(rounds)]
            if getattr(stats, state) != min(crowd, 10_000):
                raise AssertionError(f"{stats} of {crowd} tasks")
            median = statistics.median(times)
            table.add(
                [
                    state,
                    milliseconds(median),
                    milliseconds(max(times)),
                    f"≤ {milliseconds(_BAR)}",
                    verdict(median <= _BAR),
                ]
            )
    return table


def _seconds(queue: TaskQueue[Any]) -> float:
    start = perf_counter()
    queue.stats()
    return perf_counter() - start

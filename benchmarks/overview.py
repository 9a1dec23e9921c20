"""Statistics of a large database: whether the numbers of millions of tasks are returned at once."""

import random
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import eventkit
from eventkit import EventKit, NewTask, TaskQueue

from .payloads import payloads
from .report import Table, milliseconds, verdict
from .settings import Settings

_BAR = 0.020
_AT_ONCE = 10_000
_LONG = 86_400


def measure(settings: Settings) -> Iterator[Table]:
    """Measure the statistics of a file."""
    yield looks(settings, "", f"sqlite:///{settings.folder('overview')}/kit.db")


def looks(settings: Settings, title: str, url: str, note: str = "") -> Table:
    """Return a table of `stats` of queues whose tasks are all in one state, and of `overview` after each."""
    crowd = settings.count(1_000_000, least=200)
    rounds = settings.count(100, least=5)
    soon = settings.seconds(20)
    table = Table(
        f"{title}numbers of queues of {crowd:,} tasks each".strip(),
        ("all are", "stats, median", "slowest", "overview, median", "slowest", "bar for the medians", "reached"),
        note=f"{rounds} calls one after the other. An overview includes the queues above it, and a topic of "
        f"{crowd:,} events with a consumer that has read none. {note}".strip(),
    )
    with eventkit.connect(url) as kit:
        _publish(kit, crowd)
        for name, state, fill in (
            ("ready", "ready", _make_ready),
            ("scheduled", "scheduled", _make_scheduled),
            ("due, and not moved", "ready", lambda queue, count: _make_due(queue, count, soon)),
            ("dead", "dead", _make_dead),
            ("done", "done", _make_done),
        ):
            queue = kit.queue(name)
            for start in range(0, crowd, _AT_ONCE):
                fill(queue, min(_AT_ONCE, crowd - start))
            if name.startswith("due"):
                time.sleep(soon)
            expected = min(crowd, 10_000)
            if not getattr(queue.stats(), state) == getattr(kit.overview().queues[name], state) == expected:
                raise AssertionError(f"{queue.stats()} of {crowd} tasks that are {name}")
            stats = [_seconds(queue.stats) for _ in range(rounds)]
            overviews = [_seconds(kit.overview) for _ in range(rounds)]
            medians = statistics.median(stats), statistics.median(overviews)
            table.add(
                [
                    name,
                    milliseconds(medians[0]),
                    milliseconds(max(stats)),
                    milliseconds(medians[1]),
                    milliseconds(max(overviews)),
                    f"≤ {milliseconds(_BAR)}",
                    verdict(max(medians) <= _BAR),
                ]
            )
    return table


def _publish(kit: EventKit, count: int) -> None:
    stream = kit.stream("events")
    for start in range(0, count, _AT_ONCE):
        stream.publish_many(payloads(min(_AT_ONCE, count - start)))
    stream.seek("slow", 0)


def _make_ready(queue: TaskQueue[Any], count: int) -> None:
    queue.enqueue_many(payloads(count))


def _make_scheduled(queue: TaskQueue[Any], count: int) -> None:
    queue.enqueue_many(NewTask(payload, delay=random.uniform(_LONG, 2 * _LONG)) for payload in payloads(count))


def _make_due(queue: TaskQueue[Any], count: int, soon: float) -> None:
    """Make tasks due in another order than that of their rows."""
    queue.enqueue_many(NewTask(payload, delay=random.uniform(soon / 2, soon)) for payload in payloads(count))


def _make_dead(queue: TaskQueue[Any], count: int) -> None:
    queue.enqueue_many(NewTask(payload, expires=0) for payload in payloads(count))
    queue.sweep()


def _make_done(queue: TaskQueue[Any], count: int) -> None:
    queue.configure(keep_done=_LONG)
    queue.enqueue_many(payloads(count))
    while tasks := queue.claim("worker", 1000):
        queue.ack_many(tasks)


def _seconds(look: Callable[[], object]) -> float:
    start = time.perf_counter()
    look()
    return time.perf_counter() - start

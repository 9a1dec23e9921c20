"""``eventkit bench`` and ``demo``."""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any
from uuid import uuid4

import typer

from .admin import wakes
from .output import Result, listing, note
from .settings import argument, command, group, opened, option

commands = group()


@command(commands)
def bench(
    address: str, seconds: Annotated[float, option(None, "Duration of each measurement.", min=0.1, max=60)] = 1.0
) -> Result:
    """Benchmark this database from here.

    It uses a queue, a stream and a channel of its own, and removes them afterwards.
    """
    rows = []
    for name, value, unit in _measured(address, seconds):
        rows.append({"measure": name, "value": value, "unit": unit})
        note(f"{name}: {value:,} {unit}")
    return listing(rows, ("measure", "value", "unit"), "nothing")


@command(commands)
def demo(
    part: Annotated[
        list[str] | None, argument("PART", "With two terminals: listen in one, order ITEM in the other.")
    ] = None,
) -> None:
    """Run a demonstration in a new SQLite file in this folder."""
    from eventkit.demo import main

    if code := main(part or []):
        raise typer.Exit(code)


_BATCH = 1000
_WAKES = 20


def _measured(address: str, seconds: float) -> Iterator[tuple[str, float, str]]:
    """Yield name, value and unit of each measurement when it is taken; remove its data at the end in any case."""
    name = f"eventkit:bench:{uuid4().hex[:8]}"
    with opened(address) as kit:
        queue, stream, channel = kit.queue(name), kit.stream(name), kit.channel(name)
        try:
            for what, unit, each, act in _steps(queue, stream):
                began, acts = time.perf_counter(), 0
                while (took := time.perf_counter() - began) < seconds or not acts:
                    act()
                    acts += 1
                yield what, round(acts * each / took), unit
            yield "commit to listener, median", round(statistics.median(wakes(channel, _WAKES)) * 1000, 2), "ms"
        finally:
            queue.drop(force=True)
            stream.prune(keep_count=0, keep_unconsumed=False)
            channel.prune(keep_count=0)


_Step = tuple[str, str, int, Callable[[], object]]
"""The name of a measurement, its unit, the number of units in a call, and the call."""


def _steps(queue: Any, stream: Any) -> Iterator[_Step]:
    job, event, place = {"to": "ann@example.com", "order": 42}, {"id": 42}, 0
    jobs, events = [job] * _BATCH, [event] * _BATCH

    def work(limit: int) -> object:
        return queue.ack_many(queue.claim("bench", limit)) or queue.enqueue_many(jobs)

    def read() -> None:
        nonlocal place
        found = stream.read(place, _BATCH)
        place = found[-1].offset if len(found) == _BATCH else 0

    yield "enqueue, one by one", "tasks/s", 1, lambda: queue.enqueue(job)
    yield f"enqueue_many, {_BATCH}", "tasks/s", _BATCH, lambda: queue.enqueue_many(jobs)
    yield "claim and ack, one by one", "tasks/s", 1, lambda: work(1)
    yield "claim and ack, 100", "tasks/s", 100, lambda: work(100)
    yield "publish, one by one", "events/s", 1, lambda: stream.publish(event)
    yield f"publish_many, {_BATCH}", "events/s", _BATCH, lambda: stream.publish_many(events)
    yield f"read, {_BATCH}", "events/s", _BATCH, read

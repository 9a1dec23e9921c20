"""The pages of the dashboard beside a million tasks: the time of one that queries the database."""

import asyncio
import statistics
import time
from collections.abc import Iterator

import httpx

import eventkit
from eventkit import EventKit, NewEvent, NewTask
from eventkit.http import app

from .payloads import payloads
from .report import Table, milliseconds, verdict
from .settings import Settings

_BAR = 0.050
_AT_ONCE = 10_000
_LONG = 86_400

PAGES = {
    "overview": "/",
    "queues": "/dashboard/queues",
    "ready tasks": "/dashboard/queue?name=ready",
    "scheduled tasks": "/dashboard/queue?name=scheduled&state=scheduled",
    "dead tasks": "/dashboard/queue?name=dead&state=dead",
    "a stream": "/dashboard/stream?topic=events",
    "a key of a stream": "/dashboard/stream?topic=events&key=rare",
    "workers": "/dashboard/workers",
    "metrics": "/metrics",
}


def measure(settings: Settings) -> Iterator[Table]:
    """Measure pages on a file."""
    yield pages(settings, "", f"sqlite:///{settings.folder('dashboard')}/kit.db")


def pages(settings: Settings, title: str, url: str) -> Table:
    """Return a table of the times of pages, each with queries that are not cached."""
    crowd = settings.count(1_000_000, least=400)
    rounds = settings.count(50, least=3)
    with eventkit.connect(url) as kit:
        _fill(kit, crowd)
    table = Table(
        f"{title}pages of the dashboard at {crowd:,} tasks and {crowd // 4:,} events".strip(),
        ("page", "median", "slowest", "processor's time", "bar for the median", "reached"),
        note=f"{rounds} requests one after the other, in the service's process; caches are cleared before each. "
        "The processor's time is that of the whole process, on which a busy machine has less effect.",
    )
    for name, (took, worked) in asyncio.run(_ask(url, rounds)).items():
        median = statistics.median(took)
        bar = (f"≤ {milliseconds(_BAR)}", verdict(median <= _BAR)) if name == "overview" else ("", "")
        table.add([name, milliseconds(median), milliseconds(max(took)), milliseconds(statistics.median(worked)), *bar])
    return table


async def _ask(url: str, rounds: int) -> dict[str, tuple[list[float], list[float]]]:
    found: dict[str, tuple[list[float], list[float]]] = {}
    async with eventkit.connect_async(url) as kit:
        service = app(kit)
        transport = httpx.ASGITransport(service)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for name, path in PAGES.items():
                await client.get(path)
                took, worked = found[name] = ([], [])
                for _ in range(rounds):
                    service.state.context.watch.forget()
                    began, idle = time.perf_counter(), time.process_time()
                    answer = await client.get(path)
                    took.append(time.perf_counter() - began)
                    worked.append(time.process_time() - idle)
                    if answer.status_code != 200:
                        raise AssertionError(f"{path}: {answer.text}")
    return found


def _fill(kit: EventKit, crowd: int) -> None:
    """Add a quarter of the tasks in each of four states, and events, a few of them with a certain key."""
    quarter = crowd // 4
    for start in range(0, quarter, _AT_ONCE):
        some = list(payloads(min(_AT_ONCE, quarter - start)))
        kit.queue("ready").enqueue_many(some)
        kit.queue("scheduled").enqueue_many(NewTask(payload, delay=_LONG) for payload in some)
        kit.queue("dead").enqueue_many(NewTask(payload, expires=0) for payload in some)
        kit.queue("leased").enqueue_many(some)
        kit.stream("events").publish_many(NewEvent(payload, key="common") for payload in some)
    kit.queue("dead").sweep()
    kit.stream("events").publish("first", key="rare")
    kit.stream("events").seek("slow", 0)
    while kit.queue("leased").claim("worker", 1000, lease=_LONG):
        pass

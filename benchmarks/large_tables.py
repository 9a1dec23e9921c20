"""Calls beside many rows: claims beside other tasks, ticks beside schedules, numbers, and pages of the dashboard."""

import asyncio
import random
import statistics
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import httpx

import eventkit
from eventkit import EventKit, NewEvent, NewTask
from eventkit.http import app

from .contestants import payloads
from .databases import Database, Settings
from .kits import Kit
from .processes import started
from .report import NO_BAR, Table, at_least, at_most, milliseconds, ratio, thousands
from .rounds import contest, p99, seconds

_AT_ONCE = 10_000
_LONG = 86_400


def measure_claims(settings: Settings, database: Database) -> Iterator[Table]:
    """Measure claim + ack, one by one, in queues with different other tasks."""
    others = settings.count(100_000, least=1000)
    table = Table(
        "Claim + ack, one by one, beside other tasks",
        f"beside it, {others:,} tasks | eventkit /s | of the empty queue's (spread) | bar | reached",
    )
    states = ("nothing", "ready", "scheduled", "running", "dead")
    with started({state: (Kit, database.new()) for state in states}) as (kits, _):
        for state, kit in kits.items():
            kit.call("fill_beside", state, others)
        result = contest(kits, "claim", settings.count(2_000, least=100), rounds=settings.rounds)
    for state in states:
        spread = result.ratio(state, "nothing")
        bar = None if state == "nothing" else 0.9
        table.add(state, thousands(result.rate(state)), ratio(spread), *at_least(spread and spread.median, bar))
    yield table


def measure_ticks(settings: Settings, database: Database) -> Iterator[Table]:
    """Measure ticks that fire nothing, and ticks that fire one schedule."""
    others, rounds = settings.count(10_000, least=200), settings.count(1_000, least=20)
    table = Table(
        f"A tick beside {others:,} idle schedules",
        "the tick | median | 99 of 100 within | bar for the median | reached",
        note=f"{rounds:,} ticks one after the other, each a transaction of its own.",
    )
    with eventkit.connect(database.new()) as kit:
        with kit.transaction() as tx:
            for number in range(others):
                kit.schedules.add(f"idle {number}", "30 2 1 1 *", "idle", tz="Europe/Berlin", tx=tx)
        kit.schedules.add("busy", "@every 1s", "busy")
        first = kit.schedules.soonest()
        assert first is not None
        for kind, expected in (("finds nothing due", 0), ("fires one", rounds)):
            moments = [first + timedelta(seconds=number if expected else -1) for number in range(rounds)]
            times = [seconds(kit.schedules.tick, moment) for moment in moments]
            if (fired := kit.queue("busy").size()) != expected:
                raise AssertionError(f"{fired} tasks were enqueued by {expected} fires")
            median = statistics.median(times)
            table.add(kind, milliseconds(median), milliseconds(p99(times)), *at_most(median, 0.005, milliseconds))
    yield table


def measure_overview(settings: Settings, database: Database) -> Iterator[Table]:
    """Measure `stats` of queues whose tasks are all in one state, and `overview` after each."""
    tasks, rounds, soon = settings.count(500_000, least=200), settings.count(100, least=5), settings.seconds(15)
    table = Table(
        f"Numbers of queues of {tasks:,} tasks each",
        "all are | stats, median | slowest | overview, median | slowest | bar for the medians | reached",
        note=f"{rounds} calls one after the other. An overview includes the queues above it, and a stream of "
        f"{tasks:,} events with a consumer that has read none.",
    )
    with eventkit.connect(database.new()) as kit:
        for some in _chunks(tasks):
            kit.stream("events").publish_many(some)
        kit.stream("events").seek("slow", 0)
        for name, state, change in (
            ("ready", "ready", lambda payload: payload),
            ("scheduled", "scheduled", lambda payload: NewTask(payload, delay=random.uniform(_LONG, 2 * _LONG))),
            # The tasks are due in another order than that of their rows.
            ("due, and not moved", "ready", lambda payload: NewTask(payload, delay=random.uniform(soon / 2, soon))),
            ("dead", "dead", lambda payload: NewTask(payload, expires=0)),
            ("done", "done", lambda payload: payload),
        ):
            queue = kit.queue(name)
            if name == "done":
                queue.configure(keep_done=_LONG)
            for some in _chunks(tasks):
                queue.enqueue_many(map(change, some))
                if name == "dead":
                    queue.sweep()
            while name == "done" and (claimed := queue.claim("worker", 1000)):
                queue.ack_many(claimed)
            if name.startswith("due"):
                time.sleep(soon)
            expected = min(tasks, 10_000)
            if not getattr(queue.stats(), state) == getattr(kit.overview().queues[name], state) == expected:
                raise AssertionError(f"{queue.stats()} of {tasks} tasks that are {name}")
            times = [[seconds(call) for _ in range(rounds)] for call in (queue.stats, kit.overview)]
            medians = [statistics.median(column) for column in times]
            cells = (f(column) for column in times for f in (_median, _slowest))
            table.add(name, *cells, *at_most(max(medians), 0.020, milliseconds))
    yield table


PAGES = {
    "overview": "/",
    "queues": "/dashboard/queues",
    "ready tasks": "/dashboard/queue?name=ready",
    "scheduled tasks": "/dashboard/queue?name=scheduled&state=scheduled",
    "dead tasks": "/dashboard/queue?name=dead&state=dead",
    "a stream": "/dashboard/stream?stream=events",
    "a key of a stream": "/dashboard/stream?stream=events&key=rare",
    "workers": "/dashboard/workers",
    "metrics": "/metrics",
}


def measure_pages(settings: Settings, database: Database) -> Iterator[Table]:
    """Measure pages of the dashboard, each with queries that are not cached."""
    tasks, rounds = settings.count(400_000, least=400), settings.count(50, least=3)
    url = database.new()
    with eventkit.connect(url) as kit:
        _fill_states(kit, tasks // 4)
    table = Table(
        f"Pages of the dashboard at {tasks:,} tasks and {tasks // 4:,} events",
        "page | median | slowest | processor's time | bar for the median | reached",
        note=f"{rounds} requests one after the other, in the service's process; each reads the database. "
        "The processor's time is that of the whole process, on which a busy machine has less effect.",
    )
    with patch("eventkit.http.service.FRESH", -1.0):
        pages = asyncio.run(_request_pages(url, rounds))
    for name, (took, worked) in pages.items():
        bar = at_most(statistics.median(took), 0.050, milliseconds) if name == "overview" else NO_BAR
        table.add(name, _median(took), _slowest(took), _median(worked), *bar)
    yield table


async def _request_pages(url: str, rounds: int) -> dict[str, tuple[list[float], list[float]]]:
    found: dict[str, tuple[list[float], list[float]]] = {}
    async with eventkit.connect_async(url) as kit:
        transport = httpx.ASGITransport(app(kit))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for name, path in PAGES.items():
                await client.get(path)
                took, worked = found[name] = ([], [])
                for _ in range(rounds):
                    began, idle = time.perf_counter(), time.process_time()
                    answer = await client.get(path)
                    took.append(time.perf_counter() - began)
                    worked.append(time.process_time() - idle)
                    if answer.status_code != 200:
                        raise AssertionError(f"{path}: {answer.text}")
    return found


def _fill_states(kit: EventKit, number: int) -> None:
    """Add tasks in each of four states, and events, one of them with a rare key."""
    for some in _chunks(number):
        kit.queue("ready").enqueue_many(some)
        kit.queue("scheduled").enqueue_many(NewTask(payload, delay=_LONG) for payload in some)
        kit.queue("dead").enqueue_many(NewTask(payload, expires=0) for payload in some)
        kit.queue("running").enqueue_many(some)
        kit.stream("events").publish_many(NewEvent(payload, key="common") for payload in some)
    kit.queue("dead").sweep()
    kit.stream("events").publish("first", key="rare")
    kit.stream("events").seek("slow", 0)
    while kit.queue("running").claim("worker", 1000, lease=_LONG):
        pass


def _chunks(count: int) -> Iterator[list[Any]]:
    return (list(payloads(min(_AT_ONCE, count - start))) for start in range(0, count, _AT_ONCE))


def _median(times: list[float]) -> str:
    return milliseconds(statistics.median(times))


def _slowest(times: list[float]) -> str:
    return milliseconds(max(times))

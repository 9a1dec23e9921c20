"""Postgres beside an old transaction, which prevents the removal of every dead row.

One group measures how rates change; the other measures the latency of claims and table sizes under a steady load.
"""

import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import islice
from typing import Any

import msgspec
import psycopg

import eventkit

from .contestants import WithKit, payloads
from .databases import Postgres, Settings
from .processes import Remote
from .report import NO_BAR, Table, at_most, milliseconds, thousands, verdict

_BATCH = 100
_HELD = 10.0
"""Seconds for which the transaction of an enqueue stays open."""


class Worker(WithKit):
    """A process whose work is measured by slices of the time; this one publishes one event at a time."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._queue, self._topic = self.kit.queue("work"), self.kit.stream("topic")
        self._source = payloads(10**9)
        self._seen: set[int] = set()

    def rates(self, work: str, seconds: float, slices: int) -> list[float]:
        """Work for *seconds*, and return the tasks or events a second, by slices."""
        call: Callable[[], int] = getattr(self, work)
        rates = []
        for _ in range(slices):
            start, done = time.perf_counter(), 0
            while (passed := time.perf_counter() - start) < seconds / slices:
                done += call()
            rates.append(done / passed)
        return rates

    def publish(self) -> int:
        """Publish an event."""
        self._topic.publish(next(self._source))
        return 1

    def handle(self) -> int:
        """Enqueue and claim tasks, retry one of fifty, and ack the others."""
        self._queue.enqueue_many(
            eventkit.NewTask(payload, priority=random.choice((0, 5, 9))) for payload in islice(self._source, _BATCH)
        )
        tasks = self._queue.claim("worker", _BATCH)
        self._seen.update(task.id for task in tasks)
        again = [task for task in tasks if task.attempt == 1 and task.id % 50 == 0]
        for task in again:
            self._queue.retry(task, delay=0)
        return len(self._queue.ack_many(task for task in tasks if task not in again))

    def has_seen(self, id: int) -> bool:
        """Return whether a claim has returned this task, after a moment more of claims."""
        deadline = time.monotonic() + 10
        while id not in self._seen and time.monotonic() < deadline:
            tasks = self._queue.claim("worker", 1000)
            self._seen.update(task.id for task in tasks)
            self._queue.ack_many(tasks)
        return id in self._seen


class Sleepers(WithKit):
    """Consumers that connect, sleep for a moment and leave, repeatedly."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._going = True
        for name in range(4):
            threading.Thread(target=self._sleep, args=(name,), daemon=True).start()

    def _sleep(self, name: int) -> None:
        queue = self.kit.queue(f"sleeping-{name}")
        with suppress(eventkit.Closed):
            while self._going:
                queue.claim("sleeper", wait=0.05)
                with self.kit.stream("topic").subscribe(start="latest") as events:
                    for _ in events:
                        break

    def close(self) -> None:
        """Close the kit."""
        self._going = False
        super().close()


def measure_rates(settings: Settings, database: Postgres) -> Iterator[Table]:
    """Measure the rates at the start and at the end, with and without the old transaction."""
    seconds, slices = settings.seconds(30), 3 if settings.quick else 12
    table = Table(
        f"Postgres, {seconds:g} s with and without one old transaction elsewhere",
        "work | old transaction | at the start /s | at the end /s | end / start | bar | reached",
        note="The start and the end are the medians of the first and the last quarter. The old transaction has an id "
        f"and a snapshot, in the same database. The transaction of an enqueue stays open for {_HELD:g} s; its "
        "task must not be lost.",
    )
    for title, work in (
        ("enqueue, claim, retry, ack in batches of 100, three priorities", "handle"),
        ("publish, one per transaction, four sleepers coming and going", "publish"),
    ):
        for held in (False, True):
            with ExitStack() as stack:
                url = database.new()
                worker = stack.enter_context(Remote(Worker, url))
                worker.ready()
                if work == "publish":
                    stack.enter_context(Remote(Sleepers, url)).ready()
                if held:
                    _begin_old(stack.enter_context(psycopg.connect(url)))
                worker.begin("rates", work, seconds, slices)
                id = _enqueue_slowly(url, min(_HELD, seconds / 2)) if work == "handle" else None
                rates = worker.result()
                lost = id is not None and not worker.call("has_seen", id)
            quarter = max(1, len(rates) // 4)
            first, last = statistics.median(rates[:quarter]), statistics.median(rates[-quarter:])
            bar = ("≥ 0.8, nothing lost", verdict(last >= 0.8 * first and not lost)) if held else NO_BAR
            kept = f"**{last / first:.2f}**" + (", **the held task was lost**" if lost else "")
            table.add(title, "open" if held else "none", thousands(first), thousands(last), kept, *bar)
    yield table


def _begin_old(connection: psycopg.Connection[Any]) -> None:
    """Begin a transaction with an id and a snapshot that it keeps."""
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    connection.execute("SELECT pg_current_xact_id()")


def _enqueue_slowly(url: str, seconds: float) -> int:
    """Enqueue a task in a transaction that stays open for *seconds*, and return its id."""
    with eventkit.connect(url) as kit, kit.transaction() as tx:
        id = kit.queue("work").enqueue("held", priority=5, tx=tx).id
        time.sleep(seconds)
    return id


_RATE = 2_000
"""Tasks a second."""

_TICKS = 20
_CLAIMED = 50
"""The number of parts in which a second's tasks are enqueued, and of tasks claimed at once."""

_SIZES = """
SELECT
    pg_relation_size('eventkit.eventkit_task'),
    pg_relation_size('eventkit.eventkit_task_ready'),
    pg_indexes_size('eventkit.eventkit_task'),
    pg_total_relation_size('eventkit.eventkit_low_water'),
    (SELECT n_dead_tup FROM pg_stat_user_tables WHERE schemaname = 'eventkit' AND relname = 'eventkit_task')
"""


class Period(msgspec.Struct, frozen=True):
    """The latencies of claims in a period, and the number of finished tasks."""

    seconds: float
    done: int
    claims: list[float]


class Steady(WithKit):
    """A process that enqueues, claims and acks tasks at a fixed rate."""

    def run(self, seconds: float) -> Period:
        """Work for *seconds*, at most at the rate of enqueueing."""
        queue, source = self.kit.queue("work"), payloads(10**9)
        claims, done = [], 0
        begun = time.perf_counter()
        tick = begun
        while time.perf_counter() - begun < seconds:
            queue.enqueue_many(islice(source, _RATE // _TICKS))
            for _ in range(_RATE // _TICKS // _CLAIMED):
                start = time.perf_counter()
                tasks = queue.claim("worker", _CLAIMED)
                claims.append(time.perf_counter() - start)
                done += len(queue.ack_many(tasks))
            tick += 1 / _TICKS
            time.sleep(max(0.0, tick - time.perf_counter()))
        return Period(time.perf_counter() - begun, done, claims)


def measure_sizes(settings: Settings, database: Postgres) -> Iterator[Table]:
    """Measure a period alone, three beside an old transaction, and one after it."""
    seconds = settings.seconds(30)
    table = Table(
        f"Postgres, {_RATE:,} tasks a second for five periods of {seconds:g} s",
        "period | old transaction | tasks /s | claim, median | 99th percentile | table MB | ready index MB | "
        "all indexes MB | low marks MB | dead rows | bar: 2 × the first | reached",
        note=f"A task is enqueued with {_RATE // _TICKS - 1} others, claimed and acked with {_CLAIMED - 1}. One "
        "transaction elsewhere, with an id and a snapshot, stays open from the second period to the fourth. "
        "Dead rows according to the server's statistics.",
    )
    url = database.new()
    with (
        Remote(Steady, url) as worker,
        psycopg.connect(url) as old,
        psycopg.connect(url, autocommit=True) as ask,
    ):
        worker.call("run", seconds / 10)
        first = None
        for number in range(1, 6):
            if number == 2:
                _begin_old(old)
            if number == 5:
                old.rollback()
            period = worker.call("run", seconds)
            median = statistics.median(period.claims)
            [(*sizes, dead)] = ask.execute(_SIZES).fetchall()
            table.add(
                *(str(number), "open" if number in (2, 3, 4) else "none", thousands(period.done / period.seconds)),
                *(milliseconds(median), milliseconds(statistics.quantiles(period.claims, n=100)[98])),
                *(f"{size / 1e6:.1f}" for size in sizes),
                thousands(dead),
                *at_most(median, first and 2 * first, milliseconds),
            )
            first = first or median
    yield table

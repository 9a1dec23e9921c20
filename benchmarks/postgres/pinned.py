"""Claims, and publishing to sleepers, while an old transaction prevents the removal of every dead row."""

import random
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import islice
from typing import Any

import psycopg

import eventkit

from ..payloads import payloads
from ..processes import Remote
from ..report import Table, thousands, verdict
from ..settings import Settings
from .server import serving

_BATCH = 100
_HELD = 10.0
"""Seconds for which the transaction of an enqueue stays open."""


class Worker:
    """A process that enqueues, claims, retries one task of fifty, and acks the others."""

    def __init__(self, url: str) -> None:
        self._kit = eventkit.connect(url)
        self._queue = self._kit.queue("work")
        self._retried: set[int] = set()
        self._seen: set[int] = set()

    def run(self, seconds: float, slices: int) -> list[float]:
        """Work for *seconds*, and return the tasks a second, by slices of the time."""
        rates = []
        source = payloads(10**9)
        for _ in range(slices):
            start, done = time.perf_counter(), 0
            while (passed := time.perf_counter() - start) < seconds / slices:
                self._queue.enqueue_many(
                    eventkit.NewTask(payload, priority=random.choice((0, 5, 9))) for payload in islice(source, _BATCH)
                )
                tasks = self._queue.claim("worker", _BATCH)
                self._seen.update(task.id for task in tasks)
                again = [task for task in tasks if task.attempt == 1 and task.id % 50 == 0]
                for task in again:
                    self._queue.retry(task, delay=0)
                done += len(self._queue.ack_many(task for task in tasks if task not in again))
            rates.append(done / passed)
        return rates

    def has_seen(self, id: int) -> bool:
        """Return whether a claim has returned this task, after a moment more of claims."""
        deadline = time.monotonic() + 10
        while id not in self._seen and time.monotonic() < deadline:
            tasks = self._queue.claim("worker", 1000)
            self._seen.update(task.id for task in tasks)
            self._queue.ack_many(tasks)
        return id in self._seen

    def close(self) -> None:
        """Close the kit."""
        self._kit.close()


class Publisher:
    """A process that publishes one event at a time."""

    def __init__(self, url: str) -> None:
        self._kit = eventkit.connect(url)
        self._topic = self._kit.stream("topic")

    def run(self, seconds: float, slices: int) -> list[float]:
        """Publish for *seconds*, and return the events a second, by slices of the time."""
        rates = []
        source = payloads(10**9)
        for _ in range(slices):
            start, done = time.perf_counter(), 0
            while (passed := time.perf_counter() - start) < seconds / slices:
                self._topic.publish(next(source))
                done += 1
            rates.append(done / passed)
        return rates

    def close(self) -> None:
        """Close the kit."""
        self._kit.close()


class Sleepers:
    """Consumers that connect, sleep for a moment and leave, repeatedly."""

    def __init__(self, url: str) -> None:
        self._kit = eventkit.connect(url)
        self._going = True
        self._threads = [threading.Thread(target=self._run, args=(name,), daemon=True) for name in range(4)]
        for thread in self._threads:
            thread.start()

    def _run(self, name: int) -> None:
        queue = self._kit.queue(f"sleeping-{name}")
        with suppress(eventkit.Closed):
            while self._going:
                queue.claim("sleeper", wait=0.05)
                with self._kit.stream("topic").subscribe(start="latest") as events:
                    for _ in events:
                        break

    def close(self) -> None:
        """Close the kit."""
        self._going = False
        self._kit.close()


def measure(settings: Settings) -> Iterator[Table]:
    """Measure the rates at the start and at the end, with and without the old transaction."""
    seconds, slices = settings.seconds(60), 3 if settings.quick else 12
    table = Table(
        f"Postgres, {seconds:g} s with and without one old transaction elsewhere",
        ("work", "old transaction", "at the start /s", "at the end /s", "end / start", "bar", "reached"),
    )
    with serving(settings) as server:
        for held in (False, True):
            with ExitStack() as stack:
                url = server.new_database()
                worker = stack.enter_context(Remote(Worker, url))
                worker.ready()
                if held:
                    begin_old(stack.enter_context(psycopg.connect(url)))
                worker.begin("run", seconds, slices)
                id = _enqueue_slowly(url, min(_HELD, seconds / 2))
                rates = worker.result()
                lost = not worker.call("has_seen", id)
            _add(table, "enqueue, claim, retry, ack in batches of 100, three priorities", held, rates, lost)
        for held in (False, True):
            with ExitStack() as stack:
                url = server.new_database()
                publisher = stack.enter_context(Remote(Publisher, url))
                publisher.ready()
                sleepers = stack.enter_context(Remote(Sleepers, url))
                sleepers.ready()
                if held:
                    begin_old(stack.enter_context(psycopg.connect(url)))
                rates = publisher.call("run", seconds, slices)
            _add(table, "publish, one per transaction, four sleepers coming and going", held, rates, False)
        table.note = (
            f"The start and the end are the medians of the first and the last quarter. The old transaction has an id "
            f"and a snapshot, in the same database. The transaction of an enqueue stays open for {_HELD:g} s; its "
            f"task must not be lost. {server.note}"
        )
    yield table


def begin_old(connection: psycopg.Connection[Any]) -> None:
    """Begin a transaction with an id and a snapshot that it keeps."""
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    connection.execute("SELECT pg_current_xact_id()")


def _enqueue_slowly(url: str, seconds: float) -> int:
    """Enqueue a task in a transaction that stays open for *seconds*, and return its id."""
    with eventkit.connect(url) as kit, kit.transaction() as tx:
        id = kit.queue("work").enqueue("held", priority=5, tx=tx).id
        time.sleep(seconds)
    return id


def _add(table: Table, work: str, held: bool, rates: list[float], lost: bool) -> None:
    quarter = max(1, len(rates) // 4)
    first, last = statistics.median(rates[:quarter]), statistics.median(rates[-quarter:])
    judged = ("≥ 0.8, nothing lost", verdict(last >= 0.8 * first and not lost)) if held else ("–", "–")
    kept = f"**{last / first:.2f}**" + (", **the held task was lost**" if lost else "")
    table.add([work, "open" if held else "none", thousands(first), thousands(last), kept, *judged])

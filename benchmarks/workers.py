"""A worker: no-op async tasks a second in one process, the delay to the start of a task, and its memory."""

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import eventkit

from .consumers import Receiver
from .contestants import Contestant
from .databases import Database, Settings
from .peers_postgres import PgQueuerAsyncpg
from .peers_sqlite import Huey
from .processes import Remote, started
from .report import Table, at_most, megabytes, milliseconds, ratio, thousands, verdict
from .rounds import contest, p99

_COUNT = 40_000
_PEERS = {"SQLite": ("huey", Huey), "Postgres": ("pgqueuer", PgQueuerAsyncpg)}
_RATE = {"SQLite": 30_000, "Postgres": 0}
_TIMES = {"SQLite": 1.2, "Postgres": 2.0}
"""The required tasks a second, and the required multiple of the peer's."""

_BEGUN = {"SQLite": 0.0003, "Postgres": 0.0012}
"""The largest accepted delay to the start of a task."""

_SLOTS = {
    "SQLite": {"100": (100, 0), "1,000": (1_000, 0)},
    "Postgres": {"100": (100, 0), "1,000 and 1,000 ahead": (1_000, 1_000)},
}
"""The number of slots, and of tasks that are claimed ahead."""


def measure(settings: Settings, database: Database) -> Iterator[Table]:
    """Measure a worker beside a peer, and the delays until tasks begin."""
    yield _rates(settings, database)
    yield _beginnings(settings, database)
    yield _starts(settings, database)


def _rates(settings: Settings, database: Database) -> Table:
    name, peer = _PEERS[database.name]
    table = Table(
        "Worker: no-op tasks in one process",
        f"slots | eventkit /s | {name} /s | of {name} (spread) | bar | reached",
        note="The worker runs all waiting tasks, from its start to its end. huey dequeues and executes them in a "
        "loop; it deletes a task before it runs it, and keeps no lease. pgqueuer, on asyncpg, drains its queue in "
        "batches of 256.",
    )
    slots = _SLOTS[database.name]
    workers: dict[str, tuple[Any, ...]] = {key: (AppWorker, database.new(), *both) for key, both in slots.items()}
    with started({**workers, name: (peer, database.new())}, (name,)) as (parties, missing):
        # In whole rounds, because the start of a worker is a part of them.
        result = contest(parties, "work", settings.count(_COUNT), rounds=settings.few_rounds, slices=1)
    least, times = _RATE[database.name], _TIMES[database.name]
    bar = (f"≥ {least:,} and " if least else "") + f"≥ {times:g} × {name}"
    for key in slots:
        rate, spread = result.rate(key), result.ratio(key, name)
        reached = rate is not None and rate >= least and (spread is None or spread.median >= times)
        table.add(key, thousands(rate), thousands(result.rate(name)), ratio(spread), bar, verdict(reached))
    table.note = f"{table.note} {missing}".strip()
    return table


def _beginnings(settings: Settings, database: Database) -> Table:
    table = Table(
        "Worker: how soon a task begins",
        "when | median | 99 of 100 within | bar for the median | reached | memory of the worker | bar for it",
        note="From before the call of enqueue in one process to the function in another, whose worker has 100 slots. "
        "*idle*: 30 to 90 ms apart.",
    )
    number, url = settings.count(200, least=5), database.new()
    with eventkit.connect(url) as kit, Remote(Beginner, url) as beginner:
        beginner.ready()
        queue = kit.queue("begin")
        for when, pause in (("idle", 0.06), ("40 a second", 0.025)):
            called = []
            for _ in range(number):
                time.sleep(random.uniform(0.5, 1.5) * pause)
                called.append(time.monotonic_ns())
                queue.enqueue({"task": "begin", "args": {}})
            begun = beginner.call("arrivals", number)
            delays = [(moment - call) / 1e9 for call, moment in zip(called, begun, strict=True)]
            size = beginner.call("resident")
            table.add(
                *(when, f"**{milliseconds(median(delays))}**", milliseconds(p99(delays))),
                *at_most(median(delays), _BEGUN[database.name], milliseconds),
                *(megabytes(size), ": ".join(at_most(size, 80, megabytes))),
            )
    return table


def _starts(settings: Settings, database: Database) -> Table:
    table = Table(
        "Worker: from its start to its first task",
        "median | longest | bar for the median | reached",
        note="From the call of `serve()`, in a new process that has imported everything, to a function whose task "
        "waits already.",
    )
    times, url = [], database.new()
    for _ in range(settings.count(7, least=2)):
        with Remote(Starter, url) as starter:
            times.append(starter.call("first_task"))
    middle = median(times)
    table.add(f"**{milliseconds(middle)}**", milliseconds(max(times)), *at_most(middle, 0.5, milliseconds))
    return table


class AppWorker(Contestant):
    """A worker with *slots* slots."""

    def __init__(self, url: str, slots: int, prefetch: int = 0) -> None:
        self._app = eventkit.App(url)
        self._slots, self._prefetch = slots, prefetch
        self._left = 0
        self._worker: Any = None

        @self._app.task(queue="work")
        async def nothing() -> None:
            self._left -= 1
            if not self._left:
                self._worker.stop()

        self._nothing = nothing

    def fill(self, count: int) -> None:
        """Add tasks."""
        for start in range(0, count, 10_000):
            self._nothing.enqueue_many([{}] * min(10_000, count - start))

    def work(self, count: int) -> None:
        """Run a worker until all tasks are done."""
        self._left = count
        self._worker = self._app.worker(concurrency=self._slots, prefetch=self._prefetch)
        asyncio.run(self._worker.serve())
        if self._app.kit.queue("work").size():
            raise AssertionError("tasks are left")

    def close(self) -> None:
        """Close the app's kit."""
        self._app.kit.close()


class Beginner(Receiver):
    """A worker that records when each task begins."""

    def __init__(self, url: str) -> None:
        super().__init__()
        app = eventkit.App(url)

        @app.task(queue="begin")
        async def begin() -> None:
            self.arrive()

        worker = app.worker(concurrency=100)
        threading.Thread(target=lambda: asyncio.run(worker.serve()), daemon=True).start()
        time.sleep(2)


class Starter:
    """A worker that is not started yet, with a waiting task and everything imported."""

    def __init__(self, url: str) -> None:
        self._app = eventkit.App(url)

        @self._app.task(queue="start")
        async def begin() -> None:
            self._begun = time.monotonic()
            self._worker.stop()

        async def connect() -> None:
            async with eventkit.connect_async(url):
                pass

        asyncio.run(connect())
        begin.enqueue()
        self._worker: Any = self._app.worker(concurrency=100)

    def first_task(self) -> float:
        """Return the seconds from the start to the task."""
        called = time.monotonic()
        asyncio.run(self._worker.serve())
        return self._begun - called

    def close(self) -> None:
        """Close the app's kit."""
        self._app.close()

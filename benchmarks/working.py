"""A worker: no-op async tasks a second in one process, the delay to the start of a task, and its memory."""

import asyncio
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from statistics import median
from typing import Any

import eventkit

from .peers import Huey
from .processes import Remote
from .report import Table, milliseconds, ratio, thousands, verdict
from .rounds import Contestant, Result, contest
from .settings import Settings

_RATE, _OF_HUEY, _SOON, _MEGABYTES, _STARTED = 30_000, 1.2, 0.0003, 80, 0.5
_COUNT = 60_000


def measure(settings: Settings) -> Iterator[Table]:
    """Measure a worker on SQLite, beside huey."""
    table = Table(
        "Worker: no-op tasks in one process",
        ("slots", "eventkit /s", "huey /s", "of huey (spread)", "bar", "reached"),
        note="The worker runs all waiting tasks, from its start to its end. huey "
        "dequeues and executes them in a loop; it deletes a task before it runs it, and keeps no lease.",
    )
    folder = settings.folder("working")
    with ExitStack() as stack:
        workers: dict[str, Remote] = {
            str(slots): stack.enter_context(Remote(AppWorker, f"sqlite:///{folder}/{slots}.db", slots))
            for slots in (100, 1_000)
        }
        try:
            huey = stack.enter_context(Remote(HueyWorker, folder))
            huey.ready()
            workers["huey"] = huey
        except RuntimeError:
            pass
        result = race(workers, settings)
    for slots in ("100", "1000"):
        rate, spread = result.rate(slots), result.ratio(slots, "huey")
        reached = rate is not None and rate >= _RATE and (spread is None or spread.median >= _OF_HUEY)
        bar = f"≥ {_RATE:,} and ≥ {_OF_HUEY} × huey"
        table.add([slots, thousands(rate), thousands(result.rate("huey")), ratio(spread), bar, verdict(reached)])
    yield table
    yield beginnings(settings, "", f"sqlite:///{folder}/begin.db", _SOON)
    yield starts(settings, "", f"sqlite:///{folder}/start.db")


def race(workers: Mapping[str, Remote], settings: Settings) -> Result:
    """Return the result of a contest between workers, in whole rounds."""
    return contest(
        workers,
        "work",
        settings.count(_COUNT),
        rounds=min(5, settings.rounds),
        prepare=lambda worker, count: worker.call("fill", count),
        slices=1,
    )


def beginnings(settings: Settings, title: str, url: str, bar: float) -> Table:
    """Return a table of the delay until a worker in another process starts an enqueued task, and of its memory."""
    table = Table(
        f"{title}Worker: how soon a task begins".strip(),
        ("when", "median", "99 of 100 within", "bar for the median", "reached", "memory of the worker", "bar for it"),
        note="From before the call of enqueue in one process to the function in another, whose worker has 100 slots. "
        "*idle*: 50 to 150 ms apart.",
    )
    number = settings.count(200, least=5)
    kit = eventkit.connect(url)
    with kit, Remote(Beginner, url) as beginner:
        beginner.ready()
        queue = kit.queue("begin")
        for when, pause in (("idle", 0.1), ("40 a second", 0.025)):
            called = []
            for _ in range(number):
                time.sleep(random.uniform(0.5, 1.5) * pause)
                called.append(time.monotonic_ns())
                queue.enqueue({"task": "begin", "args": {}})
            begun = beginner.call("moments", number)
            delays = sorted((moment - call) / 1e9 for call, moment in zip(called, begun, strict=True))
            size = beginner.call("megabytes")
            table.add(
                [
                    when,
                    f"**{milliseconds(median(delays))}**",
                    milliseconds(delays[number * 99 // 100]),
                    f"≤ {milliseconds(bar)}",
                    verdict(median(delays) <= bar),
                    f"{size:.0f} MB",
                    f"≤ {_MEGABYTES} MB: {verdict(size <= _MEGABYTES)}",
                ]
            )
    return table


def starts(settings: Settings, title: str, url: str) -> Table:
    """Return a table of the delay from the start of a worker to its first task."""
    table = Table(
        f"{title}Worker: from its start to its first task".strip(),
        ("median", "longest", "bar for the median", "reached"),
        note="From the call of `serve()`, in a new process that has imported everything, to a function whose task "
        "waits already.",
    )
    seconds = []
    for _ in range(settings.count(10, least=2)):
        with Remote(Starter, url) as starter:
            seconds.append(starter.call("first_task"))
    middle = median(seconds)
    bar = f"≤ {milliseconds(_STARTED)}"
    table.add([f"**{milliseconds(middle)}**", milliseconds(max(seconds)), bar, verdict(middle <= _STARTED)])
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


class HueyWorker(Huey):
    """huey, which executes the tasks that it dequeues."""

    def work(self, count: int) -> None:
        """Dequeue and execute."""
        for _ in range(count):
            self._huey.execute(self._huey.dequeue())


class Beginner:
    """A worker that records when each task begins."""

    def __init__(self, url: str) -> None:
        self._moments: list[int] = []
        app = eventkit.App(url)

        @app.task(queue="begin")
        async def begin() -> None:
            self._moments.append(time.monotonic_ns())

        worker = app.worker(concurrency=100)
        threading.Thread(target=lambda: asyncio.run(worker.serve()), daemon=True).start()
        time.sleep(2)

    def moments(self, number: int) -> list[int]:
        """Return when each of *number* tasks began, and forget them."""
        deadline = time.monotonic() + 30
        while len(self._moments) < number:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self._moments)} of {number} tasks began within 30 s")
            time.sleep(0.01)
        moments, self._moments = self._moments, []
        return moments

    def megabytes(self) -> float:
        """Return the resident memory of this process."""
        with open("/proc/self/status") as status:
            [size] = [line.split()[1] for line in status if line.startswith("VmRSS")]
        return int(size) / 1024


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

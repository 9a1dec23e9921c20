"""Locks, limits and results: calls a second of one caller, and the cost of limits in a claim."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack
from time import perf_counter
from typing import Any

import msgspec

import eventkit

from .payloads import payloads
from .processes import Remote
from .report import Table, ratio, thousands, verdict
from .rounds import SLICES, Contestant, Spread, contest
from .settings import Settings

COUNT = 4_000
"""Repetitions in a round."""

_BATCHES = {1: 2_000, 32: 16_000}
"""Tasks per claim, and tasks claimed in a round."""

_DEARER = 1.5
"""The largest accepted cost of a claim in a queue with limits, as a multiple of one without."""


class Work(msgspec.Struct, frozen=True):
    """A call, and its required rate a second."""

    title: str
    method: str
    bar: int | None


def works(lock: int, limit: int) -> tuple[Work, ...]:
    """Return the calls, with the bars of a database."""
    return (
        Work("acquire and release a lock", "lock", lock),
        Work("rate_limit, let through", "window", limit),
        Work("rate_limit, refused", "refused", limit),
        Work("token_bucket, let through", "bucket", limit),
        Work("save a result", "save", None),
        Work("wait for a result that is there", "wait", None),
    )


class Sync(Contestant):
    """A kit with blocking calls."""

    def __init__(self, url: str) -> None:
        self._kit = eventkit.connect(url)
        self._kit.results.save("there", {"rows": 3})

    def lock(self, count: int) -> None:
        """Acquire and release a lock with one handle."""
        lock = self._kit.lock("lock")
        for _ in range(count):
            assert lock.acquire()
            assert lock.release()

    def window(self, count: int) -> None:
        """Count calls within the limit."""
        for _ in range(count):
            assert self._kit.rate_limit("wide", 10**9, 60)

    def refused(self, count: int) -> None:
        """Count calls beyond the limit."""
        for _ in range(count):
            self._kit.rate_limit("narrow", 1, 86_400)

    def bucket(self, count: int) -> None:
        """Take tokens from a deep bucket."""
        for _ in range(count):
            assert self._kit.token_bucket("deep", 10**6, 10**9)

    def save(self, count: int) -> None:
        """Replace a result."""
        for _ in range(count):
            self._kit.results.save("saved", {"rows": 3})

    def wait(self, count: int) -> None:
        """Wait for the same result repeatedly."""
        for _ in range(count):
            self._kit.results.wait("there", 0)

    def close(self) -> None:
        """Close the kit."""
        self._kit.close()


class Async(Contestant):
    """A kit with awaited calls, one after the other."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._kit = self._runner.run(_connected(url))
        self._runner.run(self._kit.results.save("there", {"rows": 3}))

    def lock(self, count: int) -> None:
        """Acquire and release a lock with one handle."""
        lock = self._kit.lock("lock")

        async def once() -> None:
            assert await lock.acquire()
            assert await lock.release()

        self._repeat(once, count)

    def window(self, count: int) -> None:
        """Count calls within the limit."""
        self._repeat(lambda: self._kit.rate_limit("wide", 10**9, 60), count)

    def refused(self, count: int) -> None:
        """Count calls beyond the limit."""
        self._repeat(lambda: self._kit.rate_limit("narrow", 1, 86_400), count)

    def bucket(self, count: int) -> None:
        """Take tokens from a deep bucket."""
        self._repeat(lambda: self._kit.token_bucket("deep", 10**6, 10**9), count)

    def save(self, count: int) -> None:
        """Replace a result."""
        self._repeat(lambda: self._kit.results.save("saved", {"rows": 3}), count)

    def wait(self, count: int) -> None:
        """Wait for the same result repeatedly."""
        self._repeat(lambda: self._kit.results.wait("there", 0), count)

    def close(self) -> None:
        """Close the kit and its loop."""
        self._runner.run(self._kit.close())
        self._runner.close()

    def _repeat(self, call: Callable[[], Awaitable[Any]], count: int) -> None:
        async def all_of_them() -> None:
            for _ in range(count):
                await call()

        self._runner.run(all_of_them())


class Claims(Contestant):
    """A queue to claim from, with limits that are not reached, or without limits."""

    def __init__(self, url: str, limited: bool) -> None:
        self._kit = eventkit.connect(url)
        self._queue = self._kit.queue("work")
        if limited:
            self._queue.configure(rate=10**6, burst=10**9, max_running=10**4)

    def fill(self, count: int) -> None:
        """Add tasks."""
        self._queue.enqueue_many(payloads(count))

    def time(self, work: str, *arguments: Any) -> float:
        """Return the seconds that the claims took, without the acks."""
        seconds: float = getattr(self, work)(*arguments)
        return seconds

    def claim(self, count: int, size: int) -> float:
        """Claim and ack, *size* at a time."""
        seconds = 0.0
        for _ in range(count // size):
            start = perf_counter()
            tasks = self._queue.claim("worker", size)
            seconds += perf_counter() - start
            assert len(self._queue.ack_many(tasks)) == size
        return seconds

    def close(self) -> None:
        """Close the kit."""
        self._kit.close()


def measure(settings: Settings) -> Iterator[Table]:
    """Measure locks and limits on SQLite."""
    folder = settings.folder("limits")
    names = ("sync", "async", "without", "with")
    urls = {name: f"sqlite:////{folder}/{name}.db" for name in names}
    yield table("Locks, limits, results", urls, works(5_000, 8_000), settings)
    yield claims("Claims in a queue with limits", urls, settings)


def table(title: str, urls: Mapping[str, str], chosen: tuple[Work, ...], settings: Settings, note: str = "") -> Table:
    """Return a table of the rates of a kit of each flavour, on a database of its own."""
    table = Table(
        title,
        ("work", "sync /s (spread)", "bar", "reached", "async /s", "of sync (spread)"),
        note=f"{note}One caller, one call after the other; an acquire and its release count as one.",
    )
    with ExitStack() as stack:
        parties = {
            "sync": stack.enter_context(Remote(Sync, urls["sync"])),
            "async": stack.enter_context(Remote(Async, urls["async"])),
        }
        for work in chosen:
            result = contest(parties, work.method, settings.count(COUNT, 50), rounds=settings.rounds)
            mine = Spread.of(result.rates["sync"])
            rates = f"**{thousands(mine.median)}** ({thousands(mine.least)}–{thousands(mine.most)})"
            bar = ("–", "–") if work.bar is None else (f"≥ {thousands(work.bar)}", verdict(mine.median >= work.bar))
            table.add([work.title, rates, *bar, thousands(result.rate("async")), ratio(result.ratio("async", "sync"))])
    return table


def claims(title: str, urls: Mapping[str, str], settings: Settings, note: str = "") -> Table:
    """Return a table of the cost of a claim in a queue with a rate and a limit of running tasks, beside one without."""
    table = Table(
        title,
        ("work", "without limits /s", "with limits /s", "times the cost (spread)", "bar", "reached"),
        note=f"{note}Tasks a second, for claims alone; the ack of each before the next claim is not counted.",
    )
    with ExitStack() as stack:
        parties = {
            "without": stack.enter_context(Remote(Claims, urls["without"], False)),
            "with": stack.enter_context(Remote(Claims, urls["with"], True)),
        }
        for size, count in _BATCHES.items():
            result = contest(
                parties, "claim", settings.count(count, SLICES * size), size, rounds=settings.rounds, prepare=_fill
            )
            cost = result.ratio("without", "with")
            assert cost is not None
            rates = [thousands(result.rate(name)) for name in parties]
            title = "claim one task" if size == 1 else f"claim {size} tasks"
            table.add([title, *rates, ratio(cost), f"≤ {_DEARER}", verdict(cost.median <= _DEARER)])
    return table


def _fill(party: Any, count: int) -> None:
    party.call("fill", count)


async def _connected(url: str) -> eventkit.AsyncEventKit:
    return await eventkit.connect_async(url)

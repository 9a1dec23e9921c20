"""Locks, limits and results: calls a second of one caller, and the cost of limits in a claim."""

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any

from .contestants import WithAsyncKit, WithKit, payloads
from .databases import Database, Settings
from .processes import started
from .report import Table, at_least, at_most, ratio, thousands
from .rounds import Spread, contest

_COUNT = {"SQLite": 4_000, "Postgres": 2_000}
"""Repetitions in a round."""

_BATCHES = {1: 2_000, 32: 16_000}
"""Tasks per claim, and tasks claimed in a round."""

_LOCK = {"SQLite": 5_000, "Postgres": 2_000}
_LIMIT = {"SQLite": 8_000, "Postgres": 3_000}
"""The required calls a second."""

_WORKS: dict[str, tuple[Callable[[Any], Any], dict[str, int]]] = {
    "window, let through": (lambda kit: kit.limit("wide", count=10**9, per=60).acquire(), _LIMIT),
    "window, refused": (lambda kit: kit.limit("narrow", count=1, per=86_400).acquire(), _LIMIT),
    "bucket, let through": (lambda kit: kit.limit("deep", rate=10**6, burst=10**9).acquire(), _LIMIT),
    "save a result": (lambda kit: kit.results.save("there", {"rows": 3}), {}),
    "wait for a result that is there": (lambda kit: kit.results.wait("there", 0), {}),
}
"""The calls of a kit of either flavour, and their bars."""


class Sync(WithKit):
    """A kit with blocking calls, which are its works."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._lock = self.kit.lock("lock")
        vars(self).update({title: partial(call, self.kit) for title, (call, _) in _WORKS.items()})

    def lock(self) -> None:
        """Acquire and release a lock with one handle."""
        if not (self._lock.acquire() and self._lock.release()):
            raise AssertionError("another process has the lock")


class Async(WithAsyncKit):
    """A kit with awaited calls."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._lock = self.kit.lock("lock")
        vars(self).update({title: partial(call, self.kit) for title, (call, _) in _WORKS.items()})

    async def lock(self) -> None:
        """Acquire and release a lock with one handle."""
        if not (await self._lock.acquire() and await self._lock.release()):
            raise AssertionError("another process has the lock")


class Claims(WithKit):
    """A queue to claim from, with limits that are not reached, or without limits."""

    def __init__(self, url: str, limited: bool) -> None:
        super().__init__(url)
        self._queue = self.kit.queue("work")
        if limited:
            self._queue.configure(rate=10**6, burst=10**9, max_running=10**4)

    def fill(self, count: int) -> None:
        """Add tasks."""
        self._queue.enqueue_many(payloads(count))

    def time(self, work: str, count: int, *size: int) -> float:
        """Return the seconds that the claims took, without the acks."""
        spent = 0.0
        for _ in range(count // size[0]):
            start = perf_counter()
            tasks = self._queue.claim("worker", *size)
            spent += perf_counter() - start
            if len(self._queue.ack_many(tasks)) != size[0]:
                raise AssertionError("a task is missing")
        return spent

    def claim_only(self) -> None:
        """See `time`."""


def measure(settings: Settings, database: Database) -> Iterator[Table]:
    """Measure locks, limits and results, and claims in a queue with limits."""
    yield _calls(settings, database)
    yield _claims(settings, database)


def _calls(settings: Settings, database: Database) -> Table:
    table = Table(
        "Locks, limits, results",
        "work | sync /s (spread) | bar | reached | async /s | of sync (spread)",
        note="One caller, one call after the other; an acquire and its release count as one.",
    )
    with started({"sync": (Sync, database.new()), "async": (Async, database.new())}) as (parties, _):
        named = {title: (title, bars) for title, (_, bars) in _WORKS.items()}
        works = {"acquire and release a lock": ("lock", _LOCK), **named}
        for title, (work, bars) in works.items():
            result = contest(parties, work, settings.count(_COUNT[database.name], 50), rounds=settings.rounds)
            mine = Spread.of(result.rates["sync"])
            rates = f"**{thousands(mine.median)}** ({thousands(mine.least)}–{thousands(mine.most)})"
            bar = at_least(mine.median, bars.get(database.name))
            table.add(title, rates, *bar, thousands(result.rate("async")), ratio(result.ratio("async", "sync")))
    return table


def _claims(settings: Settings, database: Database) -> Table:
    table = Table(
        "Claims in a queue with limits",
        "work | without limits /s | with limits /s | times the cost (spread) | bar | reached",
        note="Tasks a second, for claims alone; the ack of each before the next claim is not counted.",
    )
    factories = {"without": (Claims, database.new(), False), "with": (Claims, database.new(), True)}
    with started(factories) as (parties, _):
        for size, count in _BATCHES.items():
            result = contest(parties, "claim_only", settings.count(count), size, rounds=settings.rounds)
            cost = result.ratio("without", "with")
            rates = [thousands(result.rate(name)) for name in parties]
            title = "claim one task" if size == 1 else f"claim {size} tasks"
            table.add(title, *rates, ratio(cost), *at_most(cost and cost.median, 1.5))
    return table

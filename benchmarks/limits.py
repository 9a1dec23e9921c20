"""Locks, limits and results: how many a second one caller has of each, in either flavour."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import msgspec

import eventkit

from .processes import Remote
from .report import Table, ratio, thousands, verdict
from .rounds import Contestant, Spread, contest
from .settings import Settings

COUNT = 4_000
"""How often each thing is done in a round."""


class Work(msgspec.Struct, frozen=True):
    """What is done, and how often a second it should be."""

    title: str
    method: str
    bar: int | None


def works(lock: int, limit: int) -> tuple[Work, ...]:
    """The works, with the bars of a database."""
    return (
        Work("acquire and release a lock", "lock", lock),
        Work("rate_limit, let through", "window", limit),
        Work("rate_limit, refused", "refused", limit),
        Work("token_bucket, let through", "bucket", limit),
        Work("save a result", "save", None),
        Work("wait for a result that is there", "wait", None),
    )


class Sync(Contestant):
    """A kit whose calls block."""

    def __init__(self, url: str) -> None:
        self._kit = eventkit.connect(url)
        self._kit.results.save("there", {"rows": 3})

    def lock(self, count: int) -> None:
        """One handle, one holder after the other."""
        lock = self._kit.lock("lock")
        for _ in range(count):
            assert lock.acquire()
            assert lock.release()

    def window(self, count: int) -> None:
        """Calls within the limit."""
        for _ in range(count):
            assert self._kit.rate_limit("wide", 10**9, 60)

    def refused(self, count: int) -> None:
        """Calls beyond it."""
        for _ in range(count):
            self._kit.rate_limit("narrow", 1, 86_400)

    def bucket(self, count: int) -> None:
        """Tokens of a deep bucket."""
        for _ in range(count):
            assert self._kit.token_bucket("deep", 10**6, 10**9)

    def save(self, count: int) -> None:
        """A result over the one before."""
        for _ in range(count):
            self._kit.results.save("saved", {"rows": 3})

    def wait(self, count: int) -> None:
        """The same result again and again."""
        for _ in range(count):
            self._kit.results.wait("there", 0)

    def close(self) -> None:
        """Close the kit."""
        self._kit.close()


class Async(Contestant):
    """A kit whose calls are awaited, one after the other."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._kit = self._runner.run(_connected(url))
        self._runner.run(self._kit.results.save("there", {"rows": 3}))

    def lock(self, count: int) -> None:
        """One handle, one holder after the other."""
        lock = self._kit.lock("lock")

        async def once() -> None:
            assert await lock.acquire()
            assert await lock.release()

        self._repeat(once, count)

    def window(self, count: int) -> None:
        """Calls within the limit."""
        self._repeat(lambda: self._kit.rate_limit("wide", 10**9, 60), count)

    def refused(self, count: int) -> None:
        """Calls beyond it."""
        self._repeat(lambda: self._kit.rate_limit("narrow", 1, 86_400), count)

    def bucket(self, count: int) -> None:
        """Tokens of a deep bucket."""
        self._repeat(lambda: self._kit.token_bucket("deep", 10**6, 10**9), count)

    def save(self, count: int) -> None:
        """A result over the one before."""
        self._repeat(lambda: self._kit.results.save("saved", {"rows": 3}), count)

    def wait(self, count: int) -> None:
        """The same result again and again."""
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


def measure(settings: Settings) -> Iterator[Table]:
    """The table of locks and limits on SQLite."""
    folder = settings.folder("limits")
    urls = {flavour: f"sqlite:////{folder}/{flavour}.db" for flavour in ("sync", "async")}
    yield table("Locks, limits, results", urls, works(5_000, 8_000), settings)


def table(title: str, urls: Mapping[str, str], chosen: tuple[Work, ...], settings: Settings, note: str = "") -> Table:
    """What a kit of each flavour does, on a database of its own."""
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


async def _connected(url: str) -> eventkit.AsyncEventKit:
    return await eventkit.connect_async(url)

"""Concurrent writers: whether they share fsyncs."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import eventkit

from .processes import Remote
from .report import Table, ratio, thousands, verdict
from .rounds import SLICES, Contestant, contest
from .settings import Settings
from .slow_disk import FSYNC, SlowDisk

_MANY = 64


def measure(settings: Settings) -> Iterator[Table]:
    """Measure enqueueing one by one, at ``durability=full``, from one thread and from many."""
    table = Table(
        f"{_MANY} callers that enqueue one each, durability=full",
        ("disk", "caller", "enqueued /s", "of one thread (spread)", "bar", "reached"),
        note=(
            f"*fsync of {FSYNC * 1000:.0f} ms*: SQLite's VFS is replaced by one whose fsync sleeps for that long "
            "instead of calling the disk."
        ),
    )
    for disk, slow in ((f"fsync of {FSYNC * 1000:.0f} ms", True), ("native", False)):
        folder = settings.folder(f"sharing-{slow}")
        with ExitStack() as stack:
            parties = {
                name: stack.enter_context(Remote(party, f"sqlite:///{folder}/{name}.db?durability=full", slow))
                for name, party in _PARTIES.items()
            }
            number = settings.count(20 * _MANY, least=SLICES * _MANY)
            result = contest(parties, "enqueue", number, rounds=min(5, settings.rounds))
        for name in _PARTIES:
            spread = result.ratio(name, "one thread")
            assert spread is not None
            judged = slow and name != "one thread"
            bar = ("≥ 10", verdict(spread.median >= 10)) if judged else ("–", "–")
            table.add([disk, name, thousands(result.rate(name)), ratio(spread), *bar])
    yield table


class OneThread(Contestant):
    """A kit used by one thread."""

    def __init__(self, url: str, slow: bool) -> None:
        self._disk = SlowDisk() if slow else None
        self._kit = eventkit.connect(url)
        self._queue = self._kit.queue("work")

    def enqueue(self, number: int) -> None:
        """Enqueue one after the other."""
        for turn in range(number):
            self._queue.enqueue(turn)

    def close(self) -> None:
        """Close the kit."""
        self._kit.close()


class ManyThreads(OneThread):
    """A kit used by many threads."""

    def __init__(self, url: str, slow: bool) -> None:
        super().__init__(url, slow)
        self._threads = ThreadPoolExecutor(_MANY)

    def enqueue(self, number: int) -> None:
        """Let each thread enqueue its share, one after the other."""
        list(self._threads.map(super().enqueue, [number // _MANY] * _MANY))


class ManyTasks(Contestant):
    """An async kit used by many tasks."""

    def __init__(self, url: str, slow: bool) -> None:
        self._disk = SlowDisk() if slow else None
        self._runner = asyncio.Runner()
        self._kit: Any = self._runner.run(_connect(url))
        self._queue = self._kit.queue("work")

    def enqueue(self, number: int) -> None:
        """Let each task enqueue its share, one after the other."""

        async def one() -> None:
            for turn in range(number // _MANY):
                await self._queue.enqueue(turn)

        async def all_of_them() -> None:
            await asyncio.gather(*(one() for _ in range(_MANY)))

        self._runner.run(all_of_them())

    def close(self) -> None:
        """Close the kit and its event loop."""
        self._runner.run(self._kit.close())
        self._runner.close()


_PARTIES: dict[str, Callable[[str, bool], Contestant]] = {
    "one thread": OneThread,
    f"{_MANY} threads": ManyThreads,
    f"{_MANY} asyncio tasks": ManyTasks,
}


async def _connect(url: str) -> Any:
    return await eventkit.connect_async(url)

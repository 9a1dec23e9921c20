"""Several writers of one SQLite file: shared fsyncs, fair shares, and the effects of a lock that another one holds."""

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter
from typing import Any, NamedTuple

import apsw
import sqlalchemy as sa

import eventkit

from .consumers import AsyncConsumers, Consumers, Receiver, Wait
from .contestants import Contestant, WithAsyncKit, WithKit
from .databases import Settings, SQLite
from .processes import Processes, Remote, started
from .report import NO_BAR, Table, at_least, milliseconds, ratio, thousands, verdict
from .rounds import contest

_MANY = 64
_FSYNC = 0.001
_NATIVE = apsw.vfs_names()[0]


class _SlowFile(apsw.VFSFile):
    def xSync(self, flags: int) -> None:
        """Sleep instead of syncing the real disk."""
        time.sleep(_FSYNC)


class SlowDisk(apsw.VFS):
    """A VFS whose fsync takes a millisecond, and that becomes the default of later connections in the process."""

    def __init__(self) -> None:
        super().__init__("slow", _NATIVE, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        """Return the file, with a slow fsync."""
        return _SlowFile(_NATIVE, name, flags)


class OneThread(WithKit):
    """A kit used by one thread."""

    def __init__(self, url: str, slow: bool) -> None:
        self._disk = SlowDisk() if slow else None
        super().__init__(url)
        self._queue = self.kit.queue("work")

    def run(self, number: int) -> None:
        """Enqueue one after the other."""
        for turn in range(number):
            self._queue.enqueue(turn)


class ManyThreads(OneThread):
    """A kit used by many threads."""

    def __init__(self, url: str, slow: bool) -> None:
        super().__init__(url, slow)
        self._threads = ThreadPoolExecutor(_MANY)

    def run(self, number: int) -> None:
        """Let each thread enqueue its share, one after the other."""
        list(self._threads.map(super().run, [number // _MANY] * _MANY))


class ManyTasks(WithAsyncKit):
    """An async kit used by many tasks."""

    def __init__(self, url: str, slow: bool) -> None:
        self._disk = SlowDisk() if slow else None
        super().__init__(url)
        self._queue = self.kit.queue("work")

    async def enqueue_share(self, number: int) -> None:
        """Enqueue one after the other."""
        for turn in range(number):
            await self._queue.enqueue(turn)

    def time(self, work: str, count: int, *size: int) -> float:
        """Return the seconds in which each task enqueued its share."""

        async def timed() -> float:
            start = perf_counter()
            await asyncio.gather(*(self.enqueue_share(count // _MANY) for _ in range(_MANY)))
            return perf_counter() - start

        return float(self.run(timed()))


_CALLERS: dict[str, Callable[[str, bool], Contestant]] = {
    "one thread": OneThread,
    f"{_MANY} threads": ManyThreads,
    f"{_MANY} asyncio tasks": ManyTasks,
}


def measure_fsyncs(settings: Settings, database: SQLite) -> Iterator[Table]:
    """Measure enqueueing one by one, at ``durability=full``, from one thread and from many."""
    slow_disk = f"fsync of {_FSYNC * 1000:.0f} ms"
    table = Table(
        f"{_MANY} callers that enqueue one each, durability=full",
        "disk | caller | enqueued /s | of one thread (spread) | bar | reached",
        note=f"*{slow_disk}*: SQLite's VFS is replaced by one whose fsync sleeps for that long instead of calling the "
        "disk.",
    )
    for disk, slow in ((slow_disk, True), ("native", False)):
        factories = {name: (caller, database.new("?durability=full"), slow) for name, caller in _CALLERS.items()}
        with started(factories) as (parties, _):
            result = contest(parties, "run", settings.count(20 * _MANY), rounds=settings.few_rounds, unit=_MANY)
        for name in _CALLERS:
            spread = result.ratio(name, "one thread")
            bar = 10 if slow and name != "one thread" else None
            table.add(disk, name, thousands(result.rate(name)), ratio(spread), *at_least(spread and spread.median, bar))
    yield table


_SECONDS = 8.0
_LEAST, _MOST = 0.002, 0.02
_INSERT = "INSERT INTO eventkit_event (topic, payload) VALUES ('t', '1')"


class Share(NamedTuple):
    """The transactions and waits of one of several writers."""

    transactions: int
    refused: int
    longest_wait: float
    held: float


def _bare(path: str) -> Callable[[], AbstractContextManager[Any]]:
    connection = apsw.Connection(path)
    connection.set_busy_timeout(5000)

    @contextmanager
    def transaction() -> Iterator[Any]:
        connection.execute("BEGIN IMMEDIATE")
        yield connection.execute
        connection.execute("COMMIT")

    return transaction


def _kit(path: str) -> Callable[[], AbstractContextManager[Any]]:
    kit = eventkit.connect(f"sqlite:///{path}")

    @contextmanager
    def transaction() -> Iterator[Any]:
        with kit.transaction() as tx:
            yield tx.execute

    return transaction


def _engine(path: str) -> Callable[[], AbstractContextManager[Any]]:
    engine = sa.create_engine(f"sqlite+apsw:///{path}")

    @contextmanager
    def transaction() -> Iterator[Any]:
        with engine.begin() as connection:
            yield connection.exec_driver_sql

    return transaction


_WRITERS = {"bare SQLite": _bare, "`kit.transaction()`": _kit, "`sqlite+apsw`, deferred": _engine}
"""The ways to begin transactions: each returns a context manager that provides ``execute``."""


class Writer:
    """A process that writes."""

    def __init__(self, path: str, through: str) -> None:
        self._transaction = _WRITERS[through](path)

    def write(self, start: float, seconds: float) -> Share:
        """Write without pauses, from the time *start* on."""
        time.sleep(max(0.0, start - time.monotonic()))
        count, refused, longest, held = 0, 0, 0.0, 0.0
        while (asked := time.monotonic()) < start + seconds:
            begun = None
            try:
                with self._transaction() as execute:
                    execute(_INSERT)
                    begun = time.monotonic()
                    time.sleep(random.uniform(_LEAST, _MOST))
                held += time.monotonic() - begun
                count += 1
            except (apsw.BusyError, eventkit.Busy, sa.exc.OperationalError):
                refused += 1
            longest = max(longest, (begun or time.monotonic()) - asked)
        return Share(count, refused, longest, held)


def measure_shares(settings: Settings, database: SQLite) -> Iterator[Table]:
    """Measure transactions of 2 to 20 ms without pauses, from 4 and from 16 processes."""
    seconds = settings.seconds(_SECONDS)
    table = Table(
        f"Processes that write to one file back to back for {seconds:g} s",
        "processes | through | transactions | of one process | database is locked | longest wait | "
        "10 × processes × mean hold | bar | reached",
        note=f"Each transaction inserts a row and sleeps for {_LEAST * 1000:g} to {_MOST * 1000:g} ms. "
        "*Bare SQLite* waits by SQLite's own busy handler, for as long as the others: 5 s.",
    )
    for number in (4, 16):
        for through in _WRITERS:
            url = database.new()
            eventkit.connect(url).close()
            with Processes(number, Writer, url.removeprefix("sqlite:///"), through) as processes:
                processes.ready()
                shares = processes.call_all("write", time.monotonic() + 0.2, seconds)
            counts = [share.transactions for share in shares]
            bound = 10 * number * sum(share.held for share in shares) / sum(counts)
            refused = sum(share.refused for share in shares)
            longest = max(share.longest_wait for share in shares)
            good = max(counts) <= 3 * min(counts) and not refused and longest <= bound
            bar = ("shares within 3, no error, the wait within the product", verdict(good))
            table.add(
                *(str(number), through, f"{sum(counts):,}", f"{min(counts)}–{max(counts)}", str(refused)),
                *(milliseconds(longest), milliseconds(bound)),
                *(NO_BAR if through == "bare SQLite" else bar),
            )
    yield table


_LOCKED_FOR = 2.0
_STALL = 0.1
"""Seconds that do not count as a stall: a busy machine may pause any process for that long."""
_WAITS = (Wait("subscribe", "topic"), Wait("work", "work"), Wait("listen", "channel"))


class Watched(NamedTuple):
    """The longest stalls in seconds, and the outcome of a write and its time."""

    stall: float
    read: float
    write: str
    waited: float


class Holder:
    """Another process, with a write transaction."""

    def __init__(self, path: str) -> None:
        self._connection = apsw.Connection(path)

    def hold(self, seconds: float) -> None:
        """Keep the write lock for *seconds*."""
        self._connection.execute("BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS business (id)")
        time.sleep(seconds)
        self._connection.execute("COMMIT")


class SyncBystander(Consumers):
    """A kit in threads: three waiting iterators, and the calls that `watch` starts."""

    def watch(self, seconds: float) -> Watched:
        """Return the longest stalls, and the outcome of a write."""
        end = perf_counter() + seconds
        topic, queue = self.kit.stream("topic"), self.kit.queue("other")

        def longest(call: Callable[[], object]) -> float:
            found = 0.0
            while (start := perf_counter()) < end:
                time.sleep(0.001)
                call()
                found = max(found, perf_counter() - start - 0.001)
            return found

        def write() -> tuple[str, float]:
            start = perf_counter()
            try:
                queue.enqueue(1)
            except eventkit.Busy:
                return "Busy", perf_counter() - start
            return "done", perf_counter() - start

        with ThreadPoolExecutor(2) as threads:
            writing, reading = threads.submit(write), threads.submit(longest, topic.read)
            stall = longest(lambda: None)
            return Watched(stall, reading.result(), *writing.result())


class AsyncBystander(AsyncConsumers):
    """A kit in an event loop: three waiting iterators, and the calls that `watch` starts."""

    async def watch(self, seconds: float) -> Watched:
        """Return the longest stalls, and the outcome of a write."""
        end = perf_counter() + seconds
        topic, queue = self.kit.stream("topic"), self.kit.queue("other")

        async def write() -> tuple[str, float]:
            start = perf_counter()
            try:
                await queue.enqueue(1)
            except eventkit.Busy:
                return "Busy", perf_counter() - start
            return "done", perf_counter() - start

        async def read() -> float:
            longest = 0.0
            while (start := perf_counter()) < end:
                await topic.read()
                longest = max(longest, perf_counter() - start)
                await asyncio.sleep(0.001)
            return longest

        async def tick() -> float:
            longest, last = 0.0, perf_counter()
            while last < end:
                await asyncio.sleep(0.001)
                now = perf_counter()
                longest, last = max(longest, now - last - 0.001), now
            return longest

        written, longest_read, stall = await asyncio.gather(write(), read(), tick())
        return Watched(stall, longest_read, *written)


def measure_lock(settings: Settings, database: SQLite) -> Iterator[Table]:
    """Measure the effects of a write lock that another process holds."""
    seconds = settings.seconds(_LOCKED_FOR)
    table = Table(
        f"Another process holds the write lock for {seconds:g} s",
        "kit | busy_timeout | longest stall of the event loop, or of a thread beside | longest read | "
        "the write that waits | iterators that live on | bar | reached",
        note="Measured every millisecond by a task or thread that does nothing else, while another one reads and "
        "`subscribe`, `work` and `listen` wait. In parentheses the same without the lock. Below "
        f"{_STALL * 1000:.0f} ms is not a stall: the machine itself sometimes pauses a process for that long.",
    )
    bystanders: dict[str, type[Receiver]] = {"sync": SyncBystander, "async": AsyncBystander}
    for flavour, bystander in bystanders.items():
        for timeout in (5.0, seconds / 2):
            url = database.new()
            with Remote(bystander, f"{url}?busy_timeout={timeout}", *_WAITS) as waiting:
                calm = waiting.call("watch", seconds)
                with Remote(Holder, url.removeprefix("sqlite:///")) as holder:
                    holder.begin("hold", seconds)
                    time.sleep(0.05)
                    waiting.begin("watch", seconds)
                    locked = waiting.result()
                    holder.result()
                with eventkit.connect(url) as kit:
                    kit.stream("topic").publish(1)
                    kit.queue("work").enqueue(1)
                    kit.channel("channel").notify(1)
                alive = len(waiting.call("arrivals", 3, 2.0))
            expected = "done" if timeout > seconds else "Busy"
            good = max(locked.stall, locked.read) < _STALL and alive == 3 and locked.write == expected
            table.add(
                *(flavour, f"{timeout:g} s"),
                f"{milliseconds(locked.stall)} ({milliseconds(calm.stall)})",
                f"{milliseconds(locked.read)} ({milliseconds(calm.read)})",
                f"{locked.write} after {locked.waited:.2f} s",
                f"{alive} of 3",
                "no stall, nothing dies, the write waits or gets Busy",
                verdict(good),
            )
    yield table

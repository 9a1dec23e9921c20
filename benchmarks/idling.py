"""The cost of waiting: processor time and threads."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import apsw

import eventkit

from .processes import Remote
from .report import Table, percent, verdict
from .settings import Settings

_MOST_THREADS = 4


def measure(settings: Settings) -> Iterator[Table]:
    """Measure waiting consumers, with and without unrelated commits by another process."""
    idle = Table(
        "Idle consumers",
        ("flavour", "consumers", "processor, of a core", "threads beside the callers'", "bar", "reached"),
        note=(
            f"Over {settings.seconds(15):g} s, beginning {settings.seconds(7):g} s after the last one began to wait. "
            "The callers' own threads are the main one and, in the sync flavour, one for each consumer."
        ),
    )
    busy = Table(
        "100 waiting consumers, 100 unrelated commits/s by another process",
        ("flavour", "consumers wait for", "processor, of a core", "commits/s", "bar", "reached"),
        note="A third each waits in subscribe, work and listen: all for the same name, or each for one of its own.",
    )
    with ExitStack() as stack:
        crowds = [
            (flavour, number, stack.enter_context(Remote(waiters, _url(settings, f"idle-{flavour}-{number}"), number)))
            for flavour, waiters in (("sync", Waiters), ("async", AsyncWaiters))
            for number in (1, 100)
        ]
        for seconds in (7, 15):
            for _, _, remote in crowds:
                remote.begin("cost", settings.seconds(seconds))
            costs = [remote.result() for _, _, remote in crowds]
        for (flavour, number, _), (share, threads) in zip(crowds, costs, strict=True):
            good = verdict(share <= 0.001 and threads <= _MOST_THREADS)
            bar = f"≤ 0.1 %, ≤ {_MOST_THREADS} threads"
            idle.add([flavour, str(number), percent(share), str(threads), bar, good])
    yield idle
    for flavour, waiters in (("sync", Waiters), ("async", AsyncWaiters)):
        for apart in (False, True):
            url = _url(settings, f"busy-{flavour}-{apart}")
            with Remote(waiters, url, 100, apart) as crowd:
                crowd.ready()
                with Remote(Stranger, url) as stranger:
                    stranger.begin("commit", 100, settings.seconds(11))
                    crowd.call("cost", settings.seconds(0.5))
                    share, _ = crowd.call("cost", settings.seconds(10))
                    rate = stranger.result()
            names = "100 names" if apart else "the same names"
            busy.add([flavour, names, percent(share), f"{rate:.0f}", "≤ 8 %", verdict(share <= 0.08)])
    yield busy


class Waiters:
    """Consumers in threads that wait for messages that never arrive."""

    def __init__(self, url: str, number: int, apart: bool = False) -> None:
        self._kit = eventkit.connect(url)
        for i in range(number):
            messages = _iterators(self._kit, i, apart)
            threading.Thread(target=list, args=(messages,), daemon=True).start()
        self._own_threads = number + 1
        time.sleep(0.3)

    def cost(self, seconds: float) -> tuple[float, int]:
        """Return the share of a core that this process uses for *seconds*, and its threads beside the callers' own."""
        return _share(seconds), _threads() - self._own_threads

    def close(self) -> None:
        """Close the kit."""
        self._kit.close()


class AsyncWaiters:
    """Consumers in an event loop that wait for messages that never arrive.  The loop runs during `cost`."""

    def __init__(self, url: str, number: int, apart: bool = False) -> None:
        self._runner = asyncio.Runner()
        self._kit: Any = self._runner.run(_connect(url))
        self._tasks = self._runner.run(self._start(number, apart))

    async def _start(self, number: int, apart: bool) -> list[asyncio.Task[None]]:
        async def wait(messages: Any) -> None:
            async for _ in messages:
                pass

        tasks = [asyncio.create_task(wait(_iterators(self._kit, i, apart))) for i in range(number)]
        await asyncio.sleep(0.3)
        return tasks

    def cost(self, seconds: float) -> tuple[float, int]:
        """Return the share of a core that this process uses for *seconds*, and its threads beside the callers' own."""

        async def share() -> float:
            before = time.process_time(), time.monotonic()
            await asyncio.sleep(seconds)
            return (time.process_time() - before[0]) / (time.monotonic() - before[1])

        return self._runner.run(share()), _threads() - 1

    def close(self) -> None:
        """Close the kit."""
        self._runner.run(self._kit.close())
        self._runner.close()


class Stranger:
    """Another process with a table of its own in the same file."""

    def __init__(self, url: str) -> None:
        self._connection = apsw.Connection(url.removeprefix("sqlite:///"))
        self._connection.set_busy_timeout(5000)
        self._connection.execute("CREATE TABLE business (id INTEGER PRIMARY KEY, at)")

    def commit(self, rate: int, seconds: float) -> float:
        """Commit *rate* rows a second for *seconds*, and return the rate reached."""
        start = time.monotonic()
        done = 0
        while (now := time.monotonic()) < start + seconds:
            if done < (now - start) * rate:
                self._connection.execute("INSERT INTO business (at) VALUES (julianday('now'))")
                done += 1
            else:
                time.sleep(start + (done + 1) / rate - now if start + (done + 1) / rate > now else 0)
        return done / seconds


def _iterators(kit: Any, i: int, apart: bool) -> Any:
    name = f"name-{i}" if apart else "name"
    return (kit.stream(name).subscribe, kit.queue(name).work, kit.channel(name).listen)[i % 3]()


def _share(seconds: float) -> float:
    before = time.process_time(), time.monotonic()
    time.sleep(seconds)
    return (time.process_time() - before[0]) / (time.monotonic() - before[1])


def _threads() -> int:
    """Return the threads of this process, including those of C libraries."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Threads:"))


def _url(settings: Settings, name: str) -> str:
    return f"sqlite:///{settings.folder(name)}/kit.db"


async def _connect(url: str) -> Any:
    return await eventkit.connect_async(url)

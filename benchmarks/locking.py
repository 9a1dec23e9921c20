"""The effects of a write lock that another process holds."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import perf_counter
from typing import Any

import apsw

import eventkit

from .processes import Remote
from .report import Table, milliseconds, verdict
from .settings import Settings

_LOCKED_FOR = 2.0
_STALL = 0.1
"""Seconds that do not count as a stall: a busy machine may pause any process for that long."""


def measure(settings: Settings) -> Iterator[Table]:
    """Measure the effects of a write lock that another process holds."""
    seconds = settings.seconds(_LOCKED_FOR)
    table = Table(
        f"Another process holds the write lock for {seconds:g} s",
        (
            "kit",
            "busy_timeout",
            "longest stall of the event loop, or of a thread beside",
            "longest read",
            "the write that waits",
            "iterators that live on",
            "bar",
            "reached",
        ),
        note=(
            "Measured every millisecond by a task or thread that does nothing else, while another one reads and "
            "`subscribe`, `work` and `listen` wait. In parentheses the same without the lock. Below "
            f"{_STALL * 1000:.0f} ms is not a stall: the machine itself sometimes pauses a process for that long."
        ),
    )
    for flavour, bystander in (("sync", SyncBystander), ("async", AsyncBystander)):
        for timeout in (5.0, seconds / 2):
            folder = settings.folder(f"lock-{flavour}-{timeout}")
            url = f"sqlite:///{folder}/kit.db?busy_timeout={timeout}"
            with Remote(bystander, url) as kit, Remote(Holder, f"{folder}/kit.db") as holder:
                calm = kit.call("watch", seconds)
                holder.begin("hold", seconds)
                time.sleep(0.05)
                kit.begin("watch", seconds)
                locked = kit.result()
                holder.result()
                alive = kit.call("alive")
            expected = "done" if timeout > seconds else "Busy"
            good = max(locked["stall"], locked["read"]) < _STALL and alive == 3 and locked["write"] == expected
            table.add(
                [
                    flavour,
                    f"{timeout:g} s",
                    f"{milliseconds(locked['stall'])} ({milliseconds(calm['stall'])})",
                    f"{milliseconds(locked['read'])} ({milliseconds(calm['read'])})",
                    f"{locked['write']} after {locked['waited']:.2f} s",
                    f"{alive} of 3",
                    "no stall, nothing dies, the write waits or gets Busy",
                    verdict(good),
                ]
            )
    yield table


class Holder:
    """Another process, with a write transaction."""

    def __init__(self, path: str) -> None:
        self._connection = apsw.Connection(path)

    def hold(self, seconds: float) -> None:
        """Keep the write lock for *seconds*."""
        self._connection.execute("BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS business (id)")
        time.sleep(seconds)
        self._connection.execute("COMMIT")


class SyncBystander:
    """A kit in threads: three waiting iterators, and the calls that `watch` starts."""

    def __init__(self, url: str) -> None:
        self._kit = eventkit.connect(url)
        self._seen: set[str] = set()
        self._topic, self._queue = self._kit.stream("topic"), self._kit.queue("work")
        self._channel = self._kit.channel("channel")
        self._topic.publish(0)
        for name, messages in (
            ("subscribe", self._topic.subscribe(start="latest")),
            ("work", self._queue.work()),
            ("listen", self._channel.listen()),
        ):
            threading.Thread(target=self._iterate, args=(name, messages), daemon=True).start()

    def watch(self, seconds: float) -> dict[str, Any]:
        """Return the longest stalls, and the outcome of a write."""
        end = perf_counter() + seconds
        found: dict[str, Any] = {}

        def write() -> None:
            start = perf_counter()
            found["write"] = _outcome(lambda: self._kit.queue("other").enqueue(1))
            found["waited"] = perf_counter() - start

        def read() -> None:
            found["read"] = _longest(end, lambda: self._topic.read())

        threads = [threading.Thread(target=write), threading.Thread(target=read)]
        for thread in threads:
            thread.start()
        found["stall"] = _longest(end, lambda: None)
        for thread in threads:
            thread.join()
        return found

    def alive(self) -> int:
        """Return how many of the iterators still deliver."""
        self._topic.publish(1)
        self._queue.enqueue(1)
        self._channel.notify(1)
        for _ in range(100):
            if len(self._seen) == 3:
                break
            time.sleep(0.02)
        return len(self._seen)

    def close(self) -> None:
        """Close the kit."""
        self._kit.close()

    def _iterate(self, name: str, messages: Any) -> None:
        for _ in messages:
            self._seen.add(name)


class AsyncBystander:
    """A kit in an event loop: three waiting iterators, and the calls that `watch` starts."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._kit: Any = self._runner.run(_connect(url))
        self._seen: set[str] = set()
        self._topic, self._queue = self._kit.stream("topic"), self._kit.queue("work")
        self._channel = self._kit.channel("channel")
        self._iterating = self._runner.run(self._start())

    async def _start(self) -> list[asyncio.Task[None]]:
        await self._topic.publish(0)
        iterators = {
            "subscribe": await self._topic.subscribe(start="latest"),
            "work": self._queue.work(),
            "listen": await self._channel.listen(),
        }
        return [asyncio.create_task(self._iterate(*item)) for item in iterators.items()]

    def watch(self, seconds: float) -> dict[str, Any]:
        """Return the longest stalls, and the outcome of a write."""
        return self._runner.run(self._watch(seconds))

    async def _watch(self, seconds: float) -> dict[str, Any]:
        end = perf_counter() + seconds
        found: dict[str, Any] = {}

        async def write() -> None:
            start = perf_counter()
            try:
                await self._kit.queue("other").enqueue(1)
                found["write"] = "done"
            except eventkit.Busy:
                found["write"] = "Busy"
            found["waited"] = perf_counter() - start

        async def read() -> None:
            longest = 0.0
            while perf_counter() < end:
                start = perf_counter()
                await self._topic.read()
                longest = max(longest, perf_counter() - start)
                await asyncio.sleep(0.001)
            found["read"] = longest

        async def tick() -> None:
            longest, last = 0.0, perf_counter()
            while last < end:
                await asyncio.sleep(0.001)
                now = perf_counter()
                longest, last = max(longest, now - last - 0.001), now
            found["stall"] = longest

        await asyncio.gather(write(), read(), tick())
        return found

    def alive(self) -> int:
        """Return how many of the iterators still deliver."""
        return self._runner.run(self._alive())

    async def _alive(self) -> int:
        await self._topic.publish(1)
        await self._queue.enqueue(1)
        await self._channel.notify(1)
        for _ in range(100):
            if len(self._seen) == 3:
                break
            await asyncio.sleep(0.02)
        return len(self._seen)

    async def _iterate(self, name: str, messages: Any) -> None:
        async for _ in messages:
            self._seen.add(name)

    def close(self) -> None:
        """Close the kit."""
        self._runner.run(self._kit.close())
        self._runner.close()


def _longest(end: float, call: Callable[[], object]) -> float:
    """Return the longest time of *call*, beyond the millisecond slept before it."""
    longest = 0.0
    while (start := perf_counter()) < end:
        time.sleep(0.001)
        call()
        longest = max(longest, perf_counter() - start - 0.001)
    return longest


def _outcome(call: Callable[[], object]) -> str:
    with suppress(eventkit.Busy):
        call()
        return "done"
    return "Busy"


async def _connect(url: str) -> Any:
    return await eventkit.connect_async(url)

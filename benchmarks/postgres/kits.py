"""eventkit as contestants; what they do is what they do on SQLite."""

import asyncio
from time import perf_counter
from typing import Any

import eventkit

from .. import kits

_PREFETCH = 256
"""How many tasks a consumer claims at once."""


class Kit(kits.Kit):
    """A sync kit."""

    def __init__(self, url: str) -> None:
        self._kit = eventkit.connect(url)
        self._work, self._other = self._kit.queue("work"), self._kit.queue("other")
        self._topic = self._kit.stream("topic")


class AsyncKit(kits.AsyncKit):
    """An async kit, whose calls are awaited one after the other."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._kit: Any = self._runner.run(_connect(url))
        self._work, self._other = self._kit.queue("work"), self._kit.queue("other")
        self._topic = self._kit.stream("topic")

    async def consume(self, count: int) -> None:
        """An asyncio task for each task of the queue, which does nothing; what is done is acked in batches."""
        handled: asyncio.Queue[list[Any] | None] = asyncio.Queue(2)

        async def handle(task: Any) -> Any:
            return task

        async def ack() -> int:
            acked = 0
            while (tasks := await handled.get()) is not None:
                acked += len(await self._work.ack_many(tasks))
            return acked

        acking = asyncio.create_task(ack())
        while tasks := await self._work.claim("consumer", _PREFETCH):
            await handled.put(await asyncio.gather(*(asyncio.create_task(handle(task)) for task in tasks)))
        await handled.put(None)
        if await acking != count:
            raise AssertionError(f"not all of {count} tasks were there")


class Subscribers:
    """So many subscribers in one event loop, who count what comes."""

    def __init__(self, url: str, number: int) -> None:
        self._runner = asyncio.Runner()
        self._kit: Any = self._runner.run(_connect(url))
        self._counts = [0] * number
        self._tasks = self._runner.run(self._start(number))

    async def _start(self, number: int) -> list[asyncio.Task[None]]:
        async def count(place: int) -> None:
            async for _ in self._kit.stream("topic").subscribe(f"subscriber-{place}", start="latest"):
                self._counts[place] += 1

        tasks = [asyncio.create_task(count(place)) for place in range(number)]
        await asyncio.sleep(1)
        return tasks

    def follow(self, seconds: float) -> float:
        """Follow for so long; how many events a second each got."""

        async def follow() -> float:
            before, start = sum(self._counts), perf_counter()
            await asyncio.sleep(seconds)
            return (sum(self._counts) - before) / len(self._counts) / (perf_counter() - start)

        return self._runner.run(follow())

    def close(self) -> None:
        """Close the kit and its event loop."""
        self._runner.run(self._kit.close())
        self._runner.close()


async def _connect(url: str) -> Any:
    return await eventkit.connect_async(url)

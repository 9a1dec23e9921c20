"""eventkit as contestants, with the same work as on SQLite."""

import asyncio
import threading
from typing import Any

import eventkit

from .. import kits

_PREFETCH = 256
"""The number of tasks that a consumer claims at once."""


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
        """Run an asyncio task for each task of the queue, which does nothing; ack finished tasks in batches."""
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
    """Subscribers in an event loop of their own, which count events."""

    def __init__(self, url: str, number: int) -> None:
        self._count = 0
        self._ready = threading.Event()
        threading.Thread(target=asyncio.run, args=(self._run(url, number),), daemon=True).start()
        if not self._ready.wait(30):
            raise TimeoutError("no subscriber waits after 30 s")

    async def _run(self, url: str, number: int) -> None:
        async def follow(place: int) -> None:
            async for _ in self._kit.stream("topic").subscribe(f"subscriber-{place}", start="latest"):
                self._count += 1

        async with await _connect(url) as self._kit:
            following = asyncio.gather(*(follow(place) for place in range(number)))
            await asyncio.sleep(1)
            self._ready.set()
            await following

    def count(self) -> int:
        """Return the number of events received by all subscribers together."""
        return self._count


async def _connect(url: str) -> Any:
    return await eventkit.connect_async(url)

"""eventkit as contestants, sync and async."""

import asyncio
from itertools import islice
from time import perf_counter
from typing import Any

import eventkit

from .payloads import payloads
from .rounds import Contestant


class Kit(Contestant):
    """A sync kit."""

    def __init__(self, folder: str) -> None:
        self._kit = eventkit.connect(f"sqlite:///{folder}/kit.db")
        self._work, self._other = self._kit.queue("work"), self._kit.queue("other")
        self._topic = self._kit.stream("topic")

    def fill(self, count: int) -> None:
        """Add tasks as fast as possible."""
        self._work.enqueue_many(payloads(count))

    def crowd(self, state: str, count: int) -> None:
        """Put *count* tasks in the given state beside those that `claim` will handle."""
        for _ in range(count // 1000):
            if state == "ready":
                self._work.enqueue_many(payloads(1000))
            elif state == "scheduled":
                self._work.enqueue_many(eventkit.NewTask(payload, delay=3600) for payload in payloads(1000))
            elif state == "leased":
                self._work.enqueue_many(payloads(1000))
                self._work.claim("holder", 1000, lease=3600)
            elif state == "dead":
                self._work.enqueue_many(eventkit.NewTask(payload, expires=0) for payload in payloads(1000))
                self._work.sweep()
        stats = self._work.stats()
        if state != "nothing" and getattr(stats, state) != min(count, 10_000):  # stats counts up to that.
            raise AssertionError(f"{count} tasks should be {state}: {stats}")

    def enqueue(self, count: int) -> None:
        """Enqueue tasks, one per transaction."""
        enqueue = self._other.enqueue
        for payload in payloads(count):
            enqueue(payload)

    def enqueue_many(self, count: int, size: int) -> None:
        """Enqueue tasks, *size* per transaction."""
        source = payloads(count)
        for _ in range(count // size):
            self._other.enqueue_many(islice(source, size))

    def claim(self, count: int) -> None:
        """Claim and ack, one by one."""
        queue = self._work
        for _ in range(count):
            [task] = queue.claim("worker")
            queue.ack(task)

    def claim_many(self, count: int, size: int) -> None:
        """Claim and ack, *size* per transaction."""
        queue = self._work
        for _ in range(count // size):
            queue.ack_many(queue.claim("worker", size))

    def publish(self, count: int) -> None:
        """Publish events, one per transaction."""
        publish = self._topic.publish
        for payload in payloads(count):
            publish(payload)

    def publish_many(self, count: int, size: int) -> None:
        """Publish events, *size* per transaction."""
        source = payloads(count)
        for _ in range(count // size):
            self._topic.publish_many(islice(source, size))

    def read(self, count: int) -> None:
        """Read the first events, a thousand at a time, and decode the payloads."""
        after = 0
        for _ in range(count // 1000):
            after = self._topic.read(after)[-1].offset

    def subscribe(self, count: int) -> None:
        """Read the first events, one by one."""
        with self._topic.subscribe(start="earliest") as events:
            for _ in islice(events, count):
                pass

    def close(self) -> None:
        """Close the kit."""
        self._kit.close()


class AsyncKit(Contestant):
    """An async kit, whose calls are awaited one after the other."""

    def __init__(self, folder: str) -> None:
        self._runner = asyncio.Runner()
        self._kit: Any = self._runner.run(_connect(f"sqlite:///{folder}/kit_async.db"))
        self._work, self._other = self._kit.queue("work"), self._kit.queue("other")
        self._topic = self._kit.stream("topic")

    def time(self, work: str, *arguments: Any) -> float:
        """Return the seconds that the work took, inside the event loop."""

        async def run() -> float:
            start = perf_counter()
            await getattr(self, work)(*arguments)
            return perf_counter() - start

        return self._runner.run(run())

    def fill(self, count: int) -> None:
        """Add tasks as fast as possible."""

        async def fill() -> None:
            await self._work.enqueue_many(payloads(count))

        self._runner.run(fill())

    async def enqueue(self, count: int) -> None:
        """Enqueue tasks, one per transaction."""
        for payload in payloads(count):
            await self._other.enqueue(payload)

    async def enqueue_many(self, count: int, size: int) -> None:
        """Enqueue tasks, *size* per transaction."""
        source = payloads(count)
        for _ in range(count // size):
            await self._other.enqueue_many(islice(source, size))

    async def claim(self, count: int) -> None:
        """Claim and ack, one by one."""
        queue = self._work
        for _ in range(count):
            [task] = await queue.claim("worker")
            await queue.ack(task)

    async def claim_many(self, count: int, size: int) -> None:
        """Claim and ack, *size* per transaction."""
        queue = self._work
        for _ in range(count // size):
            await queue.ack_many(await queue.claim("worker", size))

    async def publish(self, count: int) -> None:
        """Publish events, one per transaction."""
        for payload in payloads(count):
            await self._topic.publish(payload)

    async def publish_many(self, count: int, size: int) -> None:
        """Publish events, *size* per transaction."""
        source = payloads(count)
        for _ in range(count // size):
            await self._topic.publish_many(islice(source, size))

    async def read(self, count: int) -> None:
        """Read the first events, a thousand at a time, and decode the payloads."""
        after = 0
        for _ in range(count // 1000):
            after = (await self._topic.read(after))[-1].offset

    async def subscribe(self, count: int) -> None:
        """Read the first events, one by one."""
        async with self._topic.subscribe(start="earliest") as events:
            left = count
            async for _ in events:
                left -= 1
                if not left:
                    break

    def close(self) -> None:
        """Close the kit and its event loop."""
        self._runner.run(self._kit.close())
        self._runner.close()


async def _connect(url: str) -> Any:
    return await eventkit.connect_async(url)

"""eventkit as contestants, sync and async, on the database at a URL."""

from itertools import islice
from typing import Any

import eventkit

from .contestants import PREFETCH, WithAsyncKit, WithKit, consume, payloads


class Kit(WithKit):
    """A sync kit."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._work, other, self._topic = self.kit.queue("work"), self.kit.queue("other"), self.kit.stream("topic")
        self.enqueue, self.enqueue_many = other.enqueue, other.enqueue_many
        self.publish, self.publish_many = self._topic.publish, self._topic.publish_many

    def fill(self, count: int) -> None:
        self._work.enqueue_many(payloads(count))

    def fill_beside(self, state: str, count: int) -> None:
        """Put *count* tasks in the given state beside those that `claim` will handle."""
        for _ in range(count // 1000):
            if state == "ready":
                self._work.enqueue_many(payloads(1000))
            elif state == "scheduled":
                self._work.enqueue_many(eventkit.NewTask(payload, delay=3600) for payload in payloads(1000))
            elif state == "running":
                self._work.enqueue_many(payloads(1000))
                self._work.claim("holder", 1000, lease=3600)
            elif state == "dead":
                self._work.enqueue_many(eventkit.NewTask(payload, expires=0) for payload in payloads(1000))
                self._work.sweep()
        stats = self._work.stats()
        if state != "nothing" and getattr(stats, state) != min(count, 10_000):  # stats counts up to that.
            raise AssertionError(f"{count} tasks should be {state}: {stats}")

    def claim(self) -> None:
        [task] = self._work.claim("worker")
        self._work.ack(task)

    def claim_many(self, size: int) -> None:
        self._work.ack_many(self._work.claim("worker", size))

    def read(self, count: int) -> None:
        after = 0
        for _ in range(count // 1000):
            after = self._topic.read(after)[-1].offset

    def subscribe(self, count: int) -> None:
        with self._topic.subscribe(start="earliest") as events:
            for _ in islice(events, count):
                pass


class AsyncKit(WithAsyncKit):
    """An async kit."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._work, other, self._topic = self.kit.queue("work"), self.kit.queue("other"), self.kit.stream("topic")
        self.enqueue, self.enqueue_many = other.enqueue, other.enqueue_many
        self.publish, self.publish_many = self._topic.publish, self._topic.publish_many

    async def fill(self, count: int) -> None:
        await self._work.enqueue_many(payloads(count))

    async def claim(self) -> None:
        [task] = await self._work.claim("worker")
        await self._work.ack(task)

    async def claim_many(self, size: int) -> None:
        await self._work.ack_many(await self._work.claim("worker", size))

    async def read(self, count: int) -> None:
        after = 0
        for _ in range(count // 1000):
            after = (await self._topic.read(after))[-1].offset

    async def subscribe(self, count: int) -> None:
        async with self._topic.subscribe(start="earliest") as events:
            left = count
            async for _ in events:
                left -= 1
                if not left:
                    break

    async def consume(self, count: int) -> None:
        async def ack(tasks: list[Any]) -> int:
            return len(await self._work.ack_many(tasks))

        await consume(count, lambda: self._work.claim("consumer", PREFETCH), lambda task: task, ack)

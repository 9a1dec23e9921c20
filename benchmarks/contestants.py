"""Contestants, and the work that they do.

A work is a method of a contestant, which is timed over many calls:

- ``enqueue(payload)`` and ``publish(payload)`` add a task or an event in a transaction of its own;
- ``enqueue_many(batch)`` and ``publish_many(batch)`` add some in one transaction;
- ``claim()`` claims and acks one of the tasks that ``fill(count)`` has added, ``claim_many(size)`` some at a time;
- ``consume(count)`` and ``work(count)`` handle all of them;
- ``read(count)`` reads the first events, a thousand at a time, ``subscribe(count)`` one by one; payloads are decoded;
- ``commit(batch)`` commits a transaction of an application, ``run(count)`` does a whole job.

`ARGUMENTS` says what a call takes; works that are not in it take nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from itertools import cycle, islice
from time import perf_counter
from typing import Any

import msgspec

import eventkit

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode

_PAYLOADS = [
    {"id": number, "to": f"ann.{number}@example.com", "subject": "Your order", "total": number / 4}
    for number in range(1000)
]


def payloads(count: int) -> Iterator[Any]:
    """Yield *count* payloads: small JSON objects, no two of them in a row the same."""
    return islice(cycle(_PAYLOADS), count)


def batches(count: int, size: int) -> Iterator[list[Any]]:
    """Yield *count* payloads in lists of *size*."""
    source = payloads(count)
    return (list(islice(source, size)) for _ in range(count // size))


def _whole(count: int) -> Iterator[int]:
    return iter((count,))


def _sizes(count: int, size: int) -> Iterator[int]:
    return iter([size] * (count // size))


ARGUMENTS: dict[str, Callable[..., Iterator[Any]]] = {
    "enqueue": payloads,
    "enqueue_many": batches,
    "claim_many": _sizes,
    "publish": payloads,
    "publish_many": batches,
    "commit": batches,
    **dict.fromkeys(("read", "subscribe", "consume", "work", "run"), _whole),
}
"""The arguments of the calls of a work, from the number of items and the size of a batch."""

CONSUMING = {"claim", "claim_many", "claim_only", "consume", "work"}
"""The works that need tasks, which `Contestant.fill` adds."""


class Contestant:
    """A contestant with a method for each work that it supports."""

    def can(self, work: str) -> bool:
        """Return whether the contestant supports *work*."""
        return hasattr(self, work)

    def time(self, work: str, count: int, *size: int) -> float:
        """Return the seconds that the work on *count* items took."""
        call, arguments = getattr(self, work), self._arguments(work, count, *size)
        start = perf_counter()
        for each in arguments:
            call(*each)
        return perf_counter() - start

    def fill(self, count: int) -> None:
        """Add tasks to claim."""
        self.time("enqueue", count)

    def close(self) -> None:
        """Release all resources."""

    def _arguments(self, work: str, count: int, *size: int) -> list[tuple[Any, ...]]:
        if work in ARGUMENTS:
            return [(each,) for each in ARGUMENTS[work](count, *size)]
        return [()] * count


class AsyncContestant(Contestant):
    """A contestant whose calls are awaited one after the other, in an event loop of its own."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of *coroutine*."""
        return self._runner.run(coroutine)

    def time(self, work: str, count: int, *size: int) -> float:
        """Return the seconds that the work took, inside the event loop."""
        call, arguments = getattr(self, work), self._arguments(work, count, *size)

        async def timed() -> float:
            start = perf_counter()
            for each in arguments:
                await call(*each)
            return perf_counter() - start

        return float(self.run(timed()))

    def close(self) -> None:
        """Close the event loop."""
        self._runner.close()


PREFETCH = 256
"""The number of tasks that `consume` claims at once."""


async def consume(
    count: int,
    claim: Callable[[], Awaitable[list[Any]]],
    handle: Callable[[Any], Any],
    ack: Callable[[list[Any]], Awaitable[int]],
) -> None:
    """Run an asyncio task for each task of a queue, and ack the handled ones in batches beside it."""
    handled: asyncio.Queue[list[Any] | None] = asyncio.Queue(2)

    async def run(task: Any) -> Any:
        return handle(task)

    async def ack_all() -> int:
        acked = 0
        while (tasks := await handled.get()) is not None:
            acked += await ack(tasks)
        return acked

    acking = asyncio.create_task(ack_all())
    while tasks := await claim():
        await handled.put(await asyncio.gather(*(asyncio.create_task(run(task)) for task in tasks)))
    await handled.put(None)
    if await acking != count:
        raise AssertionError(f"not all of {count} tasks were there")


class WithKit(Contestant):
    """A contestant with a kit."""

    def __init__(self, url: str) -> None:
        self.kit: Any = eventkit.connect(url)

    def close(self) -> None:
        """Close the kit."""
        self.kit.close()


class WithAsyncKit(AsyncContestant):
    """A contestant with an async kit."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.kit: Any = self.run(_connected(url))

    def close(self) -> None:
        """Close the kit and its event loop."""
        self.run(self.kit.close())
        super().close()


async def _connected(url: str) -> Any:
    return await eventkit.connect_async(url)

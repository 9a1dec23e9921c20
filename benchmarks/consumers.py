"""Processes whose consumers wait for messages and record when they arrive."""

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any, NamedTuple

import eventkit

from .processes import Process


class Wait(NamedTuple):
    """A way to wait for messages of a name: "subscribe", "work" or "listen"."""

    way: str
    name: str
    consumer: str | None = None

    def messages(self, kit: Any) -> Any:
        """Return the iterator; that of an async kit is awaited first."""
        if self.way == "subscribe":
            return kit.stream(self.name).subscribe(self.consumer, start="latest")
        return kit.queue(self.name).work() if self.way == "work" else kit.channel(self.name).listen()


class Receiver(Process):
    """A process that records when messages arrive."""

    def __init__(self) -> None:
        self._arrivals: list[int] = []

    def arrive(self) -> None:
        """Record a message."""
        self._arrivals.append(time.monotonic_ns())

    def arrivals(self, number: int, patience: float = 30.0) -> list[int]:
        """Return when *number* messages arrived, or as many as did in time, and forget them."""
        deadline = time.monotonic() + patience
        while len(self._arrivals) < number and time.monotonic() < deadline:
            time.sleep(0.01)
        arrivals, self._arrivals = self._arrivals, []
        return arrivals


class ThreadReceiver(Receiver):
    """A receiver that waits in a thread; *wait* calls `arrive`, and sets *ready* when it waits."""

    def __init__(self, url: str, *waits: Wait) -> None:
        super().__init__()
        self._ready = threading.Event()
        threading.Thread(target=self.wait, args=(url,), daemon=True).start()
        if not self._ready.wait(30):
            raise TimeoutError("no receiver waits after 30 s")
        time.sleep(0.1)

    def wait(self, url: str) -> None:
        """Wait for messages."""
        raise NotImplementedError


class Consumers(Receiver):
    """Iterators of one kit, each in a thread of its own."""

    def __init__(self, url: str, *waits: Wait) -> None:
        super().__init__()
        self.kit: Any = eventkit.connect(url)
        for wait in waits:
            threading.Thread(target=self._iterate, args=(wait.messages(self.kit),), daemon=True).start()
        self.own_threads = 1 + len(waits)
        time.sleep(0.3)

    def _iterate(self, messages: Any) -> None:
        for _ in messages:
            self.arrive()

    def close(self) -> None:
        """Close the kit."""
        self.kit.close()


class AsyncConsumers(Receiver):
    """Iterators of one async kit in an event loop, which has a thread."""

    own_threads = 2

    def __init__(self, url: str, *waits: Wait) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.run(self._start(url, waits))
        time.sleep(0.3)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of *coroutine*."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    async def _start(self, url: str, waits: tuple[Wait, ...]) -> None:
        self.kit: Any = await eventkit.connect_async(url)
        self._iterating = [asyncio.create_task(self._iterate(await wait.messages(self.kit))) for wait in waits]

    async def _iterate(self, messages: Any) -> None:
        async for _ in messages:
            self.arrive()

    def close(self) -> None:
        """Close the kit."""
        self.run(self.kit.close())


FLAVOURS: dict[str, type[Receiver]] = {"sync": Consumers, "async": AsyncConsumers}

"""`Canary`: sends test tasks and events, and measures whether and how fast they arrive.

A round puts a task into the queue ``eventkit.canary`` and an event into the stream of that name, for a consumer that
sleeps until they arrive; so it measures the commit, the wake and the claim, as an application does.  Of several
canaries on a database, one runs at a time, under a lock.
"""

import asyncio
import logging
from time import monotonic, time
from typing import Any

from . import checks
from .checks import Duration
from .errors import EventkitError
from .metrics import Counter, Gauge, Histogram, Registry
from .plans import completed
from .protocols import AsyncEventKit

logger = logging.getLogger("eventkit.canary")

NAME = "eventkit.canary"
"""The name of the queue, the stream and the lock."""

_ASLEEP = 0.05
"""Seconds after which the consumer has found nothing, and sleeps."""

_KEPT = 10


class Metrics(Registry):
    """The measurements of the canaries of a process."""

    def __init__(self) -> None:
        self.seconds = Histogram(
            "eventkit_canary_seconds", "Time from sending a canary's task or event until it was received.", "path"
        )
        self.failures = Counter(
            "eventkit_canary_failures_total", "Canary tasks and events that did not arrive in time.", "path"
        )
        self.last = Gauge("eventkit_canary_last_success_seconds", "When the last one arrived, since 1970.", "path")


class Canary:
    """A sender of test tasks and events to itself; one that takes longer than *timeout* seconds has failed."""

    def __init__(self, kit: AsyncEventKit, *, timeout: Duration = 10) -> None:
        self._timeout = checks.milliseconds("timeout", timeout, least=1) / 1000
        self._lock = kit.lock(NAME, ttl=4 * self._timeout + 10)
        self._queue, self._stream = kit.queue(NAME), kit.stream(NAME)
        self.metrics = Metrics()

    async def run(self, every: Duration = 10) -> None:
        """Run a round once in *every* seconds, for ever."""
        pause = checks.milliseconds("every", every, least=1) / 1000
        while True:
            await self.measure()
            await asyncio.sleep(pause)

    async def measure(self) -> dict[str, float | None]:
        """Run one round; return the seconds that a task and an event took, with None for one that did not arrive."""
        took: dict[str, float | None] = {"queue": None, "stream": None}
        try:
            if await self._lock.acquire(wait=self._timeout):
                try:
                    took["queue"] = await self._through("queue", self._task)
                    took["stream"] = await self._through("stream", self._event)
                finally:
                    await completed(self._lock.release())
        except EventkitError as error:
            logger.warning("the canary could not start or finish its round: %s", error)
        for path, seconds in took.items():
            if seconds is None:
                self.metrics.failures.of(path).value += 1
            else:
                self.metrics.seconds.of(path).observe(seconds)
                self.metrics.last.of(path).value = time()
        return took

    async def _through(self, path: str, send: Any) -> float | None:
        try:
            async with asyncio.timeout(self._timeout):
                seconds: float = await send()
                return seconds
        except TimeoutError:
            logger.warning("the canary's %s did not arrive within %g s", path, self._timeout)
        except EventkitError as error:
            logger.warning("the canary's %s failed: %s", path, error)
        return None

    async def _task(self) -> float:
        # A canary that died in its round may have left a task.
        await self._queue.purge()
        waiting = asyncio.ensure_future(self._queue.claim(NAME, wait=self._timeout))
        try:
            await asyncio.sleep(_ASLEEP)
            sent = monotonic()
            await self._queue.enqueue(None, max_attempts=1, expires=4 * self._timeout)
            [task] = await waiting
            took = monotonic() - sent
        finally:
            waiting.cancel()
        await self._queue.ack(task)
        return took

    async def _event(self) -> float:
        async with self._stream.subscribe(start="latest") as events:
            waiting = asyncio.ensure_future(anext(events))
            try:
                await asyncio.sleep(_ASLEEP)
                sent = monotonic()
                await self._stream.publish(None)
                await waiting
                took = monotonic() - sent
            finally:
                waiting.cancel()
        await self._stream.prune(keep_count=_KEPT)
        return took

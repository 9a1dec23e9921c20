"""What a worker does while its database is away: it waits, and asks again."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..errors import Unavailable
from .metrics import Metrics
from .settings import WorkerSettings

T = TypeVar("T")

logger = logging.getLogger("eventkit.worker")


class Recovery:
    """Calls that are made until the database answers, with pauses that double."""

    def __init__(self, settings: WorkerSettings, metrics: Metrics) -> None:
        self._initial = settings.db_retry_initial_ms / 1000
        self._longest = settings.db_retry_max_ms / 1000
        self._most = settings.db_retry_max_attempts
        self._failures = metrics.failures.of()
        self._up = metrics.up.of()
        self._up.value = 1
        self._told: set[type[Unavailable]] = set()

    async def through(self, call: Callable[[], Awaitable[T]]) -> T:
        """What *call* answers, as soon as the database lets it; raises when it was asked too often."""
        failed = 0
        while True:
            try:
                answer = await call()
            except Unavailable as error:
                failed += 1
                self._failures.value += 1
                if self._most and failed > self._most:
                    raise
                pause = self.pause(failed)
                self._up.value = 0
                # One that ends connections and then has none left needs another remedy than one that was restarted.
                if type(error) not in self._told:
                    self._told.add(type(error))
                    logger.warning("the database does not answer, trying again in %.1f s: %s", pause, error)
                await asyncio.sleep(pause)
            else:
                if self._told:
                    self._up.value = 1
                    self._told.clear()
                    logger.info("the database answers again")
                return answer

    def pause(self, failed: int) -> float:
        """Seconds to wait after so many failures; workers that have lost it together do not come back together."""
        longest = min(self._longest, self._initial * 2.0 ** min(failed - 1, 1000))
        return longest * random.uniform(0.5, 1.0) if failed > 1 else longest

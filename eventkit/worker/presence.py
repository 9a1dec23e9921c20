"""Having it known in the database that a worker works, for whoever looks at `EventKit.workers`."""

import asyncio

from ..operations.worker import EVERY, Beat, SignOff
from ..protocols import AsyncConnection
from .metrics import Metrics


class Presence:
    """What is known of one worker: its queues, its slots, and how many of them are taken."""

    def __init__(self, connection: AsyncConnection, name: str, queues: list[str], metrics: Metrics) -> None:
        self._connection = connection
        self._name = name
        self._queues = queues
        self._slots, self._running = metrics.slots.of(), metrics.running.of()

    async def run(self) -> None:
        """Say so every ten seconds."""
        while True:
            slots, running = int(self._slots.value), int(self._running.value)
            await self._connection.execute(Beat(self._name, self._queues, slots, running))
            await asyncio.sleep(EVERY)

    async def leave(self) -> None:
        """Let nothing be said of it any more."""
        await self._connection.execute(SignOff(self._name))

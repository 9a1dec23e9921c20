"""Firing schedules, for asyncio.  `scheduler` is the same for threads."""

from .loops_async import AsyncLoops
from .operations.schedule import SchedulesAhead
from .operations.tick import Tick
from .protocols import AsyncConnection
from .records import Fire


class AsyncScheduler:
    """Fires the schedules of a kit, beside however many others do."""

    def __init__(self, connection: AsyncConnection, loops: AsyncLoops) -> None:
        self._connection = connection
        self._loops = loops

    async def tick(self, now: int | None = None) -> list[Fire]:
        """Fire everything that is due at *now*, or when it is called."""
        fires: list[Fire] = []
        while True:
            ticked = await self._connection.execute(Tick(now))
            fires += ticked.fires
            if not ticked.more:
                return fires
            now = ticked.moment

    async def run(self) -> None:
        """Tick whenever a schedule is due, until the kit is closed."""
        await self._loops.repeat(self.tick, SchedulesAhead())

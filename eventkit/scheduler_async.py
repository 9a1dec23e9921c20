"""Firing schedules, for asyncio.  `scheduler` is the same for threads."""

from .errors import PASSING, Closed
from .operations.schedule import SchedulesAhead
from .operations.tick import Tick
from .protocols import AsyncConnection
from .records import Fire


class AsyncScheduler:
    """Fires the schedules of a kit, beside however many others do."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

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
        connection = self._connection
        await connection.execute(SchedulesAhead())  # A kit that is closed says so; from here on, closing it is the end.
        try:
            while not connection.closing:
                try:
                    await self.tick()
                except PASSING:
                    continue
                if not await connection.sleep(SchedulesAhead()):
                    return
        except Closed:
            return

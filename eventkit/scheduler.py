"""Firing schedules, for threads.  `scheduler_async` is the same for asyncio."""

from .loops import Loops
from .operations.schedule import SchedulesAhead
from .operations.tick import Tick
from .protocols import Connection
from .records import Fire


class Scheduler:
    """Fires the schedules of a kit, beside however many others do."""

    def __init__(self, connection: Connection, loops: Loops) -> None:
        self._connection = connection
        self._loops = loops

    def tick(self, now: int | None = None) -> list[Fire]:
        """Fire everything that is due at *now*, or when it is called."""
        fires: list[Fire] = []
        while True:
            ticked = self._connection.execute(Tick(now))
            fires += ticked.fires
            if not ticked.more:
                return fires
            now = ticked.moment

    def run(self) -> None:
        """Tick whenever a schedule is due, until the kit is closed."""
        self._loops.repeat(self.tick, SchedulesAhead())

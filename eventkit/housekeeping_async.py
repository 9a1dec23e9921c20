"""Putting the database in order, for asyncio.  `housekeeping` is the same for threads."""

from . import arguments
from .findings import Maintained
from .loops_async import AsyncLoops
from .operations.claim import fresh_token
from .operations.lock import AcquireLock, LockAhead
from .operations.maintenance import upkeep
from .protocols import AsyncConnection

LOCK = "eventkit:maintenance"
"""Whoever gets this lock keeps house.  It is not released but expires, so it is had once in each interval."""


class AsyncHousekeeping:
    """Does the housekeeping of a kit, in short transactions, between which everybody else has a turn."""

    def __init__(self, connection: AsyncConnection, loops: AsyncLoops) -> None:
        self._connection = connection
        self._loops = loops

    async def maintain(self) -> Maintained:
        """Do all there is to do."""
        steps, answer = upkeep(), None
        try:
            while True:
                answer = await self._connection.execute(steps.send(answer))
        except StopIteration as done:
            found: Maintained = done.value
            return found

    async def run(self, every: int) -> None:
        """Maintain once in *every* milliseconds, whichever process does it, until the kit is closed."""

        async def take_turn() -> None:
            turn = AcquireLock(LOCK, fresh_token(), arguments.default_worker(), every)
            if await self._connection.execute(turn) is not None:
                await self.maintain()

        await self._loops.repeat(take_turn, LockAhead(LOCK))

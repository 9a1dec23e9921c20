"""Putting the database in order, for asyncio.  `housekeeping` is the same for threads."""

from . import arguments
from .errors import PASSING, Closed
from .operations.claim import fresh_token
from .operations.lock import AcquireLock, LockAhead
from .operations.maintenance import WITHOUT_QUEUE, FindDueQueues, MoveDue
from .protocols import AsyncConnection
from .records import Maintained

LOCK = "eventkit:maintenance"
"""Whoever gets this lock keeps house.  It is not released but expires, so it is had once in each interval."""


class AsyncHousekeeping:
    """Does the housekeeping of a kit, in short transactions, between which everybody else has a turn."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def maintain(self) -> Maintained:
        """Do all there is to do."""
        found = dict.fromkeys(Maintained.__struct_fields__, 0)
        queues = await self._connection.execute(FindDueQueues())
        for chore in (*(MoveDue(queue=queue) for queue in queues), *WITHOUT_QUEUE):
            number = chore.limit
            while number >= chore.limit:
                number = await self._connection.execute(chore)
                found[chore.kind] += number
        return Maintained(**found)

    async def run(self, every: int) -> None:
        """Maintain once in *every* milliseconds, whichever process does it, until the kit is closed."""
        connection = self._connection
        await connection.execute(LockAhead(LOCK))  # A kit that is closed says so; from here on, closing it is the end.
        try:
            while not connection.closing:
                try:
                    turn = AcquireLock(LOCK, fresh_token(), arguments.default_worker(), every)
                    if (await connection.execute(turn)) is not None:
                        await self.maintain()
                except PASSING:
                    continue
                if not await connection.sleep(LockAhead(LOCK)):
                    return
        except Closed:
            return

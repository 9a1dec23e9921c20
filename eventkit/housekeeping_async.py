"""Putting the database in order, for asyncio.  `housekeeping` is the same for threads."""

from .operations.maintenance import WITHOUT_QUEUE, FindDueQueues, MoveDue
from .protocols import AsyncConnection
from .records import Maintained


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

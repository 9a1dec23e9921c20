"""Putting the database in order, for threads.  `housekeeping_async` is the same for asyncio."""

from .operations.maintenance import WITHOUT_QUEUE, FindDueQueues, MoveDue
from .protocols import Connection
from .records import Maintained


class Housekeeping:
    """Does the housekeeping of a kit, in short transactions, between which everybody else has a turn."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def maintain(self) -> Maintained:
        """Do all there is to do."""
        found = dict.fromkeys(Maintained.__struct_fields__, 0)
        queues = self._connection.execute(FindDueQueues())
        for chore in (*(MoveDue(queue=queue) for queue in queues), *WITHOUT_QUEUE):
            number = chore.limit
            while number >= chore.limit:
                number = self._connection.execute(chore)
                found[chore.kind] += number
        return Maintained(**found)

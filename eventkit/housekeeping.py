"""Putting the database in order, for threads.  `housekeeping_async` is the same for asyncio."""

from . import arguments
from .errors import PASSING, Closed
from .operations.claim import fresh_token
from .operations.lock import AcquireLock, LockAhead
from .operations.maintenance import WITHOUT_QUEUE, FindDueQueues, MoveDue
from .protocols import Connection
from .records import Maintained

LOCK = "eventkit:maintenance"
"""Whoever gets this lock keeps house.  It is not released but expires, so it is had once in each interval."""


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

    def run(self, every: int) -> None:
        """Maintain once in *every* milliseconds, whichever process does it, until the kit is closed."""
        connection = self._connection
        connection.execute(LockAhead(LOCK))  # A kit that is closed says so; from here on, closing it is the end.
        try:
            while not connection.closing:
                try:
                    turn = AcquireLock(LOCK, fresh_token(), arguments.default_worker(), every)
                    if (connection.execute(turn)) is not None:
                        self.maintain()
                except PASSING:
                    continue
                if not connection.sleep(LockAhead(LOCK)):
                    return
        except Closed:
            return

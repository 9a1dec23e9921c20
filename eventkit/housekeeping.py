"""Putting the database in order, for threads.  `housekeeping_async` is the same for asyncio."""

from . import arguments
from .findings import Maintained
from .loops import Loops
from .operations.claim import fresh_token
from .operations.lock import AcquireLock, LockAhead
from .operations.maintenance import upkeep
from .protocols import Connection

LOCK = "eventkit:maintenance"
"""Whoever gets this lock keeps house.  It is not released but expires, so it is had once in each interval."""


class Housekeeping:
    """Does the housekeeping of a kit, in short transactions, between which everybody else has a turn."""

    def __init__(self, connection: Connection, loops: Loops) -> None:
        self._connection = connection
        self._loops = loops

    def maintain(self) -> Maintained:
        """Do all there is to do."""
        steps, answer = upkeep(), None
        try:
            while True:
                answer = self._connection.execute(steps.send(answer))
        except StopIteration as done:
            found: Maintained = done.value
            return found

    def run(self, every: int) -> None:
        """Maintain once in *every* milliseconds, whichever process does it, until the kit is closed."""

        def take_turn() -> None:
            turn = AcquireLock(LOCK, fresh_token(), arguments.default_worker(), every)
            if self._connection.execute(turn) is not None:
                self.maintain()

        self._loops.repeat(take_turn, LockAhead(LOCK))

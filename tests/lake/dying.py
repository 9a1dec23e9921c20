"""Archives or replays, and is killed at a chosen step: ``dying.py URL FOLDER WHAT`` reads steps from its stdin.

Each step has a process of its own.  There is one before each statement and before and after each commit, and one
around everything that happens to a file: when it is begun, closed, safe on the disk, under its name, and removed.
With ``list`` there is one before and after the table is brought in step with the manifest, and no other.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from eventkit import bulk
from eventkit.kit import backend_of
from eventkit.lake import archiving, compacting, replaying, turn
from eventkit.lake.listing import Listing
from eventkit.lake.store import Store
from eventkit.operations import Operation, Plan, Rows


class Steps:
    """Counts, and ends the process at the last; never if that is 0."""

    def __init__(self, last: int) -> None:
        self._left = last
        self.taken = 0

    def next(self) -> None:
        """One more."""
        self.taken += 1
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)


class Deadly:
    """An operation, with a step before each of its statements, and one before the commit."""

    def __init__(self, operation: Operation[Any], steps: Steps) -> None:
        self.writes = operation.writes
        self.first_alone = operation.first_alone
        self._operation = operation
        self._steps = steps

    def plan(self) -> Plan[Any]:
        """The operation's."""
        plan = self._operation.plan()
        rows: Rows | None = None
        while True:
            self._steps.next()
            try:
                statement = plan.send(rows)
            except StopIteration as done:
                return done.value
            rows = yield statement


class DeadlyConnection:
    """A connection on which what writes is deadly."""

    def __init__(self, connection: Any, steps: Steps) -> None:
        self._connection = connection
        self._steps = steps

    def execute(self, operation: Operation[Any]) -> Any:
        """Its answer, if anybody is there to hear it."""
        if not operation.writes:
            return self._connection.execute(operation)
        answer = self._connection.execute(Deadly(operation, self._steps))
        self._steps.next()
        return answer

    def close(self) -> None:
        """Let go."""
        self._connection.close()


class DeadlyBackend:
    """A backend with such connections."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def __call__(self, url: str) -> "DeadlyBackend":
        return self

    def connect(self, url: str, create: bool) -> DeadlyConnection:
        """One of them."""
        return DeadlyConnection(backend_of(url).connect(url, create=create), self._steps)


def stepping(function: Callable[..., Any], steps: Steps) -> Callable[..., Any]:
    """The function, between two steps."""

    def stepped(*arguments: Any) -> Any:
        steps.next()
        answer = function(*arguments)
        steps.next()
        return answer

    return stepped


def work(url: str, folder: str, what: str, last: int) -> None:
    """What is to be done, in small portions."""
    steps = Steps(last)
    if what == "list":
        setattr(Listing, "follow", stepping(Listing.follow, steps))  # noqa: B010
    else:
        backend: Any = DeadlyBackend(steps)
        for module in (archiving, replaying):
            module.backend_of = backend
        for name in ("begin", "finish", "remove", "_settle"):
            setattr(Store, name, stepping(getattr(Store, name), steps))
    archiving._STEP_ROWS, bulk._FIRST, bulk.ROWS = 20, 10, 10
    turn._GRACE = 0
    if what == "replay":
        replaying._ROWS = 7
        replaying.replay(url, "orders", to_topic="again")
        return
    if what in ("compact", "list"):
        compacting._MANY = 3
    archiving.archive(url, "orders", to=folder, prune=what == "prune")


def main(url: str, folder: str, what: str) -> None:
    """For each step a process, and how it ended."""
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                work(url, folder, what, int(line))
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        os.write(1, f"{os.waitstatus_to_exitcode(status)}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])

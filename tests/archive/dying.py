"""Archive or replay, and die at a chosen step: each line of the input is ``URL FOLDER WHAT STEP``, with tabs between.

Each line has a process of its own.  There is one before each statement and before and after each commit, and one
around each change of a file: when it is begun, closed, synced, renamed and removed.
With ``list`` there is one before and after the table is updated from the manifest, and no other.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from eventkit import arrow
from eventkit.archive import archiver, delta, iceberg, lease, replayer  # noqa: F401  # formats take long to import
from eventkit.archive.files import Store
from eventkit.archive.lease import Listing
from eventkit.kit import backend_of
from eventkit.operations import Operation, Plan, Rows, Scope


class Steps:
    """A counter that ends the process at the last step; never if that is 0."""

    def __init__(self, last: int) -> None:
        self._left = last
        self.taken = 0

    def next(self) -> None:
        """Count one step."""
        self.taken += 1
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)


class Deadly:
    """An operation with a step before each of its statements, and one before the commit."""

    def __init__(self, operation: Operation[Any], steps: Steps) -> None:
        self.writes = operation.writes
        self.scope = Scope.REST if operation.first_alone else Scope.ALL
        self._operation = operation
        self._steps = steps

    def plan(self) -> Plan[Any]:
        """Run the operation's plan."""
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
    """A connection whose writing operations may die."""

    def __init__(self, connection: Any, steps: Steps) -> None:
        self._connection = connection
        self._steps = steps

    def execute(self, operation: Operation[Any]) -> Any:
        """Return the answer, if the process survives."""
        if not operation.writes:
            return self._connection.execute(operation)
        answer = self._connection.execute(Deadly(operation, self._steps))
        self._steps.next()
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class DeadlyBackend:
    """A backend with such connections."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def __call__(self, url: str) -> "DeadlyBackend":
        return self

    def connect(self, url: str, create: bool) -> DeadlyConnection:
        """Return one of them."""
        return DeadlyConnection(backend_of(url).connect(url, create=create), self._steps)


def stepping(function: Callable[..., Any], steps: Steps) -> Callable[..., Any]:
    """Return the function, between two steps."""

    def stepped(*arguments: Any) -> Any:
        steps.next()
        answer = function(*arguments)
        steps.next()
        return answer

    return stepped


def work(url: str, folder: str, what: str, last: int) -> None:
    """Run the work in small portions."""
    steps = Steps(last)
    if what == "list":
        setattr(Listing, "follow", stepping(Listing.follow, steps))  # noqa: B010
    else:
        backend: Any = DeadlyBackend(steps)
        for module in (archiver, replayer):
            module.backend_of = backend
        for name in ("begin", "finish", "remove", "_settle"):
            setattr(Store, name, stepping(getattr(Store, name), steps))
    archiver._STEP_ROWS, arrow._FIRST, arrow.ROWS = 20, 10, 10
    lease._GRACE = 0
    if what == "replay":
        replayer._ROWS = 7
        replayer.replay(url, "orders", to_stream="again")
        return
    if what in ("compact", "list"):
        archiver._MANY = 3
    archiver.archive(url, "orders", to=folder, prune=what == "prune")


def main() -> None:
    """Run a process for each line, and print how it ended."""
    for line in sys.stdin:
        url, folder, what, last = line.split("\t")
        child = os.fork()
        if not child:
            try:
                work(url, folder, what, int(last))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        os.write(1, f"{os.waitstatus_to_exitcode(status)}\n".encode())


if __name__ == "__main__":
    main()

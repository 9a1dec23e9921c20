"""Everything that waits, for threads.  `loops_async` is the same for asyncio, to be read beside it.

A wait looks, and sleeps on a probe when there is nothing.  The connection's `sleep` returns when it is worth looking
again, and False when the kit is closing.  What the iterators do is in `feeds` and `messages`.
"""

from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakSet

from .errors import PASSING, Closed, QueueFull
from .handling import outcome, report
from .heartbeat import Heartbeat, of_task
from .messages import Feed, Messages
from .operations import Operation, Probe
from .protocols import Connection
from .records import Task
from .telemetry import tracing

M = TypeVar("M")
T = TypeVar("T")


class Loops:
    """The loops of one kit."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._opened: WeakSet[Messages[Any]] = WeakSet()
        self._heartbeat = Heartbeat(connection)

    def iterate(self, feed: Feed[M]) -> Messages[M]:
        """Return an iterator over the items of *feed*."""
        return Messages(self._connection, feed, self._heartbeat, self._opened)

    def attempt(self, operation: Operation[T], probe: Probe, wait: float) -> T:
        """Return the answer, asked for again when the probe is ready, for *wait* seconds or until the kit is closed."""
        deadline = monotonic() + wait
        answer = self._connection.execute(operation)
        with suppress(Closed):
            while not answer and (left := deadline - monotonic()) > 0 and self._connection.sleep(probe, left):
                answer = self._connection.execute(operation)
        return answer

    def enqueue(self, operation: Operation[Any], probe: Probe, wait: float) -> Any:
        """The enqueue, tried again whenever there may be room, for *wait* seconds."""
        deadline = monotonic() + wait
        while True:
            try:
                return self._connection.execute(operation)
            except QueueFull as error:
                if not (error.fits and self._connection.sleep(probe, max(0.0, deadline - monotonic()))):
                    raise

    def repeat(self, work: Callable[[], Any], probe: Probe) -> None:
        """Do *work* whenever *probe* is ready, until the kit is closed."""
        connection = self._connection
        connection.execute(probe)  # A kit that is closed says so; from here on, closing it is the end.
        try:
            while not connection.closing:
                try:
                    work()
                except PASSING:
                    continue
                if not connection.sleep(probe):
                    return
        except Closed:
            return

    def handling(self, task: Task[Any], done: Operation[bool] | None = None) -> "Handling":
        """Around the work on *task*; *done* is to take the place of the ack."""
        return Handling(self._connection, self._heartbeat, task, done)

    def close(self) -> None:
        """Settle every open iterator, and end the heartbeat."""
        for messages in list(self._opened):
            messages.settle()
        self._heartbeat.stop()


class Handling:
    """Keeps a task's lease while the body runs; then acks it, or does what the exception asks for."""

    def __init__(
        self, connection: Connection, heartbeat: Heartbeat, task: Task[Any], done: Operation[bool] | None
    ) -> None:
        self._connection = connection
        self._heartbeat = heartbeat
        self._task = task
        self._lease = of_task(task)
        self._done = done
        self._tracing = tracing(task)

    def __enter__(self) -> Task[Any]:
        self._heartbeat.add(self._lease)
        self._tracing.__enter__()
        return self._task

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self._tracing.__exit__(None, None, None)
        try:
            while True:
                try:
                    still_ours = self._connection.execute(outcome(self._task, error, self._done))
                    break
                except PASSING:
                    continue  # The work is done; losing the answer would have it done twice.
        finally:
            self._heartbeat.remove(self._lease)
        report(self._task, error, still_ours)
        return isinstance(error, Exception)

"""The loops that wait, for threads: subscriptions, deliveries, schedules and maintenance."""

import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakSet

from . import checks
from .errors import PASSING, Closed, QueueFull
from .feeds import Tasks
from .handling import outcome, report
from .heartbeat import Heartbeat, of_task
from .messages import Feed, Messages
from .operations import Operation, Probe
from .operations.claim import fresh_token
from .operations.coordination import AcquireLock, LockAhead
from .operations.maintenance import upkeep
from .operations.schedule import SchedulesAhead, Tick
from .outbox import Round, age_when_claimed, message_of, when_delivered
from .protocols import Connection
from .telemetry import tracing
from .values import Fire, Maintained, Message, Task

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
        """Return the answer, retried when the probe is ready, for *wait* seconds or until the kit is closed."""
        deadline = monotonic() + wait
        answer = self._connection.execute(operation)
        with suppress(Closed):
            while not answer and (left := deadline - monotonic()) > 0 and self._connection.sleep(probe, left):
                answer = self._connection.execute(operation)
        return answer

    def enqueue(self, operation: Operation[Any], probe: Probe, wait: float) -> Any:
        """Enqueue, retrying when there may be room, for *wait* seconds."""
        deadline = monotonic() + wait
        while True:
            try:
                return self._connection.execute(operation)
            except QueueFull as error:
                if not (error.fits and self._connection.sleep(probe, max(0.0, deadline - monotonic()))):
                    raise

    def repeat(self, work: Callable[[], Any], probe: Probe) -> None:
        """Run *work* whenever *probe* is ready, until the kit is closed."""
        connection = self._connection
        connection.execute(probe)  # Raises `Closed` for a closed kit; from here on, closing it ends the loop.
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
        """Return a context manager around the work on *task*, with *done* instead of the ack."""
        return Handling(self._connection, self._heartbeat, task, done)

    def close(self) -> None:
        """End every open iterator, and the heartbeat."""
        for messages in list(self._opened):
            messages.settle()
        self._heartbeat.stop()


class Handling:
    """A context that keeps a task's lease, then acks the task or does what the exception requests."""

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
                    continue  # The work is done; giving up would repeat it.
        finally:
            self._heartbeat.remove(self._lease)
        report(self._task, error, still_ours)
        return isinstance(error, Exception)


class Scheduler:
    """The scheduler of a kit; any number may run."""

    def __init__(self, connection: Connection, loops: Loops) -> None:
        self._connection = connection
        self._loops = loops

    def tick(self, now: int | None = None) -> list[Fire]:
        """Fire everything that is due at *now*, or at present."""
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


LOCK = "eventkit:maintenance"
"""The holder of this lock does the maintenance.  The lock expires instead of being released, once in each interval."""


class Housekeeping:
    """The maintenance of a database, in short transactions, between which other writers can proceed."""

    def __init__(self, connection: Connection, loops: Loops) -> None:
        self._connection = connection
        self._loops = loops

    def maintain(self) -> Maintained:
        """Run all operations of maintenance."""
        steps, answer = upkeep(), None
        try:
            while True:
                answer = self._connection.execute(steps.send(answer))
        except StopIteration as done:
            found: Maintained = done.value
            return found

    def run(self, every: int) -> None:
        """Maintain once in *every* milliseconds, in one of the processes, until the kit is closed."""

        def take_turn() -> None:
            turn = AcquireLock(LOCK, fresh_token(), checks.default_worker(), every)
            if self._connection.execute(turn) is not None:
                self.maintain()

        self._loops.repeat(take_turn, LockAhead(LOCK))


class Deliveries:
    """The workers of a kit's outboxes.  Closing the kit waits for deliveries in progress."""

    awaits = False
    """True if a callable may be a coroutine function."""

    def __init__(self, connection: Connection, loops: Loops) -> None:
        self._connection = connection
        self._loops = loops
        self._changed = threading.Condition()
        self._running: dict[Messages[Task[Any]], int] = {}

    def run(self, round: Round) -> None:
        """Deliver until the outbox is stopped or the kit is closed."""
        while not self._connection.closing:
            try:
                self._connection.execute(round.opening)
                break
            except PASSING:
                continue  # A transient error does not end a loop.
        tasks = self._loops.iterate(Tasks(round.rota, round.lookout))
        with self._changed:
            self._running[tasks] = threading.get_ident()
        try:
            for task in tasks:
                self._deliver(round, task)
                if self._connection.closing or round.lookout.stopped.is_set():
                    return
        finally:
            try:
                tasks.close()
            finally:
                with self._changed:
                    del self._running[tasks]
                    self._changed.notify_all()

    def rouse(self) -> None:
        """Wake all sleeping workers, which check whether to continue."""
        self._connection.rouse()

    def close(self) -> None:
        """Release claimed messages, and wait for deliveries in progress, except one that makes this call."""
        with self._changed:
            for tasks in list(self._running):
                tasks.settle()
            me = threading.get_ident()
            self._changed.wait_for(lambda: all(thread == me for thread in self._running.values()))

    def _deliver(self, round: Round, task: Task[Any]) -> None:
        began = monotonic()
        delivered = False
        try:
            with self._loops.handling(task, when_delivered(task, round.ordered)):
                _call(round, message_of(task))
                delivered = True
        finally:
            round.tally.count(delivered, age_when_claimed(task) + monotonic() - began)


def _call(round: Round, message: Message[Any]) -> None:
    answer = round.deliver(message)
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError("deliver returned an awaitable, which a sync kit cannot await: use connect_async")

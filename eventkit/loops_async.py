"""The loops that wait, for asyncio."""

import asyncio
import inspect
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakSet

from . import checks
from .errors import PASSING, Closed, QueueFull
from .feeds import Tasks
from .handling import outcome, report
from .heartbeat import AsyncHeartbeat, of_task
from .messages import AsyncMessages, Feed
from .operations import Operation, Probe
from .operations.claim import fresh_token
from .operations.coordination import AcquireLock, LockAhead
from .operations.maintenance import upkeep
from .operations.schedule import SchedulesAhead, Tick
from .outbox import Round, age_when_claimed, message_of, when_delivered
from .plans import completed
from .protocols import AsyncConnection
from .telemetry import tracing
from .values import Fire, Maintained, Message, Task

M = TypeVar("M")
T = TypeVar("T")


class AsyncLoops:
    """The loops of one kit."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._opened: WeakSet[AsyncMessages[Any]] = WeakSet()
        self._leaving: set[asyncio.Task[None]] = set()
        self._heartbeat = AsyncHeartbeat(connection)

    def iterate(self, feed: Feed[M]) -> AsyncMessages[M]:
        """Return an iterator over the items of *feed*."""
        return AsyncMessages(self._connection, feed, self._heartbeat, self._opened, self._leaving)

    async def attempt(self, operation: Operation[T], probe: Probe, wait: float) -> T:
        """Return the answer, retried when the probe is ready, for *wait* seconds or until the kit is closed."""
        deadline = monotonic() + wait
        answer = await self._connection.execute(operation)
        with suppress(Closed):
            while not answer and (left := deadline - monotonic()) > 0 and await self._connection.sleep(probe, left):
                answer = await self._connection.execute(operation)
        return answer

    async def enqueue(self, operation: Operation[Any], probe: Probe, wait: float) -> Any:
        """Enqueue, retrying when there may be room, for *wait* seconds."""
        deadline = monotonic() + wait
        while True:
            try:
                return await self._connection.execute(operation)
            except QueueFull as error:
                if not (error.fits and await self._connection.sleep(probe, max(0.0, deadline - monotonic()))):
                    raise

    async def repeat(self, work: Callable[[], Any], probe: Probe) -> None:
        """Run *work* whenever *probe* is ready, until the kit is closed."""
        connection = self._connection
        await connection.execute(probe)  # Raises `Closed` for a closed kit; from here on, closing it ends the loop.
        try:
            while not connection.closing:
                try:
                    await work()
                except PASSING:
                    continue
                if not await connection.sleep(probe):
                    return
        except Closed:
            return

    def handling(self, task: Task[Any], done: Operation[bool] | None = None) -> "AsyncHandling":
        """Return a context manager around the work on *task*, with *done* instead of the ack."""
        return AsyncHandling(self._connection, self._heartbeat, task, done)

    async def close(self) -> None:
        """End every open iterator, and those that are ending, and the heartbeat."""
        for messages in list(self._opened):
            await messages.settle()
        while self._leaving:
            await asyncio.wait(self._leaving)
        self._heartbeat.stop()


class AsyncHandling:
    """A context that keeps a task's lease, then acks the task or does what the exception requests."""

    def __init__(
        self, connection: AsyncConnection, heartbeat: AsyncHeartbeat, task: Task[Any], done: Operation[bool] | None
    ) -> None:
        self._connection = connection
        self._heartbeat = heartbeat
        self._task = task
        self._lease = of_task(task)
        self._done = done
        self._tracing = tracing(task)

    async def __aenter__(self) -> Task[Any]:
        self._heartbeat.add(self._lease)
        self._tracing.__enter__()
        return self._task

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self._tracing.__exit__(None, None, None)
        try:
            await completed(self._end(error))
        finally:
            self._heartbeat.remove(self._lease)
        return isinstance(error, Exception)

    async def _end(self, error: BaseException | None) -> None:
        while True:
            try:
                still_ours = await self._connection.execute(outcome(self._task, error, self._done))
                break
            except PASSING:
                continue  # The work is done; giving up would repeat it.
        report(self._task, error, still_ours)


class AsyncScheduler:
    """The scheduler of a kit; any number may run."""

    def __init__(self, connection: AsyncConnection, loops: AsyncLoops) -> None:
        self._connection = connection
        self._loops = loops

    async def tick(self, now: int | None = None) -> list[Fire]:
        """Fire everything that is due at *now*, or at present."""
        fires: list[Fire] = []
        while True:
            ticked = await self._connection.execute(Tick(now))
            fires += ticked.fires
            if not ticked.more:
                return fires
            now = ticked.moment

    async def run(self) -> None:
        """Tick whenever a schedule is due, until the kit is closed."""
        await self._loops.repeat(self.tick, SchedulesAhead())


LOCK = "eventkit:maintenance"
"""The holder of this lock does the maintenance.  The lock expires instead of being released, once in each interval."""


class AsyncHousekeeping:
    """The maintenance of a database, in short transactions, between which other writers can proceed."""

    def __init__(self, connection: AsyncConnection, loops: AsyncLoops) -> None:
        self._connection = connection
        self._loops = loops

    async def maintain(self) -> Maintained:
        """Run all operations of maintenance."""
        steps, answer = upkeep(), None
        try:
            while True:
                answer = await self._connection.execute(steps.send(answer))
        except StopIteration as done:
            found: Maintained = done.value
            return found

    async def run(self, every: int) -> None:
        """Maintain once in *every* milliseconds, in one of the processes, until the kit is closed."""

        async def take_turn() -> None:
            turn = AcquireLock(LOCK, fresh_token(), checks.default_worker(), every)
            if await self._connection.execute(turn) is not None:
                await self.maintain()

        await self._loops.repeat(take_turn, LockAhead(LOCK))


class AsyncDeliveries:
    """The workers of a kit's outboxes.  Closing the kit waits for deliveries in progress."""

    awaits = True
    """True if a callable may be a coroutine function."""

    def __init__(self, connection: AsyncConnection, loops: AsyncLoops) -> None:
        self._connection = connection
        self._loops = loops
        self._changed = asyncio.Condition()
        self._running: dict[AsyncMessages[Task[Any]], asyncio.Task[Any] | None] = {}

    async def run(self, round: Round) -> None:
        """Deliver until the outbox is stopped or the kit is closed."""
        while not self._connection.closing:
            try:
                await self._connection.execute(round.opening)
                break
            except PASSING:
                continue  # A transient error does not end a loop.
        tasks = self._loops.iterate(Tasks(round.rota, round.lookout))
        self._running[tasks] = asyncio.current_task()
        try:
            async for task in tasks:
                await self._deliver(round, task)
                if self._connection.closing or round.lookout.stopped.is_set():
                    return
        finally:
            try:
                await tasks.aclose()
            finally:
                del self._running[tasks]
                async with self._changed:
                    self._changed.notify_all()

    def rouse(self) -> None:
        """Wake all sleeping workers, which check whether to continue."""
        self._connection.rouse()

    async def close(self, caller: "asyncio.Task[Any] | None") -> None:
        """Release claimed messages, and wait for deliveries in progress, except one that *caller* makes."""
        async with self._changed:
            for tasks in list(self._running):
                await tasks.settle()
            await self._changed.wait_for(lambda: all(task is caller for task in self._running.values()))

    async def _deliver(self, round: Round, task: Task[Any]) -> None:
        began = monotonic()
        delivered = cancelled = False
        try:
            async with self._loops.handling(task, when_delivered(task, round.ordered)):
                cancelled = await _call(round, message_of(task))
                delivered = True
        finally:
            round.tally.count(delivered, age_when_claimed(task) + monotonic() - began)
        if cancelled:
            raise asyncio.CancelledError


async def _call(round: Round, message: Message[Any]) -> bool:
    """Deliver the message; return whether the call was cancelled meanwhile.  A blocking callable runs in a thread.

    A thread cannot be stopped, so its result counts: a message being delivered is not released to another worker.
    """
    cancelled = False
    if inspect.iscoroutinefunction(round.deliver):
        await round.deliver(message)
        return cancelled
    work = asyncio.ensure_future(asyncio.to_thread(round.deliver, message))
    try:
        answer = await asyncio.shield(work)
    except asyncio.CancelledError:
        cancelled = True
        await asyncio.wait({work})
        answer = work.result()
    if inspect.isawaitable(answer):
        await answer
    return cancelled

"""Everything that waits, for asyncio.  `loops` is the same for threads, and says why."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakSet

from .errors import PASSING, Closed, QueueFull
from .handling import outcome, report
from .heartbeat import AsyncHeartbeat, of_task
from .messages import AsyncMessages, Feed
from .operations import Operation, Probe
from .protocols import AsyncConnection
from .records import Task
from .stopping import completed
from .telemetry import tracing

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
        """Return the answer, asked for again when the probe is ready, for *wait* seconds or until the kit is closed."""
        deadline = monotonic() + wait
        answer = await self._connection.execute(operation)
        with suppress(Closed):
            while not answer and (left := deadline - monotonic()) > 0 and await self._connection.sleep(probe, left):
                answer = await self._connection.execute(operation)
        return answer

    async def enqueue(self, operation: Operation[Any], probe: Probe, wait: float) -> Any:
        """The enqueue, tried again whenever there may be room, for *wait* seconds."""
        deadline = monotonic() + wait
        while True:
            try:
                return await self._connection.execute(operation)
            except QueueFull as error:
                if not (error.fits and await self._connection.sleep(probe, max(0.0, deadline - monotonic()))):
                    raise

    async def repeat(self, work: Callable[[], Any], probe: Probe) -> None:
        """Do *work* whenever *probe* is ready, until the kit is closed."""
        connection = self._connection
        await connection.execute(probe)  # A kit that is closed says so; from here on, closing it is the end.
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
        """Around the work on *task*; *done* is to take the place of the ack."""
        return AsyncHandling(self._connection, self._heartbeat, task, done)

    async def close(self) -> None:
        """Settle every open iterator, and those that were left a moment ago, and end the heartbeat."""
        for messages in list(self._opened):
            await messages.settle()
        while self._leaving:
            await asyncio.wait(self._leaving)
        self._heartbeat.stop()


class AsyncHandling:
    """Keeps a task's lease while the body runs; then acks it, or does what the exception asks for."""

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
                continue  # The work is done; losing the answer would have it done twice.
        report(self._task, error, still_ours)

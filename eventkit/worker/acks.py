"""Telling the database what became of tasks, together where several have ended."""

import asyncio
import logging
from typing import Any

from ..operations import Operation
from ..operations.finish import AckMany, FinishMany, ReleaseMany
from ..operations.result import AckManyWithResults
from ..protocols import AsyncConnection
from ..records import Task
from .leases import Leases
from .metrics import Metrics
from .recovery import Recovery

logger = logging.getLogger("eventkit.worker")

_AT_ONCE = 1000
"""The most tasks that are acked in one transaction."""


class Acks:
    """What has ended, and whoever tells the database.

    One call is under way at a time; what ends meanwhile goes into the next.  So a task that ends alone is told of at
    once, and under load batches are as large as they have to be.  What is not told yet is told when the database is
    there again; if we die before, the task is done once more.
    """

    def __init__(self, connection: AsyncConnection, recovery: Recovery, leases: Leases, metrics: Metrics) -> None:
        self._connection = connection
        self._recovery = recovery
        self._leases = leases
        self._done: list[Task[Any]] = []
        self._results: dict[int, tuple[int, str, str]] = {}
        self._told: list[tuple[Task[Any], Operation[Any]]] = []
        self._telling: asyncio.Task[None] | None = None
        self._releasing: set[asyncio.Task[None]] = set()
        self._batches = metrics.acks.of()
        self._unsaid = metrics.unsaid.of()

    def __len__(self) -> int:
        return len(self._done) + len(self._told)

    def done(self, task: Task[Any], result: str | None = None) -> None:
        """*task* is done, with a *result* as JSON text or without one."""
        self._done.append(task)
        if result is not None:
            self._results[task.id] = (task.id, result, task.queue)
        if self._telling is None:
            self._begin()

    def tell(self, task: Task[Any], operation: Operation[Any]) -> None:
        """*task* has ended in another way."""
        self._told.append((task, operation))
        if self._telling is None:
            self._begin()

    async def settled(self) -> None:
        """Return when everything was told."""
        while telling := self._releasing | ({self._telling} if self._telling is not None else set()):
            await asyncio.wait(telling)

    def release(self, tasks: list[Task[Any]]) -> None:
        """Give back tasks that were not begun, all of them at once."""
        if tasks:
            releasing = asyncio.ensure_future(self._release(tasks))
            self._releasing.add(releasing)
            releasing.add_done_callback(self._releasing.discard)

    def abandon(self) -> None:
        """Tell nothing more: the leases of what was not told will lapse."""
        for telling in (*self._releasing, *([self._telling] if self._telling is not None else [])):
            telling.cancel()

    def _begin(self) -> None:
        self._telling = asyncio.ensure_future(self._tell())

    async def _tell(self) -> None:
        try:
            while self._done or self._told:
                done, self._done = self._done[:_AT_ONCE], self._done[_AT_ONCE:]
                told, self._told = self._told, []
                self._unsaid.value = len(done) + len(told) + len(self._done)
                if not told:
                    await self._ack(done)
                else:
                    await asyncio.gather(
                        *([self._ack(done)] if done else []), *(self._say(task, said) for task, said in told)
                    )
            self._unsaid.value = 0
        finally:
            self._telling = None

    async def _ack(self, tasks: list[Task[Any]]) -> None:
        held = sorted([(task.id, task.token) for task in tasks])
        results = [row for task in tasks if (row := self._results.pop(task.id, None))] if self._results else []
        careful = any([task.key is not None for task in tasks])
        operation: Operation[list[int]]
        if results:
            operation = AckManyWithResults(held, sorted(results), careful)
        else:
            operation = FinishMany(held) if careful else AckMany(held)
        finished = await self._through(operation, tasks)
        self._batches.value += 1
        if finished is not None and len(finished) < len(tasks):
            ours = set(finished)
            for task in tasks:
                if task.id not in ours:
                    _report_lost(task)
        for task in tasks:
            self._leases.drop(task)

    async def _release(self, tasks: list[Task[Any]]) -> None:
        held = sorted((task.id, task.token) for task in tasks)
        await self._through(ReleaseMany(held), tasks)
        for task in tasks:
            self._leases.drop(task)

    async def _say(self, task: Task[Any], operation: Operation[Any]) -> None:
        held = await self._through(operation, [task])
        if held is False:
            _report_lost(task)
        self._leases.drop(task)

    async def _through(self, operation: Operation[Any], tasks: list[Task[Any]]) -> Any:
        """The answer to *operation*; None if the database refuses it, so that the leases will lapse."""
        try:
            return await self._recovery.through(lambda: self._connection.execute(operation))
        except asyncio.CancelledError:
            raise
        except Exception:
            ids = ", ".join(str(task.id) for task in tasks)
            logger.exception("what became of the tasks %s could not be told: they are done again", ids)
            return None


def _report_lost(task: Task[Any]) -> None:
    logger.warning("task %s of queue %r was no longer ours when its work ended", task.id, task.queue)

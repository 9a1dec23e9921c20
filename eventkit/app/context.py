"""What a running task may ask for: itself, the kit, a transaction to end in, and whether it should go on.

A parameter annotated `TaskContext`, or `AsyncTaskContext` in an async function, is given one.
"""

import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from ..errors import LeaseLost, TaskCancelled
from ..protocols import AsyncEventKit, EventKit
from ..records import Task
from .progress import KEPT, plain, saved_under

_logger = logging.getLogger("eventkit.tasks")


class _Context:
    """What contexts of both flavours have in common: all but what reaches the database."""

    def __init__(self, task: Task[Any]) -> None:
        self.task = task
        self.settled = False
        self._cancelled = threading.Event()

    @property
    def attempt(self) -> int:
        """The number of this run, from 1."""
        return self.task.attempt

    @property
    def cancelled(self) -> bool:
        """Whether the task was cancelled while it ran."""
        return self._cancelled.is_set()

    def raise_if_cancelled(self) -> None:
        """End here, with `TaskCancelled`, if the task was cancelled."""
        if self.cancelled:
            raise TaskCancelled(self.task.id)

    def cancel(self) -> None:
        """Tell the task that it was cancelled; the worker does."""
        self._cancelled.set()

    @property
    def logger(self) -> "logging.LoggerAdapter[logging.Logger]":
        """The logger ``eventkit.tasks``, whose records have the task's id, queue and attempt."""
        task = self.task
        name = task.payload.get("task") if isinstance(task.payload, dict) else None
        fields = {"task_id": task.id, "task_name": name, "queue": task.queue, "attempt": task.attempt}
        return logging.LoggerAdapter(_logger, fields)

    def _lost(self) -> LeaseLost:
        return LeaseLost(
            f"task {self.task.id} is no longer ours, so its transaction was rolled back: give its queue a longer lease"
        )


class TaskContext(_Context):
    """The context of a function that blocks."""

    def __init__(self, task: Task[Any], kit: EventKit) -> None:
        super().__init__(task)
        self.kit = kit

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A transaction for ``tx=`` that acks the task when it is committed: its effects come about exactly once.

        If the lease has run out meanwhile, it is rolled back and `LeaseLost` is raised.
        """
        with self.kit.transaction() as tx:
            yield tx
            if not self.kit.queue(self.task.queue).ack(self.task, tx=tx):
                raise self._lost()
        self.settled = True

    def progress(self, fraction: float, note: str = "") -> None:
        """Say how far the task is, for `TaskHandle.progress` and the command line."""
        self.kit.results.save(saved_under(self.task.id), plain(fraction, note), ttl=KEPT)


class AsyncTaskContext(_Context):
    """The context of an async function."""

    def __init__(self, task: Task[Any], kit: AsyncEventKit) -> None:
        super().__init__(task)
        self.kit = kit

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """A transaction for ``tx=`` that acks the task when it is committed: its effects come about exactly once.

        If the lease has run out meanwhile, it is rolled back and `LeaseLost` is raised.
        """
        async with self.kit.transaction() as tx:
            yield tx
            if not await self.kit.queue(self.task.queue).ack(self.task, tx=tx):
                raise self._lost()
        self.settled = True

    async def progress(self, fraction: float, note: str = "") -> None:
        """Say how far the task is, for `AsyncTaskHandle.progress` and the command line."""
        await self.kit.results.save(saved_under(self.task.id), plain(fraction, note), ttl=KEPT)

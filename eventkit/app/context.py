"""`TaskContext`: the running task, its kit, its transaction, its progress and its cancellation."""

import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec

from ..errors import LeaseLost, TaskCancelled
from ..protocols import AsyncEventKit, EventKit
from ..values import Task

KEPT = 86_400
"""The seconds for which progress is kept after its last update."""


class Progress(msgspec.Struct, frozen=True):
    """The progress of a task: a *fraction* from 0 to 1, and a *note*."""

    fraction: float
    note: str = ""


def saved_under(id: int) -> str:
    """Return the id of the result that holds the progress of a task."""
    return f"eventkit:progress:{id}"


def plain(fraction: float, note: str) -> dict[str, Any]:
    """Return progress in the form in which it is saved."""
    if isinstance(fraction, bool) or not isinstance(fraction, int | float):
        raise TypeError(f"progress is a fraction from 0 to 1, not {type(fraction).__name__}")
    if not 0 <= fraction <= 1:
        raise ValueError(f"progress is a fraction from 0 to 1, not {fraction!r}")
    if not isinstance(note, str):
        raise TypeError(f"the note of a progress is text, not {type(note).__name__}")
    return {"fraction": fraction, "note": note}


def read(saved: Any) -> Progress | None:
    """Return the saved progress; None if there is none."""
    return None if saved is None else msgspec.convert(saved, Progress)


_logger = logging.getLogger("eventkit.tasks")


class _Context:
    """The common part of both contexts: everything but access to the database."""

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
        """True if the task was cancelled while it ran."""
        return self._cancelled.is_set()

    def raise_if_cancelled(self) -> None:
        """Raise `TaskCancelled` if the task was cancelled."""
        if self.cancelled:
            raise TaskCancelled(self.task.id)

    def cancel(self) -> None:
        """Record that the task was cancelled.  The worker calls it."""
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
            f"the lease of task {self.task.id} ran out, so its work was rolled back: give its queue a longer lease"
        )


class TaskContext(_Context):
    """The context of a function that blocks."""

    def __init__(self, task: Task[Any], kit: EventKit) -> None:
        super().__init__(task)
        self.kit = kit

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Open a transaction for ``tx=`` that acks the task when it commits, so that its effects happen exactly once.

        If the lease has run out meanwhile, it rolls back and raises `LeaseLost`.
        """
        with self.kit.transaction() as tx:
            yield tx
            if not self.kit.queue(self.task.queue).ack(self.task, tx=tx):
                raise self._lost()
        self.settled = True

    def progress(self, fraction: float, note: str = "") -> None:
        """Save the task's progress, for `TaskHandle.progress` and the command line."""
        self.kit.results.save(saved_under(self.task.id), plain(fraction, note), ttl=KEPT)


class AsyncTaskContext(_Context):
    """The context of an async function."""

    def __init__(self, task: Task[Any], kit: AsyncEventKit) -> None:
        super().__init__(task)
        self.kit = kit

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """Open a transaction for ``tx=`` that acks the task when it commits, so that its effects happen exactly once.

        If the lease has run out meanwhile, it rolls back and raises `LeaseLost`.
        """
        async with self.kit.transaction() as tx:
            yield tx
            if not await self.kit.queue(self.task.queue).ack(self.task, tx=tx):
                raise self._lost()
        self.settled = True

    async def progress(self, fraction: float, note: str = "") -> None:
        """Save the task's progress, for `AsyncTaskHandle.progress` and the command line."""
        await self.kit.results.save(saved_under(self.task.id), plain(fraction, note), ttl=KEPT)

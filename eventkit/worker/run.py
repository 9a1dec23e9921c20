"""One call of a task's function: the routine it runs, and the failures that the worker itself detects."""

import asyncio
import contextvars
from collections.abc import Coroutine
from time import monotonic
from types import NoneType
from typing import Any

from ..app.context import AsyncTaskContext, TaskContext
from ..app.declarations import TaskDeclaration
from ..handling import Retry
from ..metrics import Number
from ..protocols import AsyncEventKit, EventKit
from ..values import Task
from .metrics import Metrics

CRASHED = "CRASHED"
"""The beginning of the error of a task that has crashed its process, and is not to run again."""


class Timeout(Retry):
    """The run took longer than its declaration allows."""

    def __init__(self, seconds: float) -> None:
        super().__init__(error=f"timed out after {seconds:g} s")


class Crashed(Retry):
    """The process of the task has died."""

    def __init__(self, how: str) -> None:
        super().__init__(error=how)


class Failed(Retry):
    """The function raised an exception in another process that could not be transferred."""

    def __init__(self, text: str) -> None:
        super().__init__(error=text)


OUTCOMES = ("succeeded", "retried", "dead", "snoozed", "released", "cancelled")
"""The outcomes of a run, as named in metrics."""


class Kits:
    """The kits of contexts: one for async functions, one for those that block."""

    def __init__(self, awaited: AsyncEventKit, blocking: EventKit | None) -> None:
        self.awaited = awaited
        self.blocking = blocking

    def context(self, task: Task[Any], is_async: bool) -> Any:
        """Return a context for *task*."""
        if is_async:
            return AsyncTaskContext(task, self.awaited)
        assert self.blocking is not None, "a worker with blocking functions that have a context has a blocking kit"
        return TaskContext(task, self.blocking)


class Routine:
    """The code and the settings of the tasks with one name."""

    def __init__(self, declaration: TaskDeclaration, metrics: Metrics) -> None:
        self.declaration = declaration
        self.name = declaration.name
        self.function = declaration.function
        self.batch = declaration.batch
        self.timeout = declaration.timeout
        self.apart = declaration.isolation == "process"
        self.inline = declaration.is_async
        self.context = declaration.signature.context
        self.silent = declaration.signature.returns in (None, NoneType, Any)
        """True if a returned None is not saved as a result."""
        self._ended = {name: metrics.ended.of(declaration.queue, declaration.name, name) for name in OUTCOMES}
        self.succeeded = self._ended["succeeded"]
        self.seconds = metrics.seconds.of(declaration.queue, declaration.name)

    def ended(self, outcome: str) -> Number:
        """Return the counter of runs with this outcome."""
        return self._ended[outcome]


CANCELLED, TIMEOUT, SHUTDOWN = "cancelled", "timeout", "shutdown"
"""The reasons to stop a run: its task was deleted or lost; it takes too long; the worker ends."""


class Run:
    """One call of a task's function, for one task or a batch of them, from the claim to its end."""

    __slots__ = (
        "arguments",
        "began",
        "context",
        "coroutine",
        "got",
        "over",
        "routine",
        "runner",
        "settled_apart",
        "span",
        "stopped",
        "stuck",
        "tasks",
        "timer",
        "variables",
    )

    def __init__(self, tasks: list[Task[Any]], routine: Routine, got: float) -> None:
        self.tasks = tasks
        self.routine = routine
        self.got = got
        self.context: Any = None
        self.runner: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.span: Any = None
        self.stopped: str | None = None
        self.over = False
        """True if the end was reported already, although the function still runs."""
        self.stuck = False
        """True if the function still runs although it was stopped, and keeps its slot."""
        self.settled_apart = False
        self.began = 0.0
        self.arguments: dict[str, Any]
        self.coroutine: Coroutine[Any, Any, Any]
        self.variables: contextvars.Context

    @property
    def settled(self) -> bool:
        """True if the function has acked its task itself, in a transaction of its own."""
        return self.settled_apart or (self.context is not None and self.context.settled)

    def expired(self, task: Task[Any]) -> bool:
        """Return whether *task* has expired: by the database's clock at the claim, plus the time since then."""
        if task.expires_ms is None:
            return False
        claimed_ms = task.lease_expires_ms - task.lease_ms
        return claimed_ms + (monotonic() - self.got) * 1000 >= task.expires_ms


def fields(task: Task[Any], routine: Routine | None) -> dict[str, Any]:
    """Return the fields of log records about *task*; the name is empty if it has no declaration."""
    name = "" if routine is None else routine.name
    return {"task_id": task.id, "task_name": name, "queue": task.queue, "attempt": task.attempt}

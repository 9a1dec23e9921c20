"""A declared task as a worker does it: whatever can be looked up once, is."""

from types import NoneType
from typing import Any

from ..app.context import AsyncTaskContext, TaskContext
from ..app.declarations import TaskDeclaration
from ..metrics import Number
from ..protocols import AsyncEventKit, EventKit
from ..records import Task
from .metrics import Metrics

OUTCOMES = ("succeeded", "retried", "dead", "snoozed", "released", "cancelled")
"""How a run may end, as metrics name it."""


class Kits:
    """The kits that contexts have: one for async functions, one for those that block."""

    def __init__(self, awaited: AsyncEventKit, blocking: EventKit | None) -> None:
        self.awaited = awaited
        self.blocking = blocking

    def context(self, task: Task[Any], is_async: bool) -> Any:
        """A context for *task*."""
        if is_async:
            return AsyncTaskContext(task, self.awaited)
        assert self.blocking is not None, "whoever has functions with contexts that block is given a kit for them"
        return TaskContext(task, self.blocking)


class Routine:
    """How the tasks of one name are done."""

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
        """Whether None is no result to be saved."""
        self._ended = {name: metrics.ended.of(declaration.queue, declaration.name, name) for name in OUTCOMES}
        self.succeeded = self._ended["succeeded"]
        self.seconds = metrics.seconds.of(declaration.queue, declaration.name)

    def ended(self, outcome: str) -> Number:
        """The count of runs that ended like this."""
        return self._ended[outcome]

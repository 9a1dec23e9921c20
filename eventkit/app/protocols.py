"""Declared tasks as types, in both flavours.

`App.task` returns a `TaskFunction`, whose calls block; `AsyncApp.task` an `AsyncTaskFunction`, whose calls are awaited.
Both have the same names, arguments and results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, ParamSpec, Protocol, TypeVar

from ..checks import Duration
from ..values import NewTask
from .context import Progress
from .declarations import TaskDeclaration

P = ParamSpec("P")
C_co = TypeVar("C_co", covariant=True)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class TaskHandle(Protocol[R_co]):
    """An enqueued task: its *id*, and whether this call *created* it or found its key taken by it."""

    id: int
    created: bool

    def result(self, timeout: Duration) -> R_co:
        """Wait for the task, and return its result; raise `TaskFailed` or, after *timeout* seconds, `TimedOut`.

        Raise ``TypeError`` for a function that returns None by its annotation, because it saves no result.
        """
        ...

    def status(self) -> str:
        """Return ``scheduled ready leased dead done``; ``gone`` if it is done and not kept, cancelled or purged."""
        ...

    def cancel(self, running: bool = False) -> bool:
        """Delete the task if it waits, or with *running* also if it runs; return False if there is none."""
        ...

    def progress(self) -> Progress | None:
        """Return the task's last saved progress; None if there is none."""
        ...


class AsyncTaskHandle(Protocol[R_co]):
    """`TaskHandle`, awaited."""

    id: int
    created: bool

    async def result(self, timeout: Duration) -> R_co: ...

    async def status(self) -> str: ...

    async def cancel(self, running: bool = False) -> bool: ...

    async def progress(self) -> Progress | None: ...


class TaskFunction(Protocol[P, C_co, R]):
    """A function that was declared as a task.  Calling it calls the function directly."""

    @property
    def declaration(self) -> TaskDeclaration:
        """The declaration of the task."""
        ...

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C_co: ...

    def enqueue(
        self,
        *args: Any,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        expires: Duration | datetime | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        wait: Duration | None = None,
        tx: Any = None,
        **arguments: Any,
    ) -> TaskHandle[R]:
        """Enqueue a call with these arguments; the options are those of `TaskQueue.enqueue`.

        Raise ``TypeError`` if the names or the types of the arguments do not match the function.
        """
        ...

    def enqueue_many(self, items: Iterable[Mapping[str, Any] | NewTask], tx: Any = None) -> list[TaskHandle[R]]:
        """Enqueue several calls, all or none; each item has the arguments by name, or is made by `new`."""
        ...

    def new(
        self,
        *args: Any,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        expires: Duration | datetime | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> NewTask:
        """Return the task that `enqueue` would enqueue, as a value for `enqueue_many`."""
        ...

    def handle(self, id: int) -> TaskHandle[R]:
        """Return the handle of a task that was enqueued before."""
        ...


class AsyncTaskFunction(Protocol[P, C_co, R]):
    """`TaskFunction`, whose calls to the database are awaited."""

    @property
    def declaration(self) -> TaskDeclaration: ...

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C_co: ...

    async def enqueue(
        self,
        *args: Any,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        expires: Duration | datetime | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        wait: Duration | None = None,
        tx: Any = None,
        **arguments: Any,
    ) -> AsyncTaskHandle[R]: ...

    async def enqueue_many(
        self, items: Iterable[Mapping[str, Any] | NewTask], tx: Any = None
    ) -> list[AsyncTaskHandle[R]]: ...

    def new(
        self,
        *args: Any,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        expires: Duration | datetime | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> NewTask: ...

    def handle(self, id: int) -> AsyncTaskHandle[R]: ...


class Runs(Protocol):
    """The worker that `App.worker` returns, as far as starting and stopping it."""

    def run(self) -> int:
        """Run until a signal arrives; return the exit code."""
        ...

    async def serve(self) -> None:
        """Run in the current event loop until it is stopped."""
        ...

    def stop(self) -> None:
        """Finish the running tasks, start no others, and end."""
        ...

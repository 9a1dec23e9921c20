"""What a declared task is, as types, in both flavours.

`App.task` gives a `TaskFunction`, whose calls block; `AsyncApp.task` an `AsyncTaskFunction`, whose calls are awaited.
Both have the same names, arguments and results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, ParamSpec, Protocol, TypeVar

from ..arguments import Duration
from ..records import NewTask
from .declarations import TaskDeclaration
from .progress import Progress

P = ParamSpec("P")
C_co = TypeVar("C_co", covariant=True)
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class TaskHandle(Protocol[R_co]):
    """A task that was enqueued: *id*, and whether this call *created* it or found its key taken by it."""

    id: int
    created: bool

    def result(self, timeout: Duration) -> R_co:
        """What the function returned, as soon as it has; `TaskFailed` when it died, `TimedOut` after *timeout* seconds.

        What returns None by its annotation leaves no result to wait for: a ``TypeError``.
        """
        ...

    def status(self) -> str:
        """``scheduled ready leased dead done``; ``gone`` if it is done and not kept, or was cancelled or purged."""
        ...

    def cancel(self, running: bool = False) -> bool:
        """Delete the task if it waits, or with *running* if it is being run too; False if it does not."""
        ...

    def progress(self) -> Progress | None:
        """How far it said last that it is; None if it has not."""
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
    """A function that was declared as a task.  Calling it calls the function, here and now."""

    @property
    def declaration(self) -> TaskDeclaration:
        """What was declared of it."""
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
        """Have a worker call it with these arguments; the options are those of `TaskQueue.enqueue`.

        ``TypeError`` if the function would not take the arguments, by their names or by their types.
        """
        ...

    def enqueue_many(self, items: Iterable[Mapping[str, Any] | NewTask], tx: Any = None) -> list[TaskHandle[R]]:
        """Enqueue several, all or none: of each the arguments by name, or what `new` gives."""
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
        """What `enqueue` would enqueue, as a value: for `enqueue_many`."""
        ...

    def handle(self, id: int) -> TaskHandle[R]:
        """The handle of a task that was enqueued before."""
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
    """What `App.worker` gives, as far as starting and stopping it goes."""

    def run(self) -> int:
        """Work until a signal comes; the exit code."""
        ...

    async def serve(self) -> None:
        """Work until it is stopped, in the running event loop."""
        ...

    def stop(self) -> None:
        """Let what runs finish, begin nothing new, and end."""
        ...

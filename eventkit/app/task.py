"""A declared task: `TaskFunction` to call or enqueue it, `TaskHandle` once it is enqueued, `TaskContext` while it runs.

The types come in both flavours, of `App` and of `AsyncApp`, whose calls are awaited; both have one implementation.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from functools import update_wrapper
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypedDict, TypeVar, Unpack

import msgspec

from ..checks import Duration, count
from ..errors import LeaseLost, TaskCancelled
from ..protocols import AsyncEventKit, EventKit
from ..values import NewTask, Task, TaskState

if TYPE_CHECKING:
    from .declarations import TaskDeclaration

P = ParamSpec("P")
Q = ParamSpec("Q")
C_co = TypeVar("C_co", covariant=True)
R = TypeVar("R")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
One_co = TypeVar("One_co", covariant=True)
Many_co = TypeVar("Many_co", covariant=True)
H_co = TypeVar("H_co", covariant=True)

KEPT = 86_400
"""The seconds for which progress is kept after its last update."""

_logger = logging.getLogger("eventkit.tasks")


class Progress(msgspec.Struct, frozen=True):
    """The progress of a task: a *fraction* from 0 to 1, and a *note*."""

    fraction: float
    note: str = ""


def progress_id(id: int) -> str:
    """Return the id of the result that holds the progress of a task."""
    return f"eventkit:progress:{id}"


def progress_value(fraction: float, note: str) -> dict[str, Any]:
    """Return progress in the form in which it is saved."""
    if isinstance(fraction, bool) or not isinstance(fraction, int | float):
        raise TypeError(f"progress is a fraction from 0 to 1, not {type(fraction).__name__}")
    if not 0 <= fraction <= 1:
        raise ValueError(f"progress is a fraction from 0 to 1, not {fraction!r}")
    if not isinstance(note, str):
        raise TypeError(f"the note of a progress is text, not {type(note).__name__}")
    return {"fraction": fraction, "note": note}


class TaskHandle(Protocol[R_co]):
    """An enqueued task: its *id*, and whether this call *created* it or found its key taken by it."""

    id: int
    created: bool

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the task, and return its result; raise `TaskFailed` or, after *timeout* seconds, `TimedOut`.

        Raise ``TypeError`` for a function that saves no result: it returns None by its annotation, or its
        ``result_ttl`` is 0.
        """
        ...

    def status(self) -> TaskState | Literal["gone"]:
        """Return ``scheduled ready running dead done``; ``gone`` if it is done and not kept, cancelled or purged."""
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

    async def result(self, timeout: Duration | None = None) -> R_co: ...

    async def status(self) -> TaskState | Literal["gone"]: ...

    async def cancel(self, running: bool = False) -> bool: ...

    async def progress(self) -> Progress | None: ...


class CallOptions(TypedDict, total=False):
    """The options of an enqueued call, which are those of `TaskQueue.enqueue`."""

    delay: Duration | None
    run_at: datetime | None
    priority: int
    max_attempts: int | None
    expires: Duration | datetime | None
    key: str | None
    headers: Mapping[str, str] | None
    group: str | None
    wait: Duration | None
    tx: Any


class TaskCall(Protocol[Q, One_co]):
    """A declared task, to be enqueued with the arguments of its function."""

    def enqueue(self, *args: Q.args, **kwargs: Q.kwargs) -> One_co:
        """Enqueue a call; raise ``TypeError`` if the names or the types of the arguments do not match the function."""
        ...

    def new(self, *args: Q.args, **kwargs: Q.kwargs) -> NewTask:
        """Return the task that `enqueue` would enqueue, as a value for `TaskFunction.enqueue_many`."""
        ...


class _Declared(TaskCall[Q, One_co], Protocol[P, Q, C_co, One_co, Many_co, H_co]):
    """The calls of a declared task, with answers of either flavour; the context is no argument of `enqueue`."""

    @property
    def declaration(self) -> TaskDeclaration:
        """The declaration of the task."""
        ...

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C_co: ...

    def options(self, **options: Unpack[CallOptions]) -> TaskCall[Q, One_co]:
        """Return this task with options for its next calls: ``task.options(delay=30).enqueue(to="ann")``."""
        ...

    def enqueue_many(self, items: Iterable[Mapping[str, Any] | NewTask], *, tx: Any = None) -> Many_co:
        """Enqueue several calls, all or none; each item has the arguments by name, or is made by `new`."""
        ...

    def handle(self, id: int) -> H_co:
        """Return the handle of a task that was enqueued before."""
        ...


class TaskFunction(_Declared[P, Q, C_co, TaskHandle[R], list[TaskHandle[R]], TaskHandle[R]], Protocol[P, Q, C_co, R]):
    """A function that was declared as a task.  Calling it calls the function directly.

    Type checkers know that `enqueue` takes no context if the context is the first parameter of the function.
    """


class AsyncTaskFunction(
    _Declared[
        P,
        Q,
        C_co,
        Coroutine[Any, Any, AsyncTaskHandle[R]],
        Coroutine[Any, Any, list[AsyncTaskHandle[R]]],
        AsyncTaskHandle[R],
    ],
    Protocol[P, Q, C_co, R],
):
    """`TaskFunction`, whose calls to the database are awaited."""


class Context:
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
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """The logger ``eventkit.tasks``, whose records have the task's id, queue and attempt."""
        task = self.task
        name = task.payload.get("task") if isinstance(task.payload, dict) else None
        fields = {"task_id": task.id, "task_name": name, "queue": task.queue, "attempt": task.attempt}
        return logging.LoggerAdapter(_logger, fields)

    def _lost(self) -> LeaseLost:
        return LeaseLost(
            f"the lease of task {self.task.id} ran out, so its work was rolled back: give its queue a longer lease"
        )


class TaskContext(Context):
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
        self.kit.results.save(progress_id(self.task.id), progress_value(fraction, note), ttl=KEPT)


class AsyncTaskContext(Context):
    """The context of an async function."""

    def __init__(self, task: Task[Any], kit: AsyncEventKit) -> None:
        super().__init__(task)
        self.kit = kit

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """Open the transaction that `TaskContext.transaction` describes."""
        async with self.kit.transaction() as tx:
            yield tx
            if not await self.kit.queue(self.task.queue).ack(self.task, tx=tx):
                raise self._lost()
        self.settled = True

    async def progress(self, fraction: float, note: str = "") -> None:
        """Save the task's progress, for `AsyncTaskHandle.progress` and the command line."""
        await self.kit.results.save(progress_id(self.task.id), progress_value(fraction, note), ttl=KEPT)


def then(answer: Any, change: Callable[[Any], Any]) -> Any:
    """Return *change* applied to an answer: now, or once it is awaited."""

    async def later() -> Any:
        return change(await answer)

    return later() if hasattr(answer, "__await__") else change(answer)


def reached(kit: Any, use: Callable[[Any], Any]) -> Any:
    """Return *use* applied to a kit: now, or once the kit is connected and the answer is awaited."""

    async def later() -> Any:
        return await use(await kit)

    return later() if hasattr(kit, "__await__") else use(kit)


def is_async(kit: Any) -> bool:
    """Return whether the kit's calls are awaited."""
    return hasattr(kit, "__aenter__")


async def now(answer: Any) -> Any:
    """Return an answer of a kit of either flavour."""
    return await answer if hasattr(answer, "__await__") else answer


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return the answer of *work*, which awaits only a kit that blocks, and so never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    raise RuntimeError("a call of a kit that blocks cannot be awaited")


class Handle:
    """The implementation of `TaskHandle` and `AsyncTaskHandle`."""

    def __init__(self, kit: Callable[[], Any], declaration: TaskDeclaration, id: int, created: bool) -> None:
        self._kit = kit
        self._declaration = declaration
        self.id = count("id", id)
        self.created = created

    def __repr__(self) -> str:
        return f"<task {self.id} of {self._declaration.name!r}>"

    def result(self, timeout: Duration | None = None) -> Any:
        """Wait for the task, and return what its function returned."""
        name, returns = self._declaration.name, self._declaration.signature.returns
        if self._declaration.result_ttl == 0:
            raise TypeError(f"{name} saves no result, because its result_ttl is 0: give it a longer one")
        if returns in (None, NoneType):
            raise TypeError(f"{name} returns None by its annotation and saves no result: let it return something")

        def read(value: Any) -> Any:
            try:
                return msgspec.convert(value, returns, str_keys=True)
            except msgspec.ValidationError as error:
                raise TypeError(f"{name} has returned a value that does not match its annotation: {error}") from None

        return then(reached(self._kit(), lambda kit: kit.results.wait(self.id, timeout)), read)

    def status(self) -> Any:
        """Return the task's state; ``gone`` if the task no longer exists."""
        info = reached(self._kit(), lambda kit: kit.queue(self._declaration.queue).get(self.id))
        return then(info, lambda info: "gone" if info is None else info.state)

    def cancel(self, running: bool = False) -> Any:
        """Delete the task if it waits, or with *running* also if it runs."""
        return reached(self._kit(), lambda kit: kit.queue(self._declaration.queue).cancel(self.id, running))

    def progress(self) -> Any:
        """Return the task's last saved progress."""
        saved = reached(self._kit(), lambda kit: kit.results.get(progress_id(self.id)))
        return then(saved, lambda saved: None if saved is None else msgspec.convert(saved, Progress))


class Call:
    """The implementation of `TaskCall`."""

    def __init__(self, declaration: TaskDeclaration, kit: Callable[[], Any], options: Mapping[str, Any]) -> None:
        self.declaration = declaration
        self._kit = kit
        self._options = options

    def enqueue(self, /, *args: Any, **arguments: Any) -> Any:
        """Enqueue a call with these arguments."""
        payload, options = self._call(args, arguments)
        answer = reached(self._kit(), lambda kit: kit.queue(self.declaration.queue).enqueue(payload, **options))
        return then(answer, lambda enqueued: Handle(self._kit, self.declaration, *enqueued))

    def new(self, /, *args: Any, **arguments: Any) -> NewTask:
        """Return the task that `enqueue` would enqueue, as a value."""
        if given := [name for name in ("wait", "tx") if name in self._options]:
            raise TypeError(f"new() enqueues nothing: pass {given[0]}= where the task is enqueued")
        payload, options = self._call(args, arguments)
        return NewTask(payload, queue=self.declaration.queue, **options)

    def _call(self, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the payload of a call, and its options, with those of the declaration for omitted ones."""
        declaration, signature, options = self.declaration, self.declaration.signature, dict(self._options)
        payload = {"task": declaration.name, "args": signature.encode(args, given)}
        if options.get("key") is None and (key := declaration.key) is not None:
            named = {**signature.defaults(), **signature.bind(args, given)}
            options["key"] = key.format_map(named) if isinstance(key, str) else key(**named)
        for name in ("max_attempts", "expires"):
            if options.get(name) is None:
                options[name] = getattr(declaration, name)
        options.setdefault("priority", declaration.priority)
        return payload, options


class Function(Call):
    """The implementation of `TaskFunction` and `AsyncTaskFunction`."""

    __name__: str
    __qualname__: str

    def __init__(self, declaration: TaskDeclaration, kit: Callable[[], Any]) -> None:
        super().__init__(declaration, kit, {})
        update_wrapper(self, declaration.function)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.declaration.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task function {self.declaration.name!r}>"

    def __reduce__(self) -> str:
        return self.__qualname__

    def options(self, **options: Any) -> Call:
        """Return this task with options for its next calls."""
        if unknown := options.keys() - (known := CallOptions.__annotations__).keys():
            raise TypeError(f"a call has no option {min(unknown)!r}; the options are: {', '.join(known)}")
        return Call(self.declaration, self._kit, options)

    def enqueue_many(self, items: Iterable[Mapping[str, Any] | NewTask], *, tx: Any = None) -> Any:
        """Enqueue several calls, all or none."""
        new = [item if isinstance(item, NewTask) else self.new(**item) for item in items]
        for task in new:
            if not isinstance(task.payload, dict) or task.payload.get("task") != self.declaration.name:
                raise ValueError(
                    f"{self.declaration.name}: the task belongs to another function: make it with {self.__name__}.new()"
                )
        answers = reached(self._kit(), lambda kit: kit.queue(self.declaration.queue).enqueue_many(new, tx=tx))
        return then(answers, lambda answers: [Handle(self._kit, self.declaration, *answer) for answer in answers])

    def handle(self, id: int) -> Handle:
        """Return the handle of a task that was enqueued before."""
        return Handle(self._kit, self.declaration, id, False)

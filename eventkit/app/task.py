"""`TaskFunction` and `TaskHandle`: a declared task, to be called or enqueued, and an enqueued task."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from functools import update_wrapper
from types import NoneType
from typing import Any

import msgspec

from ..checks import Duration, count
from ..values import NewTask
from .context import read, saved_under
from .declarations import TaskDeclaration


def then(answer: Any, change: Callable[[Any], Any]) -> Any:
    """Return *change* applied to an answer: now, or once it is awaited."""
    return _awaited(answer, change) if hasattr(answer, "__await__") else change(answer)


def reached(kit: Any, use: Callable[[Any], Any]) -> Any:
    """Return *use* applied to a kit: now, or once the kit is connected and the answer is awaited."""
    return _connected(kit, use) if hasattr(kit, "__await__") else use(kit)


async def _connected(kit: Awaitable[Any], use: Callable[[Any], Any]) -> Any:
    return await use(await kit)


async def _awaited(answer: Awaitable[Any], change: Callable[[Any], Any]) -> Any:
    return change(await answer)


class Handle:
    """The implementation of `TaskHandle` and `AsyncTaskHandle`."""

    def __init__(self, kit: Callable[[], Any], declaration: TaskDeclaration, id: int, created: bool) -> None:
        self._kit = kit
        self._declaration = declaration
        self.id = count("id", id)
        self.created = created

    def __repr__(self) -> str:
        return f"<task {self.id} of {self._declaration.name!r}>"

    def result(self, timeout: Duration) -> Any:
        """Wait for the task, and return what its function returned."""
        name, returns = self._declaration.name, self._declaration.signature.returns
        if returns in (None, NoneType):
            raise TypeError(f"{name} returns None by its annotation and saves no result: let it return something")
        value = reached(self._kit(), lambda kit: kit.results.wait(self.id, timeout))
        return then(value, lambda value: _read(name, value, returns))

    def status(self) -> Any:
        """Return the task's state; ``gone`` if the task no longer exists."""
        info = reached(self._kit(), lambda kit: kit.queue(self._declaration.queue).get(self.id))
        return then(info, lambda info: "gone" if info is None else info.state)

    def cancel(self, running: bool = False) -> Any:
        """Delete the task if it waits, or with *running* also if it runs."""
        return reached(self._kit(), lambda kit: kit.queue(self._declaration.queue).cancel(self.id, running))

    def progress(self) -> Any:
        """Return the task's last saved progress."""
        return then(reached(self._kit(), lambda kit: kit.results.get(saved_under(self.id))), read)


def _read(name: str, value: Any, returns: Any) -> Any:
    try:
        return msgspec.convert(value, returns, str_keys=True)
    except msgspec.ValidationError as error:
        raise TypeError(f"{name} has returned a value that does not match its annotation: {error}") from None


class Function:
    """The implementation of `TaskFunction` and `AsyncTaskFunction`."""

    __name__: str
    __qualname__: str

    def __init__(self, declaration: TaskDeclaration, kit: Callable[[], Any]) -> None:
        self.declaration = declaration
        self._kit = kit
        update_wrapper(self, declaration.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.declaration.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task function {self.declaration.name!r}>"

    def __reduce__(self) -> str:
        return self.__qualname__

    def enqueue(
        self,
        /,
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
    ) -> Any:
        """Enqueue a call with these arguments."""
        payload, key, max_attempts = self._prepared(args, arguments, key, max_attempts)
        options = {
            "delay": delay,
            "run_at": run_at,
            "priority": priority,
            "max_attempts": max_attempts,
            "expires": expires,
            "key": key,
            "headers": headers,
            "wait": wait,
            "tx": tx,
        }
        answer = reached(self._kit(), lambda kit: kit.queue(self.declaration.queue).enqueue(payload, **options))
        return then(answer, lambda enqueued: self._handle(*enqueued))

    def enqueue_many(self, items: Iterable[Mapping[str, Any] | NewTask], tx: Any = None) -> Any:
        """Enqueue several calls, all or none."""
        new = [self._own(item) if isinstance(item, NewTask) else self.new(**item) for item in items]
        answers = reached(self._kit(), lambda kit: kit.queue(self.declaration.queue).enqueue_many(new, tx=tx))
        return then(answers, lambda answers: [self._handle(*answer) for answer in answers])

    def new(
        self,
        /,
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
        """Return the task that `enqueue` would enqueue, as a value."""
        payload, key, max_attempts = self._prepared(args, arguments, key, max_attempts)
        return NewTask(payload, delay, run_at, priority, max_attempts, expires, key, headers, self.declaration.queue)

    def handle(self, id: int) -> Handle:
        """Return the handle of a task that was enqueued before."""
        return self._handle(id, False)

    def _prepared(
        self, args: tuple[Any, ...], arguments: dict[str, Any], key: str | None, max_attempts: int | None
    ) -> tuple[dict[str, Any], str | None, int | None]:
        """Return the payload, with the declaration's key and attempts where the caller passes none."""
        declaration = self.declaration
        payload = {"task": declaration.name, "args": declaration.signature.encode(args, arguments)}
        if key is None and declaration.key is not None:
            key = self._key(declaration.key, args, arguments)
        if max_attempts is None and declaration.retries is not None:
            max_attempts = declaration.retries + 1
        return payload, key, max_attempts

    def _key(
        self, key: Callable[..., str | None] | str, args: tuple[Any, ...], arguments: dict[str, Any]
    ) -> str | None:
        signature = self.declaration.signature
        named = {**signature.defaults(), **signature.bind(args, arguments)}
        return key.format_map(named) if isinstance(key, str) else key(**named)

    def _own(self, task: NewTask) -> NewTask:
        payload = task.payload
        if not isinstance(payload, dict) or payload.get("task") != self.declaration.name:
            raise ValueError(
                f"{self.declaration.name}: the task belongs to another function: make it with {self.__name__}.new()"
            )
        return task

    def _handle(self, id: int, created: bool) -> Handle:
        return Handle(self._kit, self.declaration, id, created)

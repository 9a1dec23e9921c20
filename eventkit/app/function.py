"""`TaskFunction`: a function that was declared as a task, to be called or to be enqueued."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import update_wrapper
from typing import Any

from ..arguments import Duration
from ..records import NewTask
from .answers import reached, then
from .declarations import TaskDeclaration
from .handle import Handle


class Function:
    """Behaves as `TaskFunction` and `AsyncTaskFunction` say."""

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
        """Have a worker call it with these arguments."""
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
        """Enqueue several, all or none."""
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
        """What `enqueue` would enqueue, as a value."""
        payload, key, max_attempts = self._prepared(args, arguments, key, max_attempts)
        return NewTask(payload, delay, run_at, priority, max_attempts, expires, key, headers, self.declaration.queue)

    def handle(self, id: int) -> Handle:
        """The handle of a task that was enqueued before."""
        return self._handle(id, False)

    def _prepared(
        self, args: tuple[Any, ...], arguments: dict[str, Any], key: str | None, max_attempts: int | None
    ) -> tuple[dict[str, Any], str | None, int | None]:
        """The payload, and what the declaration says where the caller says nothing."""
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
                f"{self.declaration.name}: this is a task of something else: make it with {self.__name__}.new()"
            )
        return task

    def _handle(self, id: int, created: bool) -> Handle:
        return Handle(self._kit, self.declaration, id, created)

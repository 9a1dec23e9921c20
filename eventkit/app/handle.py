"""`TaskHandle`: a task that was enqueued, for who wants to know what became of it."""

from collections.abc import Callable
from types import NoneType
from typing import Any

import msgspec

from ..arguments import Duration, count
from . import progress
from .answers import then
from .declarations import TaskDeclaration


class Handle:
    """Behaves as `TaskHandle` and `AsyncTaskHandle` say."""

    def __init__(self, kit: Callable[[], Any], declaration: TaskDeclaration, id: int, created: bool) -> None:
        self._kit = kit
        self._declaration = declaration
        self.id = count("id", id)
        self.created = created

    def __repr__(self) -> str:
        return f"<task {self.id} of {self._declaration.name!r}>"

    def result(self, timeout: Duration) -> Any:
        """What the function returned, as soon as it has."""
        name, returns = self._declaration.name, self._declaration.signature.returns
        if returns in (None, NoneType):
            raise TypeError(f"{name} returns None by its annotation, which leaves no result: let it return something")
        return then(self._kit().results.wait(self.id, timeout), lambda value: _read(name, value, returns))

    def status(self) -> Any:
        """The task's state; ``gone`` where there is no such task any more."""
        return then(self._queue().get(self.id), lambda info: "gone" if info is None else info.state)

    def cancel(self, running: bool = False) -> Any:
        """Delete the task if it waits, or with *running* if it is being run too."""
        return self._queue().cancel(self.id, running)

    def progress(self) -> Any:
        """How far it said last that it is."""
        return then(self._kit().results.get(progress.saved_under(self.id)), progress.read)

    def _queue(self) -> Any:
        return self._kit().queue(self._declaration.queue)


def _read(name: str, value: Any, returns: Any) -> Any:
    try:
        return msgspec.convert(value, returns, str_keys=True)
    except msgspec.ValidationError as error:
        raise TypeError(f"{name} has returned something else than its annotation says: {error}") from None

"""`TaskHandle`: a task that was enqueued, for who wants to know what became of it."""

from collections.abc import Callable
from types import NoneType
from typing import Any

import msgspec

from ..arguments import Duration, count
from . import progress
from .answers import reached, then
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
        value = reached(self._kit(), lambda kit: kit.results.wait(self.id, timeout))
        return then(value, lambda value: _read(name, value, returns))

    def status(self) -> Any:
        """The task's state; ``gone`` where there is no such task any more."""
        info = reached(self._kit(), lambda kit: kit.queue(self._declaration.queue).get(self.id))
        return then(info, lambda info: "gone" if info is None else info.state)

    def cancel(self, running: bool = False) -> Any:
        """Delete the task if it waits, or with *running* if it is being run too."""
        return reached(self._kit(), lambda kit: kit.queue(self._declaration.queue).cancel(self.id, running))

    def progress(self) -> Any:
        """How far it said last that it is."""
        return then(reached(self._kit(), lambda kit: kit.results.get(progress.saved_under(self.id))), progress.read)


def _read(name: str, value: Any, returns: Any) -> Any:
    try:
        return msgspec.convert(value, returns, str_keys=True)
    except msgspec.ValidationError as error:
        raise TypeError(f"{name} has returned something else than its annotation says: {error}") from None

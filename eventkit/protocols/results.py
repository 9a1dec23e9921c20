"""Results: what tasks came to."""

from __future__ import annotations

from typing import Any, Protocol

from ..arguments import Duration


class Results(Protocol):
    """What tasks came to, for whoever waits for it; or anything else that has a name.

    An id is the number of a task, or a string of one's own; 7 and ``"7"`` are two ids.
    """

    def save(self, id: int | str, value: Any, ttl: Duration = 3600, tx: Any = None) -> None:
        """Save a value for *ttl* seconds, in place of an earlier one."""
        ...

    def get(self, id: int | str, default: Any = None) -> Any:
        """The value, which may be None; *default* if there is none."""
        ...

    def wait(self, id: int | str, timeout: Duration) -> Any:
        """The value, as soon as it is committed; `TimedOut` if it is not within *timeout* seconds.

        `TaskFailed` with the reason and the error if it is a task's, and the task is dead or dies.
        """
        ...

    def sweep(self) -> int:
        """Delete what has expired; how many results."""
        ...


class AsyncResults(Protocol):
    """`Results`, awaited."""

    async def save(self, id: int | str, value: Any, ttl: Duration = 3600, tx: Any = None) -> None: ...

    async def get(self, id: int | str, default: Any = None) -> Any: ...

    async def wait(self, id: int | str, timeout: Duration) -> Any: ...

    async def sweep(self) -> int: ...

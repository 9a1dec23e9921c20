"""The iterators of `subscribe`, `work` and `listen`, and the types that all protocols share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from typing import Any, Protocol, Self, TypeVar

from ..checks import Duration
from ..values import Task, TaskInfo

T = TypeVar("T")
P = TypeVar("P")
M_co = TypeVar("M_co", covariant=True)

KEEP: Any = ...
"""The default of a setting that is to stay as it is."""

NO_RESULT: Any = ...
"""The default of a result that is not to be saved; None would be saved."""

# Inside a class with a method ``list``, ``list[...]`` would mean the method.
Tasks = list[Task[P]]
TaskInfos = list[TaskInfo[P]]
Ids = list[int]


class Subscription(Protocol[M_co]):
    """An iterator that waits for the next item; it ends when it or its kit is closed."""

    def __iter__(self) -> Generator[M_co]: ...
    def __next__(self) -> M_co: ...

    def next(self, timeout: Duration | None = None) -> M_co:
        """Return the next item; raise `TimedOut` if none arrives in *timeout* seconds.  The call may be repeated."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

    def close(self) -> None:
        """End the iteration: save the offset of handled events, and release tasks that were not handed out.

        Any thread may close it, and so may a signal handler that interrupts a waiting step; that step then ends.
        """
        ...


class AsyncSubscription(Protocol[M_co]):
    """An iterator that waits for the next item; it ends when it or its kit is closed.

    It attaches at its first step, or when it is awaited.  Cancelling a step loses no item: the next step returns it.
    """

    def __await__(self) -> Generator[Any, Any, Self]: ...
    def __aiter__(self) -> AsyncIterator[M_co]: ...
    async def __anext__(self) -> M_co: ...

    async def next(self, timeout: Duration | None = None) -> M_co:
        """Return the next item; raise `TimedOut` if none arrives in *timeout* seconds.  The call may be repeated."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: object) -> None: ...

    async def aclose(self) -> None:
        """End the iteration: save the offset of handled events, and release tasks that were not handed out."""
        ...

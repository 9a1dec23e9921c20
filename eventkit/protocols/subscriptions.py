"""What `subscribe`, `work` and `listen` give."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from typing import Any, Protocol, Self

from ..arguments import Duration
from .terms import M_co


class Subscription(Protocol[M_co]):
    """An iterator that waits for more; it ends when it or its kit is closed."""

    def __iter__(self) -> Generator[M_co]: ...
    def __next__(self) -> M_co: ...

    def next(self, timeout: Duration | None = None) -> M_co:
        """Return the next item.  Raise `TimedOut` if there is none in *timeout* seconds: call again to wait on."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

    def close(self) -> None:
        """End the iteration: what was handled is saved, what was not handed out is given back.

        Any thread may close it.  So may a signal handler that interrupts a waiting step, which then ends by itself.
        """
        ...


class AsyncSubscription(Protocol[M_co]):
    """An iterator that waits for more; it ends when it or its kit is closed.

    It attaches at its first step, or when it is awaited.  A step that is cancelled loses nothing: ask for the next
    item again.
    """

    def __await__(self) -> Generator[Any, Any, Self]: ...
    def __aiter__(self) -> AsyncIterator[M_co]: ...
    async def __anext__(self) -> M_co: ...

    async def next(self, timeout: Duration | None = None) -> M_co:
        """Return the next item.  Raise `TimedOut` if there is none in *timeout* seconds: call again to wait on."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: object) -> None: ...

    async def aclose(self) -> None:
        """End the iteration: what was handled is saved, what was not handed out is given back.  Any task may."""
        ...

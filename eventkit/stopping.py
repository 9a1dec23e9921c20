"""Ending a wait from outside, and finishing what a cancellation must not stop."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Stop:
    """Ends the sleeps of one iterator.

    It takes no lock, so it may be set by any thread, and by a signal handler that has interrupted the sleep.
    """

    __slots__ = ("is_set", "ring")

    def __init__(self) -> None:
        self.is_set = False
        self.ring: Callable[[], object] = lambda: None
        """Wakes the sleep that is under way.  Each `sleep` puts its own here before it looks at `is_set`."""

    def set(self) -> None:
        """Let the sleep that is under way return False, and every later one at once."""
        self.is_set = True
        self.ring()


async def completed(work: Coroutine[Any, Any, T]) -> T:
    """Run *work* to its end; a cancellation that arrives meanwhile is raised only then."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                continue
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error from None
        raise

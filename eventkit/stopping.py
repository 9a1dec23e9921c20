"""Ending a wait from outside, and finishing what a cancellation must not stop."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from time import monotonic
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


_PATIENCE = 10.0
"""Seconds that work has to end after its caller was cancelled."""


async def completed(work: Coroutine[Any, Any, T]) -> T:
    """Run *work* to its end, and raise a cancellation that arrives meanwhile only then, or after ten seconds."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        give_up_at = monotonic() + _PATIENCE
        while not task.done() and (left := give_up_at - monotonic()) > 0:
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task}, timeout=left)
        if not task.cancel() and not task.cancelled():
            task.exception()  # Or asyncio would log that it was not looked at; the cancellation is what is raised.
        raise

"""Running the plan of an operation in each flavour, and ending its waits from outside."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar

from .operations import Operation, Plan, Rows

T = TypeVar("T")


class Stop:
    """A signal that ends the sleeps of one iterator.

    It takes no lock, so any thread may set it, and so may a signal handler that has interrupted the sleep.
    """

    __slots__ = ("is_set", "ring")

    def __init__(self) -> None:
        self.is_set = False
        self.ring: Callable[[], object] = lambda: None
        """The function that wakes the sleep in progress.  Each `sleep` sets its own before it checks `is_set`."""

    def set(self) -> None:
        """Make the sleep in progress and every later one return False."""
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
            task.exception()  # Otherwise asyncio logs that it was never retrieved.
        raise


def run(plan: Plan[T], fetch: Callable[[Operation[Any]], Rows]) -> T:
    """Drive *plan* with *fetch*, which executes one statement and returns its rows."""
    try:
        step = next(plan)
        while True:
            step = plan.send(fetch(step))
    except StopIteration as done:
        answer: T = done.value
        return answer


async def run_async(plan: Plan[T], fetch: Callable[[Operation[Any]], Awaitable[Rows]]) -> T:
    """Drive *plan* with *fetch*, awaiting each statement."""
    try:
        step = next(plan)
        while True:
            step = plan.send(await fetch(step))
    except StopIteration as done:
        answer: T = done.value
        return answer

"""Plans, and the two drivers that carry them out: one for threads, one for asyncio.

A plan is a generator.  It yields steps, is sent the answer of each or has its error raised at the ``yield``, and
returns an answer of its own.  The plan of an operation yields operations only, and is sent rows.  The plans of a kit
yield operations, whose answers they are sent, and `Sleep` and `Call`; so all loops are written once for both flavours.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar

from .errors import PASSING, Closed
from .operations import Operation, Probe

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


class Sleep(NamedTuple):
    """A step: sleep until *probe* is ready (True), or until *until* on the monotonic clock or *stop* (False)."""

    probe: Probe
    until: float | None = None
    stop: Stop | None = None

    @property
    def seconds(self) -> float | None:
        """The seconds that are left; None for no limit."""
        return None if self.until is None else max(0.0, self.until - monotonic())


class Call:
    """A step: call *function*, and in asyncio await what it returns."""

    __slots__ = ("arguments", "function")

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.function = function
        self.arguments = arguments


class Hand:
    """A step of an iterator: hand out items until there are none, or until `Feed.look_at`."""


HAND: Final = Hand()
Step = Operation[Any] | Sleep | Call | Hand
Plan = Generator[Step, Any, T]
"""A plan of a kit."""


def run(plan: Generator[Any, Any, T], perform: Callable[[Any], Any]) -> T:
    """Drive *plan* with *perform*, which carries out one step and returns its answer."""
    try:
        step = next(plan)
        while True:
            try:
                answer = perform(step)
            except BaseException as error:
                step = plan.throw(error)
            else:
                step = plan.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result


async def run_async(plan: Generator[Any, Any, T], perform: Callable[[Any], Awaitable[Any]]) -> T:
    """Drive *plan* with *perform*, awaiting each step."""
    try:
        step = next(plan)
        while True:
            try:
                answer = await perform(step)
            except BaseException as error:
                step = plan.throw(error)
            else:
                step = plan.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result


Steps = Generator[Any, Any, T]
"""Steps of both flavours, which yield what a driver returns, and are sent the value."""


def drive(steps: Steps[T]) -> T:
    """Take *steps*, which yield values.  `run` would call a function for each of them, in every call of a kit."""
    try:
        value = next(steps)
        while True:
            value = steps.send(value)
    except StopIteration as done:
        result: T = done.value
        return result


async def drive_async(steps: Steps[T]) -> T:
    """Take *steps*, which yield awaitables."""
    try:
        step = next(steps)
        while True:
            try:
                value = await step
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(value)
    except StopIteration as done:
        result: T = done.value
        return result


_PATIENCE = 10.0
"""Seconds that work has to end after its caller was cancelled."""


async def completed(work: Awaitable[T]) -> T:
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


def attempt(operation: Operation[T], probe: Probe, wait: float | None) -> Plan[T]:
    """Return the answer of *operation*, retried when *probe* is ready, for *wait* seconds or until the kit closes."""
    until = None if wait is None else monotonic() + wait
    answer: T = yield operation
    with suppress(Closed):
        while not answer and (until is None or monotonic() < until) and (yield Sleep(probe, until)):
            answer = yield operation
    return answer


def repeat(connection: Any, work: Callable[[], Plan[Any]], probe: Probe) -> Plan[None]:
    """Carry out the plan *work* whenever *probe* is ready, until the kit of *connection* is closed."""
    yield probe  # Raises `Closed` for a closed kit; from here on, closing it ends the loop.
    with suppress(Closed):
        while not connection.closing:
            try:
                yield from work()
            except PASSING:
                continue
            if not (yield Sleep(probe)):
                return

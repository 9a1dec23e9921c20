"""The waiting of a kit: the iterators that `subscribe`, `work` and `listen` return, and all other plans.

The plan of a feed is a generator that yields steps and does no I/O; the iterator carries them out.  A step that is
interrupted (by a timeout, a cancellation, a signal) remains the next one, so nothing is lost.
"""

import asyncio
import inspect
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Generator, Mapping
from contextlib import suppress
from time import monotonic
from types import MappingProxyType
from typing import Any, Generic, Self, TypeVar
from weakref import WeakSet

from . import checks
from .backend import AsyncConnection, Connection
from .checks import Duration
from .errors import PASSING, Closed, TimedOut
from .handling import AsyncHandling, AsyncHeartbeat, Handling, Heartbeat
from .operations import Operation, Origin, Probe
from .plans import HAND, Call, Plan, Sleep, Step, Stop, attempt, completed, run, run_async

M = TypeVar("M")
T = TypeVar("T")


class Interrupted(KeyboardInterrupt, SystemExit):
    """Raised by Ctrl-C while an iterator waits; if uncaught, the program exits with code 130, without a traceback."""

    code = 130


END: Any = object()
"""The answer of an iterator that has no more items."""


class Feed(Generic[M]):
    """The items and the position of an iterator.  Its plans can be restarted at any time."""

    def __init__(self) -> None:
        self.items: deque[M] = deque()
        """Items that were read and not handed out."""
        self.current: M | None = None
        """The item that was handed out last."""
        self.handled: M | None = None
        """The last handled item: the next one was requested after it."""
        self.look_at = float("inf")
        """The time from which the plan runs again before another item is handed out."""
        self.heartbeat: Heartbeat | AsyncHeartbeat
        self.stop: Stop
        """The signal that ends the iteration; *failure*, if there is one, is then raised."""
        self.failure: Exception | None = None
        self.asked_at = 0.0
        """The time at which the last operation of the plan was begun."""

    def attach(self) -> Plan[None]:
        """Find the start, unless it is known."""
        yield from ()

    def steps(self) -> Plan[None]:
        """Read, hand out, and sleep, for ever."""
        raise NotImplementedError

    def leave(self) -> Plan[None]:
        """Save the offset of handled events, and release tasks not handed out.  `steps` continues from there."""
        yield from ()


def located(origin: Operation[Any] | int) -> Plan[Origin]:
    """Return the place of *origin*, which may be an operation that finds it."""
    place: Any = (yield origin) if isinstance(origin, Operation) else origin
    return place if isinstance(place, Origin) else Origin(place)


class _Iterator(Generic[M]):
    """The part of an iterator that both flavours share."""

    def __init__(self, loops: Any, feed: Feed[M]) -> None:
        self._loops = loops
        self._feed = feed
        self._stop = feed.stop = Stop()
        feed.heartbeat = loops.heartbeat
        self._begin()
        loops.opened.add(self)

    @property
    def _ended(self) -> bool:
        return self._stop.is_set or self._loops.connection.closing

    def _begin(self) -> None:
        self._plan = self._feed.steps()
        self._step: Step | None = None

    def _walk(self, deadline: float | None) -> Plan[M]:
        """Carry out steps until there is an item to hand out, or the iteration has ended."""
        feed, stop, connection = self._feed, self._stop, self._loops.connection
        try:
            while not (stop.is_set or connection.closing):
                step, reply = self._step, None
                if step is HAND and feed.items and monotonic() < feed.look_at:
                    return feed.items.popleft()
                try:
                    if isinstance(step, Operation):
                        feed.asked_at = monotonic()
                        reply = yield step
                    elif isinstance(step, Sleep):
                        reply = yield from self._sleep(step, deadline)
                except TimedOut:
                    raise
                except Exception as error:
                    if isinstance(error, PASSING) and deadline is not None and monotonic() >= deadline:
                        raise _timed_out() from error
                    self._step = self._plan.throw(error)
                else:
                    self._step = self._plan.send(reply)
        except TimedOut:
            raise
        except Exception as error:
            yield from self._end()
            if not isinstance(error, Closed):
                raise
        yield from self._end()
        failure, feed.failure = feed.failure, None
        if failure is not None:
            raise failure
        ended: M = END
        return ended

    def _sleep(self, step: Sleep, deadline: float | None) -> Plan[bool]:
        """Return whether the sleep ended because its probe is ready; raise `TimedOut` at the caller's deadline."""
        until = min((moment for moment in (step.until, deadline) if moment is not None), default=None)
        woken: bool = yield Sleep(step.probe, until, self._stop)
        if woken or self._ended or deadline is None:
            return woken
        now = monotonic()
        if now >= deadline and (step.until is None or now < step.until):
            raise _timed_out()
        return False

    def _end(self) -> Plan[None]:
        self._stop.set()
        if not self._loops.connection.closing:  # Closing the kit ends all its iterators.
            yield from self._leave()

    def _leave(self) -> Plan[None]:
        with suppress(Closed, *PASSING):  # Unsaved events are delivered again, and unreleased leases expire.
            yield Call(self._loops.complete, self._feed.leave())
        self._begin()


class Messages(_Iterator[M]):
    """An iterator that may wait for ever; ended by `close`, by ``with``, or by closing its kit."""

    def __init__(self, loops: "Loops", feed: Feed[M]) -> None:
        self._mutex = threading.RLock()
        self._stepping = False
        run(feed.attach(), loops.perform)
        super().__init__(loops, feed)

    def __iter__(self) -> Generator[M]:
        """Iterate; leaving the loop saves and releases as `close` does, and another loop continues from there."""
        feed = self._feed
        items = feed.items
        feed.handled = feed.current
        try:
            while True:
                # This runs a million times a second, so it does no more than this.
                if items and monotonic() < feed.look_at:
                    try:
                        item = items.popleft()
                    except IndexError:
                        continue  # Another thread has closed the iterator.
                elif (item := self.take()) is END:
                    return
                feed.current = item
                yield item
                feed.handled = item
        finally:
            self.settle()

    def __next__(self) -> M:
        return self.step(None)

    def step(self, deadline: float | None) -> M:
        """Return the next item; raise `TimedOut` after *deadline* on the monotonic clock."""
        feed = self._feed
        feed.handled = feed.current
        if (item := self.take(deadline)) is END:
            raise StopIteration
        feed.current = item
        return item

    def next(self, timeout: Duration | None = None) -> M:
        """Return the next item; raise `TimedOut` if none arrives in *timeout* seconds.  The call may be repeated."""
        return self.step(_deadline(timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(Exception):  # There is no caller to raise to, and leases expire.
            self.close()

    def close(self) -> None:
        """End the iteration: save the offset of handled events, and release tasks that were not handed out.

        Any thread may close it, and so may a signal handler that interrupts a waiting step; that step then ends.
        """
        self._stop.set()
        self.settle()

    def settle(self) -> None:
        """Save the offset of handled events and release tasks not handed out, as if iteration ended here."""
        with self._mutex:
            if not self._stepping:
                self._loops.run(self._leave())

    def take(self, deadline: float | None = None) -> M:
        """Return the next item, or `END`; raise `TimedOut` after *deadline* on the monotonic clock."""
        with self._mutex:
            if self._stepping:
                raise RuntimeError("this call interrupts a step: a signal handler may only close() the iterator")
            self._stepping = True
            try:
                return run(self._walk(deadline), self._loops.perform)
            except KeyboardInterrupt:
                if hasattr(sys, "ps1"):
                    raise  # An interactive session continues.
                raise Interrupted from None
            finally:
                self._stepping = False


class AsyncMessages(_Iterator[M]):
    """`Messages` for asyncio.  Awaiting it attaches it now rather than at the first step."""

    def __init__(self, loops: "AsyncLoops", feed: Feed[M]) -> None:
        self._mutex = asyncio.Lock()
        self._leaving = loops.leaving
        self._loop: asyncio.AbstractEventLoop | None = None
        super().__init__(loops, feed)

    def __await__(self) -> Generator[Any, Any, Self]:
        yield from run_async(self._feed.attach(), self._loops.perform).__await__()
        self._begin()
        return self

    def __aiter__(self) -> AsyncIterator[M]:
        return _Loop(self)

    def __anext__(self) -> Coroutine[Any, Any, M]:
        return self.step(self)

    async def step(self, iterated: object, deadline: float | None = None) -> M:
        """Return the next item; the reference *iterated* keeps its iterator alive meanwhile."""
        feed = self._feed
        feed.handled = feed.current
        if self._step is HAND and feed.items and monotonic() < feed.look_at:
            item = feed.items.popleft()
        else:
            item = await self.take(deadline)
        if item is END:
            raise StopAsyncIteration
        feed.current = item
        return item

    async def next(self, timeout: Duration | None = None) -> M:
        """Return the next item; raise `TimedOut` if none arrives in *timeout* seconds.  The call may be repeated."""
        return await self.step(self, _deadline(timeout))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        self.leave_soon()

    async def aclose(self) -> None:
        """End the iteration: save the offset of handled events, and release tasks that were not handed out.

        Any task may close it.  A step that waits in another one then ends.
        """
        self._stop.set()
        await completed(self.settle())

    async def settle(self) -> None:
        """Save the offset of handled events and release tasks not handed out, as if iteration ended here."""
        async with self._mutex:
            await self._loops.run(self._leave())

    def leave_soon(self) -> None:
        """Run `settle` in a task of its own, for a loop that was left, which cannot await it."""
        if self._loop is None or self._ended:
            return
        if asyncio._get_running_loop() is self._loop:
            self._start_leaving()
        else:
            with suppress(RuntimeError):  # A closed event loop runs no tasks.
                self._loop.call_soon_threadsafe(self._start_leaving)

    def _start_leaving(self) -> None:
        task = asyncio.ensure_future(self.settle())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def take(self, deadline: float | None = None) -> M:
        """Return the next item, or `END`; raise `TimedOut` after *deadline* on the monotonic clock."""
        self._loop = asyncio.get_running_loop()
        async with self._mutex:
            return await run_async(self._walk(deadline), self._loops.perform)


class _Loop(Generic[M]):
    """The iterator of one ``async for``: leaving the loop saves and releases."""

    __slots__ = ("_messages",)

    def __init__(self, messages: AsyncMessages[M]) -> None:
        self._messages = messages

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, M]:
        return self._messages.step(self)

    def __del__(self) -> None:
        self._messages.leave_soon()


def _deadline(timeout: Duration | None) -> float | None:
    return None if timeout is None else monotonic() + checks.milliseconds("timeout", timeout) / 1000


def _timed_out() -> TimedOut:
    return TimedOut("no item arrived within the timeout: call next() again to keep waiting; no item is lost")


class _Loops:
    """The part of the loops of a kit that both flavours share."""

    run: Any
    _iterator: Any
    handling: Any
    """The context manager around the work on a task."""

    def __init__(self, connection: Any, heartbeat: Any) -> None:
        self.connection = connection
        self.heartbeat = heartbeat
        self.opened: WeakSet[Any] = WeakSet()

    def attempt(self, operation: Operation[Any], probe: Probe, wait: float) -> Any:
        """Return the answer, retried when the probe is ready, for *wait* seconds or until the kit is closed."""
        return self.run(attempt(operation, probe, wait))

    def iterate(self, feed: Feed[Any], kinds: Mapping[Any, Any] = MappingProxyType({})) -> Any:
        """Return an iterator over the items of *feed*: that of this flavour, or the one that *kinds* has for it."""
        return kinds.get(self._iterator, self._iterator)(self, feed)


class Loops(_Loops):
    """The loops of one kit, in threads."""

    _iterator = Messages
    handling = Handling

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, Heartbeat(connection))

    def run(self, plan: Plan[T]) -> T:
        """Carry out *plan*, and return its answer."""
        return run(plan, self.perform)

    complete = run
    """`run`, which in asyncio is not interrupted by a cancellation."""

    def perform(self, step: Any) -> Any:
        """Carry out one step of a plan, and return its answer."""
        if isinstance(step, Operation):
            return self.connection.execute(step)
        if isinstance(step, Sleep):
            return self.connection.sleep(step.probe, step.seconds, step.stop)
        return step.function(*step.arguments)

    def close(self) -> None:
        """End every open iterator, and the heartbeat."""
        for messages in list(self.opened):
            messages.settle()
        self.heartbeat.stop()


class AsyncLoops(_Loops):
    """`Loops` for asyncio."""

    _iterator = AsyncMessages
    handling = AsyncHandling

    def __init__(self, connection: AsyncConnection) -> None:
        super().__init__(connection, AsyncHeartbeat(connection))
        self.leaving: set[asyncio.Task[None]] = set()

    def run(self, plan: Plan[T]) -> Coroutine[Any, Any, T]:
        """Carry out *plan*, and return its answer."""
        return run_async(plan, self.perform)

    def complete(self, plan: Plan[T]) -> Coroutine[Any, Any, T]:
        """Carry out *plan* to its end, even if the caller is cancelled meanwhile."""
        return completed(run_async(plan, self.perform))

    async def perform(self, step: Any) -> Any:
        """`Loops.perform`, awaited."""
        if isinstance(step, Operation):
            return await self.connection.execute(step)
        if isinstance(step, Sleep):
            return await self.connection.sleep(step.probe, step.seconds, step.stop)
        answer = step.function(*step.arguments)
        return await answer if inspect.isawaitable(answer) else answer

    async def close(self) -> None:
        """End every open iterator, and those that are ending, and the heartbeat."""
        for messages in list(self.opened):
            await messages.settle()
        while self.leaving:
            await asyncio.wait(self.leaving)
        self.heartbeat.stop()

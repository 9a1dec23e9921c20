"""The iterators that `subscribe`, `work` and `listen` return, in both flavours.

The plan of a feed is a generator that yields steps and does no I/O; the iterator carries them out.  A step that is
interrupted (by a timeout, a cancellation, a signal) remains the next one, so nothing is lost.
"""

import asyncio
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Generator
from contextlib import suppress
from time import monotonic
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar
from weakref import WeakSet

from . import checks, operations
from .checks import Duration
from .errors import PASSING, Closed, TimedOut
from .heartbeat import AsyncHeartbeat, Heartbeat
from .operations import Operation, Probe
from .plans import Stop, completed, run, run_async
from .protocols import AsyncConnection, Connection

M = TypeVar("M")


class Interrupted(KeyboardInterrupt, SystemExit):
    """Raised by Ctrl-C while an iterator waits; if uncaught, the program exits with code 130, without a traceback."""

    code = 130


class Sleep(NamedTuple):
    """A step: sleep until *probe* is ready (True), or until *until* on the monotonic clock (False)."""

    probe: Probe
    until: float | None = None


class Hand:
    """A step: hand out items until there are none, or until `Feed.look_at`."""


HAND: Final = Hand()
_END: Any = object()

Step = Operation[Any] | Sleep | Hand
Plan = Generator[Step, Any, None]


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

    def attach(self) -> operations.Plan[None]:
        """Find the start, unless it is known."""
        yield from ()

    def steps(self) -> Plan:
        """Read, hand out, and sleep, for ever."""
        raise NotImplementedError

    def leave(self) -> operations.Plan[None]:
        """Save the offset of handled events, and release tasks not handed out.  `steps` continues from there."""
        yield from ()


class _Iterator(Generic[M]):
    """The part of an iterator that both flavours share."""

    _connection: Any

    def __init__(self, feed: Feed[M], heartbeat: Heartbeat | AsyncHeartbeat, opened: "WeakSet[Any]") -> None:
        self._feed = feed
        self._stop = feed.stop = Stop()
        feed.heartbeat = heartbeat
        self._begin()
        opened.add(self)

    @property
    def _ended(self) -> bool:
        return self._stop.is_set or self._connection.closing

    @property
    def _may_hand(self) -> bool:
        """True if the step is to hand out, and an item is available."""
        return self._step is HAND and bool(self._feed.items) and monotonic() < self._feed.look_at

    def _begin(self) -> None:
        self._plan = self._feed.steps()
        self._step: Step | None = None

    def _go_on(self, reply: Any) -> None:
        """Continue with the next step after *reply*."""
        self._step = self._plan.send(reply)

    def _fail(self, error: Exception, deadline: float | None) -> None:
        """Continue with the next step after an error, or raise it."""
        if isinstance(error, PASSING) and deadline is not None and monotonic() >= deadline:
            raise _timed_out() from error
        self._step = self._plan.throw(error)

    def _last(self) -> M:
        """Return the mark of the end, or raise its reason once."""
        failure, self._feed.failure = self._feed.failure, None
        if failure is not None:
            raise failure
        ended: M = _END
        return ended

    def _rested(self, woken: bool, step: Sleep, deadline: float | None) -> bool:
        """Return whether the sleep ended because its probe is ready; raise `TimedOut` at the caller's deadline."""
        if woken or self._ended or deadline is None:
            return woken
        now = monotonic()
        if now >= deadline and (step.until is None or now < step.until):
            raise _timed_out()
        return False


class Messages(_Iterator[M]):
    """An iterator that may wait for ever; ended by `close`, by ``with``, or by closing its kit."""

    def __init__(self, connection: Connection, feed: Feed[M], heartbeat: Heartbeat, opened: "WeakSet[Any]") -> None:
        self._connection: Connection = connection
        self._mutex = threading.RLock()
        self._stepping = False
        run(feed.attach(), connection.execute)
        super().__init__(feed, heartbeat, opened)

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
                elif (item := self._take(None)) is _END:
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
        if (item := self._take(deadline)) is _END:
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
                self._leave()

    def _take(self, deadline: float | None) -> M:
        with self._mutex:
            if self._stepping:
                raise RuntimeError("this call interrupts a step: a signal handler may only close() the iterator")
            self._stepping = True
            try:
                return self._walk(deadline)
            except KeyboardInterrupt:
                if hasattr(sys, "ps1"):
                    raise  # An interactive session continues.
                raise Interrupted from None
            finally:
                self._stepping = False

    def _walk(self, deadline: float | None) -> M:
        """Carry out steps until there is an item to hand out, or the iteration has ended."""
        try:
            while not self._ended:
                if self._may_hand:
                    return self._feed.items.popleft()
                step, reply = self._step, None
                try:
                    if isinstance(step, Operation):
                        self._feed.asked_at = monotonic()
                        reply = self._connection.execute(step)
                    elif isinstance(step, Sleep):
                        woken = self._connection.sleep(step.probe, _seconds(step.until, deadline), self._stop)
                        reply = self._rested(woken, step, deadline)
                except TimedOut:
                    raise
                except Exception as error:
                    self._fail(error, deadline)
                else:
                    self._go_on(reply)
        except TimedOut:
            raise
        except Exception as error:
            self._end()
            if not isinstance(error, Closed):
                raise
        self._end()
        return self._last()

    def _end(self) -> None:
        self._stop.set()
        if not self._connection.closing:  # Closing the kit ends all its iterators.
            self._leave()

    def _leave(self) -> None:
        with suppress(Closed, *PASSING):  # Unsaved events are delivered again, and unreleased leases expire.
            run(self._feed.leave(), self._connection.execute)
        self._begin()


class AsyncMessages(_Iterator[M]):
    """`Messages` for asyncio.  Awaiting it attaches it now rather than at the first step."""

    def __init__(
        self,
        connection: AsyncConnection,
        feed: Feed[M],
        heartbeat: AsyncHeartbeat,
        opened: "WeakSet[Any]",
        leaving: set[asyncio.Task[None]],
    ) -> None:
        self._connection: AsyncConnection = connection
        self._mutex = asyncio.Lock()
        self._leaving = leaving
        self._loop: asyncio.AbstractEventLoop | None = None
        super().__init__(feed, heartbeat, opened)

    def __await__(self) -> Generator[Any, Any, Self]:
        yield from run_async(self._feed.attach(), self._connection.execute).__await__()
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
        item = feed.items.popleft() if self._may_hand else await self._take(deadline)
        if item is _END:
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
            await self._leave()

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

    async def _take(self, deadline: float | None) -> M:
        self._loop = asyncio.get_running_loop()
        async with self._mutex:
            return await self._walk(deadline)

    async def _walk(self, deadline: float | None) -> M:
        """Carry out steps until there is an item to hand out, or the iteration has ended."""
        try:
            while not self._ended:
                if self._may_hand:
                    return self._feed.items.popleft()
                step, reply = self._step, None
                try:
                    if isinstance(step, Operation):
                        self._feed.asked_at = monotonic()
                        reply = await self._connection.execute(step)
                    elif isinstance(step, Sleep):
                        woken = await self._connection.sleep(step.probe, _seconds(step.until, deadline), self._stop)
                        reply = self._rested(woken, step, deadline)
                except TimedOut:
                    raise
                except Exception as error:
                    self._fail(error, deadline)
                else:
                    self._go_on(reply)
        except TimedOut:
            raise
        except Exception as error:
            await self._end()
            if not isinstance(error, Closed):
                raise
        await self._end()
        return self._last()

    async def _end(self) -> None:
        self._stop.set()
        if not self._connection.closing:  # Closing the kit ends all its iterators.
            await self._leave()

    async def _leave(self) -> None:
        with suppress(Closed, *PASSING):  # Unsaved events are delivered again, and unreleased leases expire.
            await completed(run_async(self._feed.leave(), self._connection.execute))
        self._begin()


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


def _seconds(*until: float | None) -> float | None:
    """Return the seconds until the first of these times; None if there is none."""
    first = min((moment for moment in until if moment is not None), default=None)
    return None if first is None else max(0.0, first - monotonic())


def _timed_out() -> TimedOut:
    return TimedOut("no item arrived within the timeout: call next() again to keep waiting; no item is lost")

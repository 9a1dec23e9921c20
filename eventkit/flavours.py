"""The other flavour of a kit, on its connections: `EventKit.async_` and `AsyncEventKit.sync`.

A view is a connection that calls the connection of a kit: from asyncio in threads, and from threads in the kit's event
loop.  It has loops and iterators of its own, and closing it leaves the kit open.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from os import getpid
from typing import Any, TypeVar

from .backend import AsyncConnection, Connection
from .fork import closed, closed_or_forked
from .operations import Operation, Probe
from .plans import Stop, completed

T = TypeVar("T")

_CALLS = 16
"""The number of calls of an async view that run at the same time."""

_SLEEPS = 10_000
"""The number of waiting iterators and calls of an async view; each takes a thread while it waits."""


class _View:
    """The parts of a view that are the same for both flavours."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.max_payload: int = connection.max_payload
        self._sleeps: set[Stop] = set()
        self._closing = self._closed = False
        self._process = getpid()

    @property
    def closing(self) -> bool:
        """Whether `end_sleep` was called, of the view or of its kit."""
        return self._closing or self._connection.closing

    def end_sleep(self) -> None:
        """Make every current and future `sleep` of the view return False."""
        self._closing = True
        for sleep in list(self._sleeps):
            sleep.set()

    def _check(self) -> None:
        """Raise `Closed` for a view that is closed, or that this process has inherited without its threads."""
        if self._closed or getpid() != self._process:
            raise closed_or_forked(self._process)

    @contextmanager
    def _sleep(self, stop: Stop | None) -> Iterator[Stop]:
        """Provide the signal of one sleep, which *stop* and `end_sleep` set too, and leaving it."""
        own = Stop()
        self._sleeps.add(own)
        if stop is not None:
            stop.ring = own.set
        if self._closing or (stop is not None and stop.is_set):
            own.set()
        try:
            yield own
        finally:
            self._sleeps.discard(own)
            own.set()


class AsyncView(_View):
    """The connection of a sync kit for asyncio: each call runs in a thread; see `backend.AsyncConnection`."""

    _connection: Connection

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._calls = ThreadPoolExecutor(_CALLS, "eventkit-call")
        self._sleeping = ThreadPoolExecutor(_SLEEPS, "eventkit-sleep")
        self._transactions: dict[int, ThreadPoolExecutor] = {}
        self._undoing: set[asyncio.Future[None]] = set()

    async def execute(self, operation: Operation[T], tx: Any = None) -> T:
        """Execute *operation* in *tx* if it is given, else in a transaction of its own, and return its result."""
        self._check()
        threads = self._transactions.get(id(tx), self._calls)
        work = _in(threads, self._connection.execute, operation, tx)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # The thread cannot be interrupted: the call finishes, is undone, and then the caller is cancelled.
            undoing = asyncio.ensure_future(self._undo(operation, work, tx))
            self._undoing.add(undoing)
            undoing.add_done_callback(self._undoing.discard)
            await asyncio.wait({undoing})
            raise

    async def sleep(self, probe: Probe, timeout: float | None = None, stop: Stop | None = None) -> bool:
        """Wait until *probe* is ready.  Return False after *timeout* seconds, after *stop*, or after `end_sleep`."""
        with self._sleep(stop) as own:
            return not own.is_set and await _in(self._sleeping, self._connection.sleep, probe, timeout, own)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """Provide a transaction of the kit, whose calls run in one thread of its own."""
        self._check()
        thread, stack = ThreadPoolExecutor(1, "eventkit-transaction"), ExitStack()
        tx: Any = None
        try:
            # A caller may be cancelled meanwhile: the stack then ends the transaction if it has begun.
            tx = await completed(_in(thread, stack.enter_context, self._connection.transaction()))
            self._transactions[id(tx)] = thread
            yield tx
        except BaseException as error:
            await completed(_in(thread, stack.__exit__, type(error), error, error.__traceback__))
            raise
        else:
            await completed(_in(thread, stack.close))
        finally:
            self._transactions.pop(id(tx), None)
            thread.shutdown(wait=False)

    async def close(self) -> None:
        """End every sleep, and finish running calls.  The kit stays open."""
        self._closed = True
        self.end_sleep()
        while self._undoing:
            await asyncio.wait(self._undoing)
        for threads in (self._calls, self._sleeping):
            await asyncio.to_thread(threads.shutdown)

    async def _undo(self, operation: Operation[T], work: "asyncio.Future[T]", tx: Any) -> None:
        """Wait for the end of *work*, and undo its effect unless the caller's transaction decides about it."""
        await asyncio.wait({work})
        if work.exception() is None and tx is None and (undo := operation.undo(work.result())) is not None:
            await _in(self._calls, self._connection.execute, undo)


class View(_View):
    """The connection of an async kit for other threads: each call runs in its event loop; see `backend.Connection`."""

    _connection: AsyncConnection

    def __init__(self, connection: AsyncConnection) -> None:
        super().__init__(connection)
        self._loop = asyncio.get_running_loop()

    def execute(self, operation: Operation[T], tx: Any = None) -> T:
        """Execute *operation* in *tx* if it is given, else in a transaction of its own, and return its result."""
        self._check()
        return self._wait(self._connection.execute(operation, tx))

    def sleep(self, probe: Probe, timeout: float | None = None, stop: Stop | None = None) -> bool:
        """Wait until *probe* is ready.  Return False after *timeout* seconds, after *stop*, or after `end_sleep`."""
        with self._sleep(stop) as own:
            return not own.is_set and self._wait(self._connection.sleep(probe, timeout, own))

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Provide a transaction of the kit, for ``tx=``."""
        self._check()
        context: Any = self._connection.transaction()
        tx = self._wait(context.__aenter__())
        try:
            yield tx
        except BaseException as error:
            self._wait(context.__aexit__(type(error), error, error.__traceback__))
            raise
        else:
            self._wait(context.__aexit__(None, None, None))

    def close(self) -> None:
        """End every sleep.  The kit stays open."""
        self._closed = True
        self.end_sleep()

    def _wait(self, call: Coroutine[Any, Any, T]) -> T:
        """Run *call* in the event loop of the kit, and return its answer."""
        if asyncio._get_running_loop() is self._loop:
            call.close()
            raise RuntimeError(
                "a call of sync() in the thread of the kit's event loop would wait for itself: await the async kit, "
                "or make the call in another thread, as with asyncio.to_thread"
            )
        try:
            work = asyncio.run_coroutine_threadsafe(call, self._loop)
        except RuntimeError as error:  # The event loop is closed.
            call.close()
            raise closed() from error
        try:
            return work.result()
        except CancelledError as error:
            raise closed() from error
        except BaseException:
            work.cancel()
            raise


def _in(threads: ThreadPoolExecutor, function: Callable[..., T], *arguments: Any) -> "asyncio.Future[T]":
    return asyncio.get_running_loop().run_in_executor(threads, function, *arguments)

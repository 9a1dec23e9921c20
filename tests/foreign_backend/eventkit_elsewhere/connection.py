"""The connection of a kit, for threads and for asyncio."""

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from eventkit.errors import Busy, Closed, ForeignTransaction
from eventkit.fork import closed_or_forked, track
from eventkit.operations import Operation, Probe
from eventkit.plans import Stop, completed, run, run_async

from .file import File
from .statements import execute_in, fetch
from .watcher import Watcher

T = TypeVar("T")

_inherited: set[str] = set()
"""The files that the parent had open when it forked this process, whose locks SQLite takes for this process's own."""


class _Sleeping:
    """The names that are the same in both flavours."""

    watcher: Watcher

    @property
    def closing(self) -> bool:
        """Whether `end_sleep` was called."""
        return self.watcher.closing

    def end_sleep(self) -> None:
        """Make every `sleep` return False, now and from now on."""
        self.watcher.closing = True
        self.watcher.wake_all()


class Connection(_Sleeping):
    """A connection that writes, one that reads beside it, and a watcher; see `eventkit.backend.Connection`."""

    def __init__(self, file: File) -> None:
        self.max_payload = file.max_payload
        if file.path in _inherited:
            raise Closed(f"{file.path} was open when this process was forked: connect only after the fork")
        self._file = file
        self._process = os.getpid()
        self._closed = False
        self._locks = threading.Lock(), threading.Lock()
        self._callers: list[object] = []  # Those that have a transaction of this kit open.
        with file.errors():
            self._drivers = file.open(), file.open()
            self.watcher = Watcher(file)
        self._release = partial(_release, self.watcher, *self._drivers)
        self._detach = track(self, file.path, self._release)

    def execute(self, operation: Operation[T], tx: Any = None) -> T:
        """Execute *operation* in *tx*, or in a transaction of its own."""
        self.check()
        if tx is not None:
            return execute_in(self._driver(tx), operation)
        if operation.writes:
            self.refuse_forgotten(threading.get_ident())
        begin = "BEGIN IMMEDIATE" if operation.writes else "BEGIN"
        with self._locks[operation.writes], self._file.errors():
            self.check()
            driver = self._drivers[operation.writes]
            with _begun(driver, begin):
                return run(operation.plan(), lambda step: fetch(driver, step))

    def sleep(self, probe: Probe, timeout: float | None = None, stop: Stop | None = None) -> bool:
        """Wait until *probe* is ready."""
        bell: SimpleQueue[None] = SimpleQueue()  # A signal handler may ring, which SimpleQueue alone permits.

        def clear() -> None:
            while not bell.empty():
                bell.get()

        def step(probe_or_pause: Any) -> Any:
            if probe_or_pause is probe:
                return self.execute(probe)
            with suppress(Empty):
                bell.get(timeout=probe_or_pause)
            return None

        ring = partial(bell.put, None)
        with self.watcher.sleeping(ring):
            return run(self.watcher.looks(probe, ring, clear, timeout, stop or Stop()), step)

    @contextmanager
    def transaction(self, caller: object = None) -> Iterator[sqlite3.Connection]:
        """Provide a connection in a transaction, committed at the end of the block."""
        self.check()
        caller = caller or threading.get_ident()
        self.refuse_forgotten(caller)
        with self._file.errors():
            driver = self._file.open()
        try:
            with self._file.errors():
                driver.execute("BEGIN IMMEDIATE")
            self._callers.append(caller)
            try:
                with _begun(driver, None):
                    yield driver
            finally:
                self._callers.remove(caller)
        finally:
            driver.close()

    def refuse_forgotten(self, caller: object) -> None:
        """Raise `Busy` for a call without ``tx=`` in the caller's own transaction, whose end it would wait for."""
        if caller in self._callers:
            raise Busy("this call would wait for the transaction that its caller has open: pass tx= to it")

    def close(self) -> None:
        """Close the file, after the calls in progress."""
        if not self._closed:
            self._closed = True
            self._detach()
            with self._locks[0], self._locks[1]:
                self._release()

    def forked(self) -> None:
        """Refuse calls in a forked child, and leave what the parent uses alone."""
        self._closed = self.watcher.closing = True
        _inherited.add(self._file.path)

    def check(self) -> None:
        """Raise `Closed` if the connection is closed."""
        if self._closed:
            raise closed_or_forked(self._process)

    def _driver(self, tx: Any) -> sqlite3.Connection:
        """Return *tx*, which must have a transaction open on this file."""
        if not isinstance(tx, sqlite3.Connection):
            raise TypeError(f"tx= is a sqlite3.Connection, or what kit.transaction() gives; not {type(tx).__name__}")
        path = tx.execute("PRAGMA database_list").fetchone()[2]
        if os.path.realpath(path) != self._file.path:
            raise ForeignTransaction(f"tx= belongs to {path or 'memory'}, and the kit to {self._file.path}")
        if not tx.in_transaction:
            raise ValueError("tx= has no open transaction: execute BEGIN first, or leave tx= out")
        return tx


@dataclass(frozen=True)
class AsyncTransaction:
    """The value of an async `transaction`: a connection in a transaction, and the thread that uses it."""

    driver: sqlite3.Connection
    thread: ThreadPoolExecutor

    async def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        """Execute a statement of the caller, and return the cursor with its rows."""
        return await _in_thread(self.thread, self.driver.execute, sql, parameters)


class AsyncConnection(_Sleeping):
    """`Connection`, awaited: a thread writes, and another one reads."""

    def __init__(self, file: File) -> None:
        self.max_payload = file.max_payload
        self._sync = Connection(file)
        self.watcher = self._sync.watcher
        self._threads = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        for thread in self._threads:
            thread.submit(int)  # The kit has all of its threads from the beginning.
        self._ended = False

    async def execute(self, operation: Operation[T], tx: Any = None) -> T:
        """Execute *operation* in *tx*, or in a transaction of its own; undo it for a caller that was cancelled."""
        self._sync.check()
        if tx is not None and not isinstance(tx, AsyncTransaction):
            raise TypeError(f"tx= is what kit.transaction() gives; not {type(tx).__name__}")
        if tx is not None:
            driver, thread = tx.driver, tx.thread
        else:
            driver, thread = None, self._threads[operation.writes]
            if operation.writes:
                self._sync.refuse_forgotten(asyncio.current_task())
        answers: list[T] = []
        try:
            await completed(_in_thread(thread, lambda: answers.append(self._sync.execute(operation, driver))))
        except asyncio.CancelledError:
            undo = operation.undo(answers[0]) if answers and tx is None else None
            if undo is not None:
                await asyncio.shield(_in_thread(thread, self._sync.execute, undo))
            raise
        return answers[0]

    async def sleep(self, probe: Probe, timeout: float | None = None, stop: Stop | None = None) -> bool:
        """Wait until *probe* is ready."""
        loop, bell = asyncio.get_running_loop(), asyncio.Event()

        def ring() -> None:
            with suppress(RuntimeError):  # The loop may be closed before the kit.
                loop.call_soon_threadsafe(bell.set)

        async def step(probe_or_pause: Any) -> Any:
            if probe_or_pause is probe:
                return await self.execute(probe)
            with suppress(TimeoutError):
                async with asyncio.timeout(probe_or_pause):
                    await bell.wait()
            return None

        with self.watcher.sleeping(ring):
            return await run_async(self.watcher.looks(probe, ring, bell.clear, timeout, stop or Stop()), step)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncTransaction]:
        """Provide a transaction for ``tx=``, committed at the end of the block."""
        self._sync.check()
        thread, begun = ThreadPoolExecutor(1), self._sync.transaction(asyncio.current_task())
        try:
            try:
                yield AsyncTransaction(await completed(_in_thread(thread, begun.__enter__)), thread)
            except BaseException as error:
                await completed(_in_thread(thread, begun.__exit__, type(error), error, error.__traceback__))
                raise
            await completed(_in_thread(thread, begun.__exit__, None, None, None))
        finally:
            thread.shutdown(wait=False)

    async def close(self) -> None:
        """Close the file, after the calls in progress."""
        try:
            if not self._ended:
                self._ended = True
                await completed(_in_thread(self._threads[True], self._sync.close))
        finally:
            for thread in self._threads:
                thread.shutdown(wait=False)


async def _in_thread(thread: ThreadPoolExecutor, call: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, call, *arguments)


@contextmanager
def _begun(driver: sqlite3.Connection, begin: str | None) -> Iterator[None]:
    """Run the block in a transaction, and commit it."""
    try:
        if begin is not None:
            driver.execute(begin)
        yield
        driver.execute("COMMIT")
    except BaseException:
        if driver.in_transaction:
            driver.execute("ROLLBACK")
        raise


def _release(watcher: Watcher, *drivers: sqlite3.Connection) -> None:
    watcher.close()
    for driver in drivers:
        driver.close()

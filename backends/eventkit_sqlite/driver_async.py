"""A driver for asyncio: `dbapi` on apsw's async connections, each in a thread of its own.

An async connection of apsw is the same class, whose calls are awaited and run in the connection's thread.
`dbapi` works unchanged there; this module carries calls to the thread and results back.

A cancelled call stops soon: a running statement ends with `apsw.InterruptError`, one that waits for a
lock with `apsw.BusyError`, and the next call waits for neither.  SQLite may have rolled the transaction back,
and the effect of the call is unknown, so the connection must be closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from threading import get_ident
from time import monotonic, sleep
from typing import Any, NamedTuple
from weakref import ref

import apsw

from . import dbapi
from .worker import ThreadExecutor, open_in

_STEPS = 5_000_000
"""Steps of SQLite's virtual machine, about 0.1 s, after which a statement checks whether its call was cancelled.

The check takes the GIL, and waits for it while the event loop is busy.
"""

_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.02


class Result(NamedTuple):
    """The rows of a statement and the attributes of its cursor."""

    rows: list[Any]
    description: Any
    rowcount: int
    lastrowid: int | None


class Stream:
    """The rows of a statement that is still running."""

    def __init__(self, cursor: dbapi.Cursor) -> None:
        self.description = cursor.description
        self.rowcount = cursor.rowcount
        self.lastrowid = cursor.lastrowid
        self._connection = cursor.connection
        self._cursor: dbapi.Cursor | None = cursor

    def fetch(self, size: int | None = None) -> Awaitable[list[Any]]:
        """Return the next *size* rows, or all that are left."""
        if self._cursor is None:
            raise apsw.CursorClosedError("The result is closed")
        return self._connection.async_run(self._fetch, self._cursor, size)  # type: ignore[attr-defined, no-any-return]

    def close(self) -> None:
        """End the statement before the next one on the connection; return at once."""
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            with suppress(apsw.ConnectionClosedError):
                self._connection.async_controller.post(partial(_close_cursor, cursor))  # type: ignore[attr-defined]

    __del__ = close

    def _fetch(self, cursor: dbapi.Cursor, size: int | None) -> list[Any]:
        return cursor.fetchall() if size is None else cursor.fetchmany(size)


class Connection(dbapi.Connection):
    """An async `apsw.Connection` with explicit begin, commit and rollback, made by `connect`."""

    writing = False
    """Whether the transaction has the write lock, as of the last call of this class."""

    def __init__(self, database: str, *, timeout: float = 5.0, **options: Any) -> None:
        super().__init__(database, timeout=timeout, **options)
        own = get_ident()
        # Outside its thread the connection behaves as plain apsw: its cursors are awaited.
        self.cursor_factory = lambda connection: (dbapi if get_ident() == own else apsw).Cursor(connection)
        executor = self.async_controller
        assert isinstance(executor, CancellableExecutor)
        self._executor: CancellableExecutor = executor
        self.set_progress_handler(executor.is_unwanted, _STEPS, id=executor)
        # SQLite's own busy handler would sleep through a cancellation, and then take the lock.
        self.set_busy_handler(executor.wait_for_lock)
        executor.timeout = timeout
        self.path: str = self.db_filename("main")
        self._beginner: tuple[Callable[[], object], int] | None = None

    def begin(self) -> Awaitable[None]:  # type: ignore[override]
        """Begin a transaction, which belongs to the current task."""
        task = asyncio.current_task()
        self._beginner = (ref(task) if task else _no_task, get_ident())
        return self.async_run(super().begin)

    def commit(self) -> Awaitable[None]:  # type: ignore[override]
        """Commit, if a transaction is open. After `apsw.BusyError` it is still open."""
        return self.async_run(super().commit)

    def rollback(self) -> Awaitable[None]:  # type: ignore[override]
        """Roll back, if a transaction is open."""
        return self.async_run(super().rollback)

    def run(self, statements: str, bindings: apsw.Bindings | None) -> Awaitable[Result]:
        """Execute, and fetch all rows."""
        return self.async_run(self._run, dbapi.Cursor.execute, statements, bindings)

    def run_many(self, statements: str, sequenceofbindings: Iterable[apsw.Bindings]) -> Awaitable[Result]:
        """Execute once for each of the bindings. Rows that the statement returns are dropped."""
        return self.async_run(self._run, dbapi.Cursor.executemany, statements, sequenceofbindings)

    def stream(self, statements: str, bindings: apsw.Bindings | None) -> Awaitable[Stream]:
        """Execute, and produce rows as they are fetched."""
        return self.async_run(self._stream, statements, bindings)

    def _run(self, execute: Callable[..., Any], statements: str, bindings: Any) -> Result:
        # apsw cannot create or free a cursor while the connection's thread uses another one, as when tasks share a
        # connection.  The event loop therefore sees only closed cursors.
        cursor: Any = self.cursor()
        try:
            execute(cursor, statements, bindings)
            rows = cursor.fetchall() if cursor.description else []
            return Result(rows, cursor.description, cursor.rowcount, cursor.lastrowid)
        finally:
            cursor.close(True)

    def _stream(self, statements: str, bindings: apsw.Bindings | None) -> Stream:
        cursor: Any = self.cursor()
        try:
            cursor.execute(statements, bindings)
        except BaseException:
            cursor.close(True)
            raise
        return Stream(cursor)

    def create_function(  # type: ignore[override]
        self, name: str, narg: int, func: Callable[..., Any] | None, *, deterministic: bool = False
    ) -> Awaitable[None]:
        """Register a scalar function, which will run in the connection's thread."""
        return self.async_run(super().create_function, name, narg, func, deterministic=deterministic)

    def abort(self) -> Awaitable[None]:
        """Interrupt the running statement, and close."""
        with suppress(apsw.ConnectionClosedError):
            self.interrupt()
        return self.aclose(True)

    def abort_soon(self) -> None:
        """Interrupt and close without waiting; there may be no event loop."""
        with suppress(apsw.ConnectionClosedError):
            self.interrupt()
            self.async_controller.post(partial(self.close, True))  # type: ignore[attr-defined]

    def aclose(self, force: bool = False) -> Awaitable[None]:
        """Close, which rolls back an open transaction."""
        closing: Awaitable[None] = super().aclose(force)  # type: ignore[misc]
        if isinstance(closing, asyncio.Future):  # Else it is closed already.
            closing.add_done_callback(lambda _: self._write_lock.close())
        return closing

    def busy_timeout(self) -> float:
        """Return how many seconds a statement waits for a lock."""
        return self._executor.timeout

    def set_patience(self, seconds: float) -> None:
        """Set how many seconds statements wait for a lock."""
        self._executor.timeout = seconds

    def is_unwanted(self) -> bool:
        """Return whether the running call was cancelled."""
        return self._executor.is_unwanted()

    def holds_up(self, caller: object) -> bool:
        """Return whether *caller*, a task or a thread ident, has a transaction open here that has the write lock."""
        if not self.writing or self._beginner is None:
            return False
        task, loop_thread = self._beginner
        return caller in (task(), loop_thread)

    def async_run(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Awaitable[Any]:
        """Run *call* in the connection's thread, and return its result."""
        return super().async_run(self._run_and_record, call, *arguments, **options)  # type: ignore[misc, no-any-return]

    def _run_and_record(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if self._executor.is_unwanted():
            return None
        try:
            return call(*arguments, **options)
        finally:
            # Read from other threads, which must not wait for this one.
            self.writing = self.txn_state("main") == apsw.SQLITE_TXN_WRITE


class CancellableExecutor(ThreadExecutor):
    """A connection's thread that knows whether the running call was cancelled."""

    timeout = 0.0
    """How many seconds to wait for a lock."""

    _current: asyncio.Future[Any] | None = None
    _deadline = 0.0

    def is_unwanted(self) -> bool:
        """Return whether the running call was cancelled."""
        return self._current is not None and self._current.cancelled()

    def wait_for_lock(self, tries: int) -> bool:
        """Wait a moment.  Return False after the timeout, or if the call was cancelled."""
        now = monotonic()
        if not tries:
            self._deadline = now + self.timeout
        if now >= self._deadline or self.is_unwanted():
            return False
        sleep(min(_FIRST_PAUSE * 2 ** min(tries, 10), _LONGEST_PAUSE, self._deadline - now))
        return True

    def _answer(self, future: asyncio.Future[Any] | None, call: Callable[[], Any]) -> None:
        self._current = future
        super()._answer(future, call)
        self._current = None


async def connect(database: str, **options: Any) -> Connection:
    """Return a connection; see `dbapi.Connection`."""
    opening = asyncio.ensure_future(open_in(CancellableExecutor, Connection, database, **options))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_unwanted)
        raise


def _close_cursor(cursor: dbapi.Cursor) -> None:
    cursor.close(True)


def _close_unwanted(opening: asyncio.Future[Connection]) -> None:
    if opening.exception() is None:
        opening.result().abort_soon()


def _no_task() -> None:
    return None

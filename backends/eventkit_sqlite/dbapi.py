"""The parts of DB-API 2.0 that SQLAlchemy uses, on apsw's own connection and cursor.

Both classes here are subclasses of apsw's, so the driver connection that SQLAlchemy hands out is an
`apsw.Connection`, and rows are fetched by apsw's C code. Nothing guesses from the text of a statement when
a transaction starts: the dialect says so. Errors stay apsw's own, with their extended result codes; the
dialect tells SQLAlchemy which class of DB-API 2.0 each of them stands for.

For asyncio there is `AsyncConnection`, in a thread of its own. An async connection of apsw is the same class,
whose calls are awaited and run in the connection's thread, where `Connection` and `Cursor` work unchanged. A
cancelled call stops soon: a running statement ends with `apsw.InterruptError`, one that waits for a lock with
`apsw.BusyError`, and the next call waits for neither. SQLite may have rolled the transaction back, and the effect
of the call is unknown, so the connection must be closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from threading import get_ident
from time import monotonic, sleep
from typing import Any, NamedTuple
from weakref import ref

import apsw

from .library import ThreadExecutor, open_in
from .writer import WriteLock

apilevel = "2.0"
paramstyle = "qmark"
threadsafety = 2  # threads may share connections, but not cursors

Binary = memoryview
Error = apsw.Error
sqlite_version_info = tuple(map(int, apsw.sqlite_lib_version().split(".")))

_STEPS = 5_000_000
"""Steps of SQLite's virtual machine, about 0.1 s, after which a statement checks whether its call was cancelled.

The check takes the GIL, and waits for it while the event loop is busy.
"""

_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.02


class Cursor(apsw.Cursor):
    """A cursor that still knows its columns when a query found no rows.

    `rowcount` and `lastrowid` belong to the statement that ran last and are meant for INSERT, UPDATE and
    DELETE; a statement that returns rows has a `rowcount` of -1.
    """

    arraysize = 1
    description: Any = None
    lastrowid: int | None = None
    rowcount = -1

    def execute(self, statements: str, bindings: apsw.Bindings | None = None, **options: Any) -> Cursor:
        self.exec_trace = _prepared
        connection: Any = self.connection
        try:
            super().execute(statements, bindings, **options)
        except TypeError as error:
            # A type that SQLite does not support. As an `Error`, SQLAlchemy shows it with the statement.
            raise apsw.BindingsError(*error.args) from error
        finally:
            connection.executed()
        self.rowcount = -1 if self.description else connection.changes()
        self.lastrowid = connection.last_insert_rowid()
        return self

    def executemany(self, statements: str, sequenceofbindings: Iterable[apsw.Bindings], **options: Any) -> Cursor:
        """Execute once for each of the bindings. Rows that the statement returns are dropped."""
        # The trace would be called for each of the bindings, and there is nothing to describe.
        self.exec_trace = self.description = None
        connection: Any = self.connection
        try:
            connection.wait_to_write()
            super().executemany(statements, self._counted(sequenceofbindings), **options)
            self.fetchall()
        except TypeError as error:
            raise apsw.BindingsError(*error.args) from error
        finally:
            connection.executed()
        return self

    def _counted(self, sequenceofbindings: Iterable[apsw.Bindings]) -> Iterator[apsw.Bindings]:
        # total_changes() would be one call for all rows, but it includes what triggers and foreign keys
        # change, and SQLAlchemy's ORM takes a count that differs from its own for stale data.
        changes, total = self.connection.changes, 0
        for bindings in sequenceofbindings:
            yield bindings
            total += changes()
        self.rowcount = total

    def fetchmany(self, size: int | None = None) -> list[Any]:
        return list(islice(self, self.arraysize if size is None else size))


_columns = vars(apsw.Cursor)["description"].__get__  # apsw's attribute, which that of our Cursor hides


def _prepared(cursor: Any, sql: str, bindings: apsw.Bindings | None) -> bool:
    # apsw forgets the columns with the last row, which for an empty result is inside execute().
    cursor.description = _columns(cursor) or None
    if not cursor.is_readonly:
        cursor.connection.wait_to_write()
    return True


class Connection(apsw.Connection):
    """An `apsw.Connection` with explicit begin, commit and rollback.

    It may be used by other threads than the one that made it.
    """

    autocommit = False
    """Whether `begin` does nothing, so that each statement is a transaction of its own."""

    thread: int | None = None
    """The ident of the thread that began the open transaction."""

    def __init__(self, database: str, *, timeout: float = 5.0, uri: bool = False, begin: str = "deferred") -> None:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        super().__init__(database, flags | apsw.SQLITE_OPEN_URI if uri else flags)
        self.cursor_factory = Cursor
        self.transaction_mode = begin
        self.set_busy_timeout(round(timeout * 1000))
        self._write_lock = WriteLock(self.db_filename("main"))
        self._patience: float | None = None

    def begin(self) -> None:
        """Begin a transaction."""
        if self.autocommit:
            return
        # A listener for SQLAlchemy's event "begin" may have sent a BEGIN of its own.
        if not self.in_transaction:
            self.execute(f"BEGIN {self.transaction_mode}")
        self.thread = get_ident()

    def commit(self) -> None:
        """Commit, if a transaction is open. After `apsw.BusyError` it is still open."""
        if self.in_transaction:
            self.execute("COMMIT")
        self.thread = None

    def rollback(self) -> None:
        """Roll back, if a transaction is open."""
        if self.in_transaction:
            self.execute("ROLLBACK")
        self.thread = None

    def close(self, force: bool = False) -> None:
        """Close, which rolls back an open transaction."""
        super().close(force)
        self._write_lock.close()

    def wait_to_write(self) -> None:
        """Wait for this connection's turn to write, unless it has it already, for at most the busy timeout.

        SQLite itself reports that the file is busy. A transaction that has read does not wait: commits of others would
        outdate its snapshot, and without a WAL the writer before it waits for its end.
        """
        lock = self._write_lock
        if lock.held or lock.take() or self.txn_state("main") == apsw.SQLITE_TXN_READ:
            return
        patience = self.busy_timeout()
        deadline = monotonic() + patience
        lock.take(lambda: monotonic() >= deadline or self.is_unwanted())
        self._patience = patience
        self.set_patience(max(0.0, deadline - monotonic()))

    def executed(self) -> None:
        """Let the next connection write, unless this one is in a transaction that has written."""
        if self._patience is not None:
            self.set_patience(self._patience)
            self._patience = None
        if self._write_lock.held and not (self.in_transaction and self.txn_state("main") == apsw.SQLITE_TXN_WRITE):
            self._write_lock.release()

    def busy_timeout(self) -> float:
        """Return how many seconds SQLite waits for a lock."""
        return float(self.pragma("busy_timeout")) / 1000

    def set_patience(self, seconds: float) -> None:
        """Set how many seconds SQLite waits for a lock."""
        self.set_busy_timeout(round(seconds * 1000))

    def is_unwanted(self) -> bool:
        """Return whether the running call was cancelled."""
        return False

    def create_function(
        self, name: str, narg: int, func: Callable[..., Any] | None, *, deterministic: bool = False
    ) -> Any:
        """Register a scalar function, by the name that `sqlite3` gives to this method."""
        return self.create_scalar_function(name, func, narg, deterministic=deterministic)


class Result(NamedTuple):
    """The rows of a statement and the attributes of its cursor."""

    rows: list[Any]
    description: Any
    rowcount: int
    lastrowid: int | None


class Stream:
    """The rows of a statement that is still running."""

    def __init__(self, cursor: Cursor) -> None:
        self.description = cursor.description
        self.rowcount = cursor.rowcount
        self.lastrowid = cursor.lastrowid
        self._connection: Any = cursor.connection
        self._cursor: Cursor | None = cursor

    def fetch(self, size: int | None = None) -> Awaitable[list[Any]]:
        """Return the next *size* rows, or all that are left."""
        if self._cursor is None:
            raise apsw.CursorClosedError("The result is closed")
        fetch = self._cursor.fetchall if size is None else partial(self._cursor.fetchmany, size)
        rows: Awaitable[list[Any]] = self._connection.async_run(fetch)
        return rows

    def close(self) -> None:
        """End the statement before the next one on the connection; return at once."""
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            with suppress(apsw.ConnectionClosedError):
                self._connection.async_controller.post(partial(cursor.close, True))

    __del__ = close


class AsyncConnection(Connection):
    """A `Connection` whose calls are awaited, made by `connect_async`."""

    writing = False
    """Whether the transaction has the write lock, as of the last call of this class."""

    def __init__(self, database: str, *, timeout: float = 5.0, **options: Any) -> None:
        super().__init__(database, timeout=timeout, **options)
        own = get_ident()
        # Outside its thread the connection behaves as plain apsw: its cursors are awaited.
        self.cursor_factory = lambda connection: (Cursor if get_ident() == own else apsw.Cursor)(connection)
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
        self._beginner = (ref(task) if task else lambda: None, get_ident())
        return self.async_run(super().begin)

    def commit(self) -> Awaitable[None]:  # type: ignore[override]
        return self.async_run(super().commit)

    def rollback(self) -> Awaitable[None]:  # type: ignore[override]
        return self.async_run(super().rollback)

    def run(self, execute: Callable[..., Any], statements: str, bindings: Any) -> Result:
        """Execute by a method of `Cursor`, and fetch all rows.  Call it with `async_run`."""
        # apsw cannot create or free a cursor while the connection's thread uses another one, as when tasks share a
        # connection.  The event loop therefore sees only closed cursors.
        cursor: Any = self.cursor()
        try:
            execute(cursor, statements, bindings)
            rows = cursor.fetchall() if cursor.description else []
            return Result(rows, cursor.description, cursor.rowcount, cursor.lastrowid)
        finally:
            cursor.close(True)

    def stream(self, statements: str, bindings: apsw.Bindings | None) -> Stream:
        """Execute, and fetch rows on demand.  Call it with `async_run`."""
        cursor: Any = self.cursor()
        try:
            cursor.execute(statements, bindings)
        except BaseException:
            cursor.close(True)
            raise
        return Stream(cursor)

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
        return self._executor.timeout

    def set_patience(self, seconds: float) -> None:
        self._executor.timeout = seconds

    def is_unwanted(self) -> bool:
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


async def connect_async(database: str, **options: Any) -> AsyncConnection:
    """Return a connection; see `Connection`."""
    opening = asyncio.ensure_future(open_in(CancellableExecutor, AsyncConnection, database, **options))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_unwanted)
        raise


def _close_unwanted(opening: asyncio.Future[AsyncConnection]) -> None:
    if opening.exception() is None:
        opening.result().abort_soon()


connect = Connection

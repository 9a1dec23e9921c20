"""The parts of DB-API 2.0 that SQLAlchemy uses, on apsw's own connection and cursor.

Both classes here are subclasses of apsw's, so the driver connection that SQLAlchemy hands out is an
`apsw.Connection`, and rows are fetched by apsw's C code. Nothing guesses from the text of a statement when
a transaction starts: the dialect says so. Errors stay apsw's own, with their extended result codes; the
dialect tells SQLAlchemy which class of DB-API 2.0 each of them stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from threading import get_ident
from time import monotonic
from typing import Any

import apsw

from .write_lock import WriteLock

apilevel = "2.0"
paramstyle = "qmark"
threadsafety = 2  # threads may share connections, but not cursors

Binary = memoryview
Error = apsw.Error
sqlite_version_info = tuple(map(int, apsw.sqlite_lib_version().split(".")))


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
    ) -> None:
        """Register a scalar function, by the name that `sqlite3` gives to this method."""
        self.create_scalar_function(name, func, narg, deterministic=deterministic)


connect = Connection


def transaction_thread(connection: apsw.Connection) -> int | None:
    """Return the ident of the thread in which SQLAlchemy began the transaction that *connection* is in.

    None if no transaction is open, or if it was begun in another way than by the dialect.
    """
    return connection.thread if isinstance(connection, Connection) and connection.in_transaction else None

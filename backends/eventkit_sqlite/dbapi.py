"""What SQLAlchemy needs of DB-API 2.0, on apsw's own connection and cursor.

Both classes here are subclasses of apsw's, so the driver connection that SQLAlchemy hands out is an
`apsw.Connection`, and rows are fetched by apsw's C code. Nothing guesses from the text of a statement when
a transaction starts: the dialect says so. Errors stay apsw's own, with their extended result codes; the
dialect tells SQLAlchemy which class of DB-API 2.0 each of them stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from threading import get_ident
from typing import Any

import apsw

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
        self.exec_trace = _describe
        try:
            super().execute(statements, bindings, **options)
        except TypeError as error:
            # A value of a type that SQLite has not. As an `Error`, SQLAlchemy shows it with the statement.
            raise apsw.BindingsError(*error.args) from error
        connection = self.connection
        self.rowcount = -1 if self.description else connection.changes()
        self.lastrowid = connection.last_insert_rowid()
        return self

    def executemany(self, statements: str, sequenceofbindings: Iterable[apsw.Bindings], **options: Any) -> Cursor:
        """Execute once for each of the bindings. Rows that the statement returns are dropped."""
        # The trace would be called for each of the bindings, and there is nothing to describe.
        self.exec_trace = self.description = None
        try:
            super().executemany(statements, self._counted(sequenceofbindings), **options)
            self.fetchall()
        except TypeError as error:
            raise apsw.BindingsError(*error.args) from error
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


def _describe(cursor: Any, sql: str, bindings: apsw.Bindings | None) -> bool:
    # apsw forgets the columns with the last row, which for an empty result is inside execute().
    cursor.description = _columns(cursor) or None
    return True


class Connection(apsw.Connection):
    """An `apsw.Connection` that begins, commits and rolls back when told to.

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

    def begin(self) -> None:
        """Begin a transaction."""
        if self.autocommit:
            return
        # A listener for SQLAlchemy's event "begin" may have sent a BEGIN of its own.
        if not self.in_transaction:
            self.execute(f"BEGIN {self.transaction_mode}")
        self.thread = get_ident()

    def commit(self) -> None:
        """Commit, if there is a transaction. After `apsw.BusyError` it is still open."""
        if self.in_transaction:
            self.execute("COMMIT")
        self.thread = None

    def rollback(self) -> None:
        """Roll back, if there is a transaction."""
        if self.in_transaction:
            self.execute("ROLLBACK")
        self.thread = None

    def create_function(
        self, name: str, narg: int, func: Callable[..., Any] | None, *, deterministic: bool = False
    ) -> None:
        """Register a scalar function, by the name that `sqlite3` gives to this method."""
        self.create_scalar_function(name, func, narg, deterministic=deterministic)


connect = Connection


def transaction_thread(connection: apsw.Connection) -> int | None:
    """The ident of the thread in which SQLAlchemy began the transaction that *connection* is in.

    None if no transaction is open, or if it was begun in another way than by the dialect.
    """
    return connection.thread if isinstance(connection, Connection) and connection.in_transaction else None

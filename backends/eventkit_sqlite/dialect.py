"""The SQLAlchemy dialects `sqlite+apsw://` and `sqlite+apsw_async://`: SQLAlchemy and eventkit on one SQLite library.

apsw's wheel and the standard library's `sqlite3` each contain an SQLite of their own. Within one process
neither sees the other's file locks, and an engine on `sqlite://` beside eventkit on the same file loses
committed rows without an error. This dialect is SQLAlchemy's own for SQLite, on apsw.

    create_engine("sqlite+apsw:///shop.db?timeout=10&begin=immediate")

`timeout` is how many seconds to wait for another connection's lock (5). `begin` is how transactions begin:
`deferred` (the default), `immediate` or `exclusive`. With `uri=true` the database is an SQLite URI
(`file:shop.db`), and all other options are parameters of that URI.

Connections of all processes write first come, first served (see `writer`): a transaction waits for its turn before its
first write. One that has read before is not made to wait, because what others commit meanwhile outdates its snapshot;
SQLite refuses it with `OperationalError` while another connection writes. So begin transactions that read before they
write with `begin=immediate`.

Unlike those of SQLAlchemy's `sqlite://`, transactions begin when SQLAlchemy says so. Therefore savepoints nest, a
transaction sees one snapshot from its first SELECT on, and DDL is rolled back with it (for Alembic, say
`transactional_ddl=True` in `context.configure`). A PRAGMA that SQLite refuses or ignores within a transaction, as
`foreign_keys`, belongs into a listener for the event "connect", or into a connection with isolation level AUTOCOMMIT.

`sqlite+apsw_async://` has the same options for AsyncSession and AsyncConnection. A file has a pool of connections, each
with a thread of its own; a database in memory has one connection for all. Rows are streamed if requested
(`AsyncSession.stream()`). A connection whose statement was cancelled is closed, which rolls its transaction back, and
the pool makes a new one. Functions given to a connection run in its thread. An engine may serve several event loops,
one after another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode

import apsw
from sqlalchemy import exc, pool, util
from sqlalchemy.connectors.asyncio import AsyncAdapt_dbapi_connection, AsyncAdapt_dbapi_cursor
from sqlalchemy.dialects.sqlite.base import SQLiteDialect, SQLiteExecutionContext
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util.concurrency import in_greenlet

from . import dbapi
from .transaction import register

if TYPE_CHECKING:
    from sqlalchemy import URL
    from sqlalchemy.engine.interfaces import ConnectArgsType, DBAPIModule, IsolationLevel
    from sqlalchemy.util.concurrency import await_
else:
    try:
        from sqlalchemy.util.concurrency import await_
    except ImportError:  # SQLAlchemy 2.0
        from sqlalchemy.util import await_only as await_


def _mode(begin: str) -> str:
    if begin.lower() not in (modes := ("deferred", "immediate", "exclusive")):
        raise exc.ArgumentError(f"begin={begin}: must be one of {', '.join(modes)}")
    return begin


_OPTIONS: dict[str, Callable[[Any], object]] = {"timeout": float, "begin": _mode, "uri": util.asbool}

# The classes that sqlite3 raises for the same result codes, so that what an application catches stays the
# same. SQLAlchemy looks up the name of an error's class, then those of its bases; `Error` is apsw's base.
_CLASSES = {
    "DataError": "TooBigError",
    "DatabaseError": "Error",
    "IntegrityError": "ConstraintError MismatchError",
    "InterfaceError": "MisuseError RangeError",
    "InternalError": "NotFoundError",
    "OperationalError": (
        "AbortError BusyError CantOpenError EmptyError FullError IOError InterruptError LockedError NoMemError "
        "PermissionsError ProtocolError ReadOnlyError SQLError SchemaChangeError"
    ),
    "ProgrammingError": (
        "BindingsError ConnectionClosedError CursorClosedError ExecutionCompleteError IncompleteExecutionError "
        "ThreadingViolationError"
    ),
}
_ERRORS = {name: kind for kind, names in _CLASSES.items() for name in names.split()}


class ApswDialect(SQLiteDialect_pysqlite):
    """SQLAlchemy's SQLite dialect on apsw; see the module."""

    driver = "apsw"
    supports_statement_cache = True

    dbapi_exception_translation_map = _ERRORS

    @classmethod
    def import_dbapi(cls) -> DBAPIModule:
        return cast("DBAPIModule", dbapi)

    def create_connect_args(self, url: URL) -> ConnectArgsType:
        query: dict[str, Any] = dict(url.query)
        options: dict[str, Any] = {
            name: convert(query.pop(name)) for name, convert in _OPTIONS.items() if name in query
        }
        [filename], _ = super().create_connect_args(url.set(query={}))
        if options.get("uri"):
            filename = (url.database or ":memory:") + ("?" + urlencode(query, doseq=True) if query else "")
        elif query:
            raise exc.ArgumentError(
                f"sqlite+{self.driver} has no option {', '.join(sorted(query))}; it has {', '.join(_OPTIONS)}, "
                "and with uri=true and a database of the form file:… the parameters of an SQLite URI"
            )
        return [filename], options

    def on_connect(self) -> Callable[[Any], None]:
        prepare = super().on_connect()

        def connect(connection: Any) -> None:
            prepare(connection)
            self.give_functions(connection)

        return connect

    def give_functions(self, connection: Any) -> None:
        """Let SQL on *connection* call eventkit's functions."""
        register(connection)

    def set_isolation_level(self, dbapi_connection: Any, level: IsolationLevel) -> None:
        dbapi_connection.autocommit = level == "AUTOCOMMIT"
        if not dbapi_connection.autocommit:
            # Not pysqlite's, which sets an attribute that only sqlite3 has.
            SQLiteDialect.set_isolation_level(self, dbapi_connection, level)

    def detect_autocommit_setting(self, dbapi_conn: Any) -> bool:
        return bool(dbapi_conn.autocommit)

    def do_begin(self, dbapi_connection: Any) -> None:
        dbapi_connection.begin()

    def is_disconnect(self, e: Exception, connection: Any, cursor: Any) -> bool:
        return isinstance(e, apsw.ConnectionClosedError)


class _ExecutionContext(SQLiteExecutionContext):
    def create_server_side_cursor(self) -> Any:
        return self._dbapi_connection.cursor(server_side=True)


class ApswAsyncDialect(ApswDialect):
    """SQLAlchemy's SQLite dialect on apsw, for asyncio; see the module."""

    driver = "apsw_async"
    supports_statement_cache = True

    is_async = True
    has_terminate = True
    supports_server_side_cursors = True
    execution_ctx_cls = _ExecutionContext

    @classmethod
    def import_dbapi(cls) -> DBAPIModule:
        return cast("DBAPIModule", _AsyncModule())

    @classmethod
    def get_pool_class(cls, url: URL) -> type[pool.Pool]:
        return pool.AsyncAdaptedQueuePool if cls._is_url_file_db(url) else pool.StaticPool

    def get_driver_connection(self, connection: Any) -> Any:
        return connection._connection

    def give_functions(self, connection: Any) -> None:
        connection.run_async(lambda driver: driver.async_run(register, driver))

    def do_terminate(self, dbapi_connection: Any) -> None:
        dbapi_connection.terminate()


class _AsyncModule:
    """`dbapi`, with connections for the greenlets in which SQLAlchemy runs its own code.

    A statement and its rows take one round trip to the connection's thread, unless the rows are streamed.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(dbapi, name)

    def connect(
        self, *arguments: Any, async_creator_fn: Callable[..., Any] = dbapi.connect_async, **options: Any
    ) -> _AdaptedConnection:
        """Return a connection, from within a greenlet."""
        return _AdaptedConnection(cast("DBAPIModule", self), await_(async_creator_fn(*arguments, **options)))


class _Cursor(AsyncAdapt_dbapi_cursor):
    """A cursor that has all rows of its result."""

    _awaitable_cursor_close = False
    arraysize: Any = 1

    def __init__(self, adapt_connection: _AdaptedConnection) -> None:
        # SQLAlchemy's version asks the driver for a cursor and waits for a lock tied to an event loop; here the
        # connection's thread serializes the calls.
        self._adapt_connection = adapt_connection
        self._connection: Any = adapt_connection._connection
        self._cursor: Any = dbapi.Result([], None, -1, None)
        self._rows = deque()
        self._soft_closed_memoized: Any = {}

    def execute(self, operation: Any, parameters: Any = None) -> Any:
        self._run(dbapi.Cursor.execute, operation, parameters)

    def executemany(self, operation: Any, seq_of_parameters: Any) -> Any:
        self._run(dbapi.Cursor.executemany, operation, seq_of_parameters)

    def _run(self, *call: Any) -> None:
        self._cursor = await_(self._connection.async_run(self._connection.run, *call))
        self._rows = deque(self._cursor.rows)

    def close(self) -> None:
        self._rows.clear()


class _StreamingCursor(_Cursor):
    """A cursor that fetches rows on demand."""

    server_side = True

    def execute(self, operation: Any, parameters: Any = None) -> Any:
        self.close()
        self._cursor = await_(self._connection.async_run(self._connection.stream, operation, parameters))

    def fetchone(self) -> Any:
        return next(iter(self.fetchmany(1)), None)

    def fetchmany(self, size: int | None = None) -> Any:
        return await_(self._cursor.fetch(self.arraysize if size is None else size))

    def fetchall(self) -> Any:
        return await_(self._cursor.fetch())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fetchone, None)

    def close(self) -> None:
        if isinstance(self._cursor, dbapi.Stream):
            self._cursor.close()


class _AdaptedConnection(AsyncAdapt_dbapi_connection):
    """A `dbapi.AsyncConnection` with the interface of `dbapi.Connection`."""

    _connection: Any
    _cursor_cls: Any = _Cursor
    _ss_cursor_cls: Any = _StreamingCursor

    autocommit = False
    """Whether `begin` does nothing, so that each statement is a transaction of its own."""

    def begin(self) -> None:
        """Begin a transaction."""
        if not self.autocommit:
            self.run_async(lambda connection: connection.begin())

    def create_function(
        self, name: str, narg: int, func: Callable[..., Any] | None, *, deterministic: bool = False
    ) -> None:
        """Register a scalar function."""
        self.run_async(lambda connection: connection.create_function(name, narg, func, deterministic=deterministic))

    def close(self) -> None:
        """Close, which rolls back an open transaction."""
        self.run_async(lambda connection: connection.aclose(True))

    def terminate(self) -> None:
        """Close a connection whose call was cancelled, or that was not closed."""
        if in_greenlet():
            # A cancellation must not stop it: it continues in the connection's thread.
            self.run_async(lambda connection: asyncio.shield(connection.abort()))
        else:
            self._connection.abort_soon()

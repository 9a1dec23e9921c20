"""The SQLAlchemy dialect `sqlite+apsw://`: SQLAlchemy and eventkit on one SQLite library.

apsw's wheel and the standard library's `sqlite3` each contain an SQLite of their own. Within one process
neither sees the other's file locks, and an engine on `sqlite://` beside eventkit on the same file loses
committed rows without an error. This dialect is SQLAlchemy's own for SQLite, on apsw.

    create_engine("sqlite+apsw:///shop.db?timeout=10&begin=immediate")

`timeout` is how many seconds to wait for another connection's lock (5). `begin` is how transactions begin:
`deferred` (the default), `immediate` or `exclusive`. With `uri=true` the database is an SQLite URI
(`file:shop.db`), and all other options are parameters of that URI.

Connections take turns to write, first come, first served, across processes (see `write_lock`): a transaction waits for
its turn before its first write. One that has read before is not made to wait, because what others commit meanwhile
outdates its snapshot; SQLite refuses it with `OperationalError` while another connection writes. So transactions that
read before they write are better begun with `begin=immediate`.

Unlike those of SQLAlchemy's `sqlite://`, transactions begin when SQLAlchemy says so. Therefore savepoints
nest, a transaction sees one snapshot from its first SELECT on, and DDL is rolled back with it (for Alembic,
say `transactional_ddl=True` in `context.configure`). A PRAGMA that SQLite ignores or refuses within a
transaction, as `foreign_keys` and `journal_mode`, belongs into a listener for the event "connect", or into a
connection with the isolation level AUTOCOMMIT.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode

import apsw
from sqlalchemy import exc, util
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from . import dbapi
from .functions import register

if TYPE_CHECKING:
    from sqlalchemy import URL
    from sqlalchemy.engine.interfaces import ConnectArgsType, DBAPIModule, IsolationLevel


def _mode(begin: str) -> str:
    if begin.lower() not in (modes := ("deferred", "immediate", "exclusive")):
        raise exc.ArgumentError(f"begin={begin}: must be one of {', '.join(modes)}")
    return begin


_OPTIONS: dict[str, Callable[[Any], object]] = {"timeout": float, "begin": _mode, "uri": util.asbool}

# The classes that sqlite3 raises for the same result codes, so that what an application catches stays the
# same. SQLAlchemy looks up the name of an error's class, then those of its bases; `Error` is apsw's base.
_ERRORS = {
    "AbortError": "OperationalError",
    "BindingsError": "ProgrammingError",
    "BusyError": "OperationalError",
    "CantOpenError": "OperationalError",
    "ConnectionClosedError": "ProgrammingError",
    "ConstraintError": "IntegrityError",
    "CursorClosedError": "ProgrammingError",
    "EmptyError": "OperationalError",
    "Error": "DatabaseError",
    "ExecutionCompleteError": "ProgrammingError",
    "FullError": "OperationalError",
    "IOError": "OperationalError",
    "IncompleteExecutionError": "ProgrammingError",
    "InterruptError": "OperationalError",
    "LockedError": "OperationalError",
    "MismatchError": "IntegrityError",
    "MisuseError": "InterfaceError",
    "NoMemError": "OperationalError",
    "NotFoundError": "InternalError",
    "PermissionsError": "OperationalError",
    "ProtocolError": "OperationalError",
    "RangeError": "InterfaceError",
    "ReadOnlyError": "OperationalError",
    "SQLError": "OperationalError",
    "SchemaChangeError": "OperationalError",
    "ThreadingViolationError": "ProgrammingError",
    "TooBigError": "DataError",
}


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

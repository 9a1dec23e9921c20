"""The parts of DB-API 2.0 that SQLAlchemy's asyncio extension uses: `driver_async` behind calls without await.

SQLAlchemy runs its own code in a greenlet, from which these calls await the driver. A statement and its rows
take one round trip to the connection's thread, unless the rows are streamed.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from sqlalchemy.connectors.asyncio import (
    AsyncAdapt_dbapi_connection,
    AsyncAdapt_dbapi_cursor,
)
from sqlalchemy.util.concurrency import in_greenlet

from . import driver_async
from .dbapi import Binary, Error, apilevel, paramstyle, sqlite_version_info, threadsafety

if TYPE_CHECKING:
    from sqlalchemy.util.concurrency import await_
else:
    try:
        from sqlalchemy.util.concurrency import await_
    except ImportError:  # SQLAlchemy 2.0
        from sqlalchemy.util import await_only as await_

__all__ = ["Binary", "Error", "apilevel", "connect", "paramstyle", "sqlite_version_info", "threadsafety"]


class Cursor(AsyncAdapt_dbapi_cursor):
    """A cursor that has all rows of its result."""

    _awaitable_cursor_close = False

    def __init__(self, adapt_connection: Connection) -> None:
        # SQLAlchemy's version asks the driver for a cursor and waits for a lock tied to an event loop; here the
        # connection's thread serializes the calls.
        self._adapt_connection = adapt_connection
        self._connection = adapt_connection._connection
        self._cursor: Any = None
        self._rows = deque()
        self._arraysize = 1

    @property
    def arraysize(self) -> int:
        return self._arraysize

    @arraysize.setter
    def arraysize(self, value: int) -> None:
        self._arraysize = value

    @property
    def description(self) -> Any:
        return self._cursor and self._cursor.description

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount if self._cursor else -1

    @property
    def lastrowid(self) -> Any:
        return self._cursor and self._cursor.lastrowid

    def execute(self, operation: Any, parameters: Any = None) -> Any:
        self._keep(await_(self._connection.run(operation, parameters)))

    def executemany(self, operation: Any, seq_of_parameters: Any) -> Any:
        self._keep(await_(self._connection.run_many(operation, seq_of_parameters)))

    def _keep(self, result: driver_async.Result) -> None:
        self._rows = deque(result.rows)
        self._cursor = result

    def close(self) -> None:
        self._rows.clear()


class StreamingCursor(Cursor):
    """A cursor that fetches rows on demand."""

    server_side = True

    def execute(self, operation: Any, parameters: Any = None) -> Any:
        self.close()
        self._cursor = await_(self._connection.stream(operation, parameters))

    def fetchone(self) -> Any:
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> Any:
        return await_(self._cursor.fetch(self.arraysize if size is None else size))

    def fetchall(self) -> Any:
        return await_(self._cursor.fetch())

    def __iter__(self) -> Iterator[Any]:
        while (row := self.fetchone()) is not None:
            yield row

    def close(self) -> None:
        if isinstance(self._cursor, driver_async.Stream):
            self._cursor.close()


class Connection(AsyncAdapt_dbapi_connection):
    """A connection with the interface of `dbapi.Connection`."""

    __slots__ = ()
    _connection: Any
    _cursor_cls: Any = Cursor
    _ss_cursor_cls: Any = StreamingCursor

    @property
    def autocommit(self) -> bool:
        """Whether `begin` does nothing, so that each statement is a transaction of its own."""
        return bool(self._connection.autocommit)

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        self._connection.autocommit = value

    def begin(self) -> None:
        """Begin a transaction."""
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


def connect(*arguments: Any, async_creator_fn: Callable[..., Any] = driver_async.connect, **options: Any) -> Connection:
    """Return a connection, from within SQLAlchemy's greenlet."""
    return Connection(sys.modules[__name__], await_(async_creator_fn(*arguments, **options)))

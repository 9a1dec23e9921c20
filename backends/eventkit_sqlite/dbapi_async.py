"""What SQLAlchemy's asyncio extension needs of DB-API 2.0: `driver_async` behind calls that need no await.

SQLAlchemy runs its own code in a greenlet, out of which these calls await the driver. A statement and its rows
are one trip to the connection's thread and back, unless the rows are streamed.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy.connectors.asyncio import (
    AsyncAdapt_dbapi_connection,
    AsyncAdapt_dbapi_cursor,
    AsyncAdapt_dbapi_ss_cursor,
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

    __slots__ = ()
    _cursor: Any
    _awaitable_cursor_close = False

    async def _execute_async(self, operation: Any, parameters: Any) -> Any:
        # The connection's thread does one thing after another; SQLAlchemy's lock would tie us to an event loop.
        self._rows = deque(await self._cursor.query(operation, parameters))

    async def _executemany_async(self, operation: Any, seq_of_parameters: Any) -> Any:
        await self._cursor.executemany(operation, seq_of_parameters)

    def close(self) -> None:
        self._rows.clear()


class StreamingCursor(AsyncAdapt_dbapi_ss_cursor):
    """A cursor that fetches rows as they are asked for."""

    __slots__ = ()
    _cursor: Any

    async def _execute_async(self, operation: Any, parameters: Any) -> Any:
        await self._cursor.execute(operation, parameters)

    async def _executemany_async(self, operation: Any, seq_of_parameters: Any) -> Any:
        await self._cursor.executemany(operation, seq_of_parameters)

    def close(self) -> None:
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            self._adapt_connection.run_async(lambda connection: cursor.aclose(True))


class Connection(AsyncAdapt_dbapi_connection):
    """A connection that does what `dbapi.Connection` does."""

    __slots__ = ()
    _connection: Any
    _cursor_cls = Cursor
    _ss_cursor_cls = StreamingCursor

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
        """Close, which rolls back what is open."""
        self.run_async(lambda connection: connection.aclose(True))

    def terminate(self) -> None:
        """Close a connection whose call was cancelled, or that was forgotten."""
        if in_greenlet():
            # Whatever else is cancelled, this goes on in the connection's thread.
            self.run_async(lambda connection: asyncio.shield(connection.aclose(True)))
        else:
            driver_async.close_soon(self._connection)


def connect(*arguments: Any, async_creator_fn: Callable[..., Any] = driver_async.connect, **options: Any) -> Connection:
    """A connection, from within SQLAlchemy's greenlet."""
    return Connection(sys.modules[__name__], await_(async_creator_fn(*arguments, **options)))

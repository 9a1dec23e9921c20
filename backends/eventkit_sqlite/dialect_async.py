"""The SQLAlchemy dialect `sqlite+apsw_async://`: `sqlite+apsw://` for AsyncSession and AsyncConnection.

    create_async_engine("sqlite+apsw_async:///shop.db?timeout=10&begin=immediate")

Options, transactions, isolation levels and errors are those of `dialect`. A file has a pool of connections, each
with a thread of its own; a database in memory has one connection for all. Rows are streamed if
requested (`AsyncSession.stream()`). A connection whose statement was cancelled is closed, which rolls its
transaction back, and the pool makes a new one. Functions given to a connection run in its thread.

An engine may serve several event loops, one after another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import pool
from sqlalchemy.dialects.sqlite.base import SQLiteExecutionContext

from .dialect import ApswDialect
from .functions import register

if TYPE_CHECKING:
    from sqlalchemy import URL
    from sqlalchemy.engine.interfaces import DBAPIModule


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
        from . import dbapi_async

        return cast("DBAPIModule", dbapi_async)

    @classmethod
    def get_pool_class(cls, url: URL) -> type[pool.Pool]:
        return pool.AsyncAdaptedQueuePool if cls._is_url_file_db(url) else pool.StaticPool

    def get_driver_connection(self, connection: Any) -> Any:
        return connection._connection

    def give_functions(self, connection: Any) -> None:
        connection.run_async(lambda driver: driver.async_run(register, driver))

    def do_terminate(self, dbapi_connection: Any) -> None:
        dbapi_connection.terminate()

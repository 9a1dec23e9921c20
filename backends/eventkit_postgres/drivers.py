"""Connections of other drivers, as ``tx=``."""

import re
from functools import cache
from typing import Any

from psycopg.pq import TransactionStatus

from eventkit.operations import Operation, Rows

from .statements import Statements, columns, parameters


class Psycopg2:
    """A connection of psycopg2 with an open transaction."""

    def __init__(self, connection: Any) -> None:
        self.driver = connection.connection.driver_connection
        self.autocommit: bool = self.driver.autocommit
        self.place = _place(connection)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.driver.get_transaction_status() in (TransactionStatus.INTRANS, TransactionStatus.INERROR)

    def execute(self, sql: str, values: dict[str, Any] | None = None) -> Rows:
        """Execute *sql*, and return its rows."""
        with self.driver.cursor() as cursor:
            cursor.execute(sql, values)
            return cursor.fetchall() if cursor.description else []

    def fetch(self, known: Statements, step: Operation[Any]) -> Rows:
        """Execute the statement of *step*, and return its rows."""
        statement = known[step.heading]
        values = {str(number): value for number, value in enumerate(parameters(statement, step), 1)}
        return self.execute(_named(statement.sql), values) if values else self.execute(statement.sql)


class Asyncpg:
    """A connection of asyncpg, on which SQLAlchemy begins a transaction with the first statement."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        adapted = connection.sync_connection.connection
        self.driver = adapted.driver_connection
        self.autocommit: bool = adapted.dbapi_connection.autocommit
        self.place = _place(connection)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return bool(self.driver.is_in_transaction())

    async def execute(self, sql: str, values: tuple[Any, ...] = ()) -> Rows:
        """Execute *sql*, and return its rows."""
        rows: Rows = await self._connection.run_sync(_rows, sql, values)
        return rows

    async def fetch(self, known: Statements, step: Operation[Any]) -> Rows:
        """Execute the statement of *step*, and return its rows."""
        statement = known[step.heading]
        return await self.execute(statement.sql, columns(statement, step))


def _place(connection: Any) -> str:
    url = connection.engine.url
    return f"{url.database!r} at {url.host}:{url.port}"


@cache
def _named(sql: str) -> str:
    return re.sub(r"\$(\d+)", r"%(\1)s", sql.replace("%", "%%"))


def _rows(connection: Any, sql: str, values: tuple[Any, ...]) -> Rows:
    cursor = connection.connection.cursor()
    try:
        cursor.execute(sql, values)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
    finally:
        cursor.close()

"""The statements of this backend, and their parameters as Postgres takes them."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from eventkit_migrations.schemas import qualified
from psycopg import AsyncConnection, AsyncRawCursor, Connection, RawCursor
from psycopg.rows import tuple_row

from eventkit.operations import Operation, Rows
from eventkit.sql import Statement, load

NOW = "date_trunc('milliseconds', statement_timestamp())"
"""The moment of the call: stable in a statement, so that an index can be searched for it."""

Statements = dict[type[Operation[Any]], Statement]


@cache
def statements(schema: str) -> Statements:
    """The statements for eventkit's tables in *schema*."""
    loaded = load("eventkit_postgres", lambda number: f"${number}", {"now": NOW})
    return {operation: _qualified(statement, schema) for operation, statement in loaded.items()}


def parameters(statement: Statement, step: Operation[Any]) -> tuple[Any, ...]:
    """The parameters of *step*.  Bulk ones travel as array literals, one for each column of a list of rows."""
    values = statement.values(step)
    if not statement.bulk:
        return values
    columns = list(values)
    for place, column in statement.bulk.items():
        rows = columns[place]
        columns[place] = _array(rows if column is None else [row[column] for row in rows])
    return tuple(columns)


def fetch(driver: Connection[Any], known: Statements, step: Operation[Any]) -> Rows:
    """Execute the statement of *step*; its rows."""
    statement = known[type(step)]
    cursor = RawCursor(driver, row_factory=tuple_row)
    cursor.execute(statement.sql.encode(), parameters(statement, step))
    return cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []


async def fetch_async(driver: AsyncConnection[Any], known: Statements, step: Operation[Any]) -> Rows:
    """`fetch`, awaited."""
    statement = known[type(step)]
    cursor = AsyncRawCursor(driver, row_factory=tuple_row)
    await cursor.execute(statement.sql.encode(), parameters(statement, step))
    return await cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []


def _qualified(statement: Statement, schema: str) -> Statement:
    return Statement(
        qualified(statement.sql, schema), statement.parameters, statement.values, statement.bulk, statement.single
    )


def _array(values: Iterable[Any]) -> str:
    # The driver's own way with lists takes ten times as long.
    return "{" + ",".join([_quoted(value) if type(value) is str else _plain(value) for value in values]) + "}"


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _plain(value: Any) -> str:
    return "NULL" if value is None else str(value)

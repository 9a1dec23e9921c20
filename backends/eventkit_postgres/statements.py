"""The statements of this backend, and their parameters as Postgres takes them."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from eventkit_migrations.schemas import qualified
from psycopg import AsyncConnection, AsyncRawCursor, Connection, RawCursor
from psycopg.rows import tuple_row

from eventkit.operations import Operation, Rows
from eventkit.sql import Statement, load

from .session import AsyncOwnConnection, OwnConnection

NOW = "date_trunc('milliseconds', statement_timestamp())"
"""The moment of the call: stable in a statement, so that an index can be searched for it."""

_SMALL = 100
"""Rows up to which a cursor is kept, because it keeps its rows too."""

_APART, _NULL = "\x1f", "\x1e"
"""What is between texts, and for NULL, where a statement takes them apart by itself.  No JSON and no key has them."""

Statements = dict[type[Operation[Any]], Statement]


@cache
def statements(schema: str) -> Statements:
    """The statements for eventkit's tables in *schema*."""
    loaded = load("eventkit_postgres", lambda number: f"${number}", {"now": NOW})
    return {operation: _qualified(statement, schema) for operation, statement in loaded.items()}


def parameters(statement: Statement, step: Operation[Any]) -> tuple[Any, ...]:
    """The parameters of *step*.  Bulk ones travel as array literals, one for each column of a list of rows.

    Those that ``string_to_array`` takes apart travel as they are, in a seventh of the time.
    """
    values = columns(statement, step)
    if not statement.bulk:
        return values
    apart = "string_to_array(" in statement.sql
    return tuple(
        [
            value
            if place not in statement.bulk
            else _joined(value)
            if apart and f"string_to_array(${place + 1}," in statement.sql
            else _array(value)
            for place, value in enumerate(values)
        ]
    )


def columns(statement: Statement, step: Operation[Any]) -> tuple[Any, ...]:
    """The parameters of *step*.  Bulk ones are lists, one for each column of a list of rows."""
    values = statement.values(step)
    if not statement.bulk:
        return values
    listed = list(values)
    for place, column in statement.bulk.items():
        rows = values[place]
        listed[place] = list(rows) if column is None else [row[column] for row in rows]
    return tuple(listed)


class Kept(OwnConnection):
    """A connection of ours, which keeps a cursor for each statement: a new one costs a third of a call.

    Only for whoever has the connection alone.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.cursors: dict[type[Operation[Any]], RawCursor[Any]] = {}


class AsyncKept(AsyncOwnConnection):
    """The same for asyncio."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.cursors: dict[type[Operation[Any]], AsyncRawCursor[Any]] = {}


def fetch(driver: Connection[Any], known: Statements, step: Operation[Any]) -> Rows:
    """Execute the statement of *step*; its rows."""
    return _fetch(RawCursor(driver, row_factory=tuple_row), known[type(step)], step)


def fetch_alone(driver: Kept, known: Statements, step: Operation[Any]) -> Rows:
    """`fetch`, by somebody who has *driver* alone."""
    kind = type(step)
    cursor = driver.cursors.pop(kind, None) or RawCursor(driver, row_factory=tuple_row)
    rows = _fetch(cursor, known[kind], step)
    if len(rows) <= _SMALL:
        driver.cursors[kind] = cursor
    return rows


def _fetch(cursor: RawCursor[Any], statement: Statement, step: Operation[Any]) -> Rows:
    cursor.execute(_encoded(statement.sql), parameters(statement, step))
    if cursor.pgresult is None:
        with cursor.connection.pipeline():
            pass  # The caller has a pipeline open, and leaving one within it is what brings the answers.
    return cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []


async def fetch_async(driver: AsyncConnection[Any], known: Statements, step: Operation[Any]) -> Rows:
    """`fetch`, awaited."""
    return await _fetch_async(AsyncRawCursor(driver, row_factory=tuple_row), known[type(step)], step)


async def fetch_alone_async(driver: AsyncKept, known: Statements, step: Operation[Any]) -> Rows:
    """`fetch_alone`, awaited."""
    kind = type(step)
    cursor = driver.cursors.pop(kind, None) or AsyncRawCursor(driver, row_factory=tuple_row)
    rows = await _fetch_async(cursor, known[kind], step)
    if len(rows) <= _SMALL:
        driver.cursors[kind] = cursor
    return rows


async def _fetch_async(cursor: AsyncRawCursor[Any], statement: Statement, step: Operation[Any]) -> Rows:
    await cursor.execute(_encoded(statement.sql), parameters(statement, step))
    if cursor.pgresult is None:
        async with cursor.connection.pipeline():
            pass  # The caller has a pipeline open, and leaving one within it is what brings the answers.
    return await cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []


@cache
def _encoded(sql: str) -> bytes:
    # Always the same object, by which a cursor sees that it has executed it before.
    return sql.encode()


def _qualified(statement: Statement, schema: str) -> Statement:
    return Statement(
        qualified(statement.sql, schema), statement.parameters, statement.values, statement.bulk, statement.single
    )


def _array(values: Iterable[Any]) -> str:
    # The driver's own way with lists takes ten times as long.
    return "{" + ",".join([_quoted(value) if type(value) is str else _plain(value) for value in values]) + "}"


def _joined(values: list[str | None]) -> str:
    return _APART.join([_NULL if value is None else value for value in values])


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _plain(value: Any) -> str:
    return "NULL" if value is None else str(value)

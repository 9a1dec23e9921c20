"""The statements of this backend, and their parameters as Postgres takes them."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Self

import msgspec
from psycopg import AsyncConnection, AsyncRawCursor, Connection, Error, RawCursor
from psycopg.rows import tuple_row

from eventkit.operations import Operation, Procedure, Rows, Scope
from eventkit.operations.tables import Column, Table
from eventkit.statements import Statement, load

from .address import qualified
from .session import AsyncOwnConnection, OwnConnection

NOW = "date_trunc('milliseconds', statement_timestamp())"
"""The time of the call: stable within a statement, so that an index can be searched for it."""

_SMALL = 100
"""The most rows for which a cursor is kept, because it keeps its rows too."""

_APART, _NULL = "\x1f", "\x1e"
"""The separator of texts and the mark for NULL in lists that a statement splits; neither occurs in JSON or keys."""

Statements = dict[str, Statement]
Failed = Callable[[BaseException], object]

FREE = {Scope.NONE: -1, Scope.SNAPSHOT: -1, Scope.REST: 1, Scope.REST_ONCE_READ: 1, Scope.ALL: 0}
"""The number of statements to run outside a transaction: all (-1), the first, or none."""

_ARRAYS = {"integer": "bigint", "float": "double precision", "flag": "integer", "moment": "bigint"}
"""The types in which rows arrive; all others are text."""
_READ = {"flag": "{}::integer", "json": "{}::text", "moment": "eventkit_ms({})"}
_WRITE = {"flag": "{}::boolean", "json": "{}::json", "moment": "eventkit_moment({})"}
_WAKES = {
    "eventkit_lock": "'lock', name",
    "eventkit_task": "'task', queue",
    "eventkit_schedule": "'schedule', 'all'",
    "eventkit_consumer_lease": "'consumer', topic || ':' || consumer",
}
"""The subjects whose waiters look again when the times of a table have moved."""


def is_single(known: Statements, operation: Operation[Any]) -> bool:
    """Return whether one statement is all of *operation*."""
    return operation.scope is Scope.NONE or (isinstance(operation, Procedure) and bool(known[operation.heading].sql))


def of_table(table: Table) -> dict[str, str]:
    """Return the statements that copy a table and move its times, by their headings."""
    names = ", ".join(column.name for column in table.columns)
    read = ", ".join(_READ.get(column.kind, "{}").format(column.name) for column in table.columns)
    write = ", ".join(_WRITE.get(column.kind, "{}").format(column.name) for column in table.columns)
    arrays = ", ".join(f":rows.{n}::{_ARRAYS.get(column.kind, 'text')}[]" for n, column in enumerate(table.columns))
    ordered, after = ", ".join(map(_bytewise, table.key)), ", ".join(f":{column.name}" for column in table.key)
    times = ", ".join(f"{name} = {name} - :milliseconds::bigint * interval '1 ms'" for name in table.moments)
    wake = f" RETURNING eventkit_wake({_WAKES[table.name]})" if table.name in _WAKES else ""
    return {
        f"Export{table.noun}": (
            f"SELECT {read} FROM {table.name} WHERE ({ordered}) > ({after}) ORDER BY {ordered} LIMIT :limit"
        ),
        f"Import{table.noun}": (
            f"INSERT INTO {table.name} ({names}) SELECT {write} FROM unnest({arrays}) AS r ({names}) "
            "ON CONFLICT DO NOTHING"
        ),
        f"Advance{table.noun}": f"UPDATE {table.name} SET {times}{wake}",
    }


def _bytewise(column: Column) -> str:
    return column.name if column.kind else f'{column.name} COLLATE "C"'


@cache
def statements(schema: str) -> Statements:
    """Return the statements for eventkit's tables in *schema*."""
    loaded = load(
        "eventkit_postgres", lambda number: f"${number}", {"now": NOW, "ms": "interval '1 ms'"}, of_table, common=True
    )
    return {
        heading: msgspec.structs.replace(statement, sql=qualified(statement.sql, schema))
        for heading, statement in loaded.items()
    }


def parameters(statement: Statement, step: Operation[Any]) -> tuple[Any, ...]:
    """Return the parameters of *step*, bulk ones as array literals, one for each column of a list of rows.

    Those that the statement splits by ``string_to_array`` are sent as text, which takes a seventh of the time.
    """
    if not statement.bulk:
        return statement.values(step)
    values = columns(statement, step)
    apart = "string_to_array(" in statement.sql
    return tuple(
        [
            value
            if place not in statement.bulk or not isinstance(value, list)
            else _joined(value)
            if apart and f"string_to_array(${place + 1}," in statement.sql
            else _array(value)
            for place, value in enumerate(values)
        ]
    )


def columns(statement: Statement, step: Operation[Any]) -> tuple[Any, ...]:
    """Return the parameters of *step*, bulk ones as lists, one for each column of a list of rows."""
    values = statement.values(step)
    if not statement.bulk:
        return values
    listed = list(values)
    for place, column in statement.bulk.items():
        rows = values[place]
        if isinstance(rows, list | tuple):
            listed[place] = list(rows) if column is None else [row[column] for row in rows]
    return tuple(listed)


class Kept(OwnConnection):
    """A connection that keeps a cursor for each statement, because a new one costs a third of a call.

    Only one caller may use it at a time.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.cursors: dict[str, RawCursor[Any]] = {}

    @classmethod
    def connect(cls, conninfo: str = "", *, failed: Failed, **keywords: Any) -> Self:  # type: ignore[override]
        """Connect, and report the error of a failed attempt to *failed*."""
        try:
            return super().connect(conninfo, **keywords)
        except Error as error:
            failed(error)
            raise


class AsyncKept(AsyncOwnConnection):
    """`Kept` for asyncio."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.cursors: dict[str, AsyncRawCursor[Any]] = {}

    @classmethod
    async def connect(cls, conninfo: str = "", *, failed: Failed, **keywords: Any) -> Self:  # type: ignore[override]
        """`Kept.connect`, awaited."""
        try:
            return await super().connect(conninfo, **keywords)
        except Error as error:
            failed(error)
            raise


def fetch(driver: Connection[Any], known: Statements, step: Operation[Any]) -> Rows:
    """Execute the statement of *step*, and return its rows."""
    statement, kept = known[step.heading], driver.cursors if isinstance(driver, Kept) else {}
    cursor = kept.pop(step.heading, None) or RawCursor(driver, row_factory=tuple_row)
    cursor.execute(_encoded(statement.sql), parameters(statement, step))
    if cursor.pgresult is None:
        with driver.pipeline():
            pass  # The caller has a pipeline open; leaving the inner one fetches the results.
    rows = cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []
    if len(rows) <= _SMALL:
        kept[step.heading] = cursor
    return rows


async def fetch_async(driver: AsyncConnection[Any], known: Statements, step: Operation[Any]) -> Rows:
    """Do the same as `fetch`, awaited."""
    statement, kept = known[step.heading], driver.cursors if isinstance(driver, AsyncKept) else {}
    cursor = kept.pop(step.heading, None) or AsyncRawCursor(driver, row_factory=tuple_row)
    await cursor.execute(_encoded(statement.sql), parameters(statement, step))
    if cursor.pgresult is None:
        async with driver.pipeline():
            pass  # The caller has a pipeline open; leaving the inner one fetches the results.
    rows = await cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []
    if len(rows) <= _SMALL:
        kept[step.heading] = cursor
    return rows


@cache
def _encoded(sql: str) -> bytes:
    # The cursor compares the object to detect that it has executed the statement before.
    return sql.encode()


def _array(values: Iterable[Any]) -> str:
    # The driver's own conversion of lists takes ten times as long.
    return "{" + ",".join([_quoted(value) if type(value) is str else _plain(value) for value in values]) + "}"


def _joined(values: list[str | None]) -> str:
    return _APART.join([_NULL if value is None else value for value in values])


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _plain(value: Any) -> str:
    return "NULL" if value is None else str(value)

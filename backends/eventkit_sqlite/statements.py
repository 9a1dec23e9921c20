"""The statements of this backend, and their execution."""

from typing import Any

import msgspec

from eventkit.operations import NO_STATEMENT, Operation, Rows
from eventkit.operations.tables import Table
from eventkit.statements import Statement, load

from .library import Connection

NOW = "CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)"
"""The current time in milliseconds; ``unixepoch('subsec')`` needs SQLite 3.42."""


def of_table(table: Table) -> dict[str, str]:
    """Return the statements that copy a table and move its times, by their headings."""
    names, key = [column.name for column in table.columns], [column.name for column in table.key]
    ordered, after = ", ".join(key), ", ".join(f":{name}" for name in key)
    values = ", ".join(f"value ->> {place}" for place in range(len(names)))
    times = ", ".join(f"{name} = {name} - :milliseconds" for name in table.moments)
    return {
        f"Export{table.noun}": (
            f"SELECT {', '.join(names)} FROM {table.name} WHERE ({ordered}) > ({after}) ORDER BY {ordered} LIMIT :limit"
        ),
        f"Import{table.noun}": (
            f"INSERT INTO {table.name} ({', '.join(names)}) SELECT {values} FROM json_each(:rows) WHERE true "
            "ON CONFLICT DO NOTHING"
        ),
        f"Advance{table.noun}": f"UPDATE {table.name} SET {times}",
    }


STATEMENTS = load("eventkit_sqlite", lambda number: f"?{number}", {"now": NOW}, of_table, common=True)

_encode = msgspec.json.Encoder().encode


def fetch(connection: Connection, step: Operation[Any]) -> Rows:
    """Execute the statement of *step*, and return its rows.  Bulk parameters are passed as JSON."""
    statement = STATEMENTS[step.heading]
    if not statement.sql:
        return NO_STATEMENT
    values = statement.values(step)
    rows: Rows = connection.execute(statement.sql, bound(statement, values) if statement.bulk else values).fetchall()
    return rows


def bound(statement: Statement, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the parameters of a step, bulk ones as JSON."""
    return tuple(
        [
            _encode(value).decode() if place in statement.bulk and isinstance(value, list | tuple) else value
            for place, value in enumerate(values)
        ]
    )

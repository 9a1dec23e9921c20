"""The statements of this backend, and running one of them."""

from typing import Any

import msgspec

from eventkit.operations import Operation, Rows
from eventkit.sql import Statement, load

from .library import Connection

NOW = "CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)"
"""The moment of the call in milliseconds; in any version of SQLite, which ``unixepoch('subsec')`` is not."""

STATEMENTS = load("eventkit_sqlite", lambda number: f"?{number}", {"now": NOW})

_encode = msgspec.json.Encoder().encode


def fetch(connection: Connection, step: Operation[Any]) -> Rows:
    """Execute the statement of *step*; its rows.  Bulk parameters travel as JSON."""
    statement = STATEMENTS[type(step)]
    rows: Rows = connection.execute(statement.sql, bound(statement, step)).fetchall()
    return rows


def bound(statement: Statement, step: Operation[Any]) -> tuple[Any, ...]:
    """The parameters of *step*."""
    values = statement.values(step)
    if not statement.bulk:
        return values
    return tuple(_encode(value).decode() if place in statement.bulk else value for place, value in enumerate(values))

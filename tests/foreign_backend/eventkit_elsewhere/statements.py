"""The statements in the ``.sql`` files of this package, and their execution."""

import json
import sqlite3
from typing import Any, TypeVar

from eventkit.operations import NO_STATEMENT, Operation, Rows
from eventkit.operations.tables import Table
from eventkit.plans import run
from eventkit.statements import load

T = TypeVar("T")

NOW = "CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)"
"""The time in milliseconds since 1970."""

_ABSENT = (
    "api_key cluster_limit consumer_parked group_rate inbox lake lake_file pipeline session staged_rows worker "
    "written_batch"
)
ABSENT = set(_ABSENT.split())
"""Tables that this backend does not have."""


def of_table(table: Table) -> dict[str, str]:
    """Return the statement that moves the times of a table; this backend copies no tables."""
    if table.name.removeprefix("eventkit_") in ABSENT:
        return {f"Advance{table.noun}": "SELECT :milliseconds"}
    times = ", ".join(f"{name} = {name} - :milliseconds" for name in table.moments)
    return {f"Advance{table.noun}": f"UPDATE {table.name.replace('eventkit', 'elsewhere')} SET {times}"}


STATEMENTS = load("eventkit_elsewhere", lambda number: f"?{number}", {"now": NOW}, of_table)


def fetch(connection: sqlite3.Connection, step: Operation[Any]) -> Rows:
    """Execute the statement of one operation or step, and return its rows."""
    statement = STATEMENTS.get(step.heading)
    if statement is None:
        raise NotImplementedError(f"the backend of elsewhere:// has no statement for {step.heading}")
    if not statement.sql:
        return NO_STATEMENT
    values = [
        json.dumps(value) if place in statement.bulk and isinstance(value, list | tuple) else value
        for place, value in enumerate(statement.values(step))
    ]
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor.execute(statement.sql, values).fetchall()


def execute_in(connection: sqlite3.Connection, operation: Operation[T]) -> T:
    """Execute *operation* in the open transaction, whole or not at all."""
    connection.execute("SAVEPOINT elsewhere_call")
    try:
        answer = run(operation.plan(), lambda step: fetch(connection, step))
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK TO elsewhere_call")
            connection.execute("RELEASE elsewhere_call")
        raise
    connection.execute("RELEASE elsewhere_call")
    return answer

"""Postgres keeps eventkit's tables in a schema of their own, whose name the URL gives.

Definitions are written without it.  Every name that begins with ``eventkit_`` is eventkit's, also inside the
bodies of functions and in quotes, so the schema is put before each of them.  Nothing then depends on a
``search_path``, which belongs to the application.
"""

import re
from types import SimpleNamespace

from sqlalchemy import Connection

# An index and a trigger go where their table is, and are named without.
_OURS = re.compile(r"(?<![\w.\"])(?<!INDEX )(?<!TRIGGER )eventkit_(?=\w)")


def qualified(sql: str, schema: str) -> str:
    """*sql* with the schema before each of eventkit's names."""
    return _OURS.sub(f'"{schema}".eventkit_', sql)


def alone(connection: Connection, schema: str | None) -> None:
    """Wait until nobody else changes the schema; nobody does from then on until the transaction ends."""
    if schema is not None:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock(hashtextextended('eventkit {schema}', 0))")


class Recorder:
    """Takes the place of a connection on which a revision executes its statements, and only writes them down."""

    def __init__(self, dialect: str) -> None:
        self.dialect = SimpleNamespace(name=dialect)
        self.statements: list[str] = []

    def exec_driver_sql(self, statement: str) -> None:
        """Keep the statement, as it is without a driver that looks for parameters in it."""
        self.statements.append(statement if self.dialect.name == "sqlite" else statement.replace("%%", "%"))


def execute(connection: Connection, statement: str, schema: str | None) -> None:
    """Execute a statement of a revision; in *schema*, on a database that has such."""
    if schema is None:
        connection.exec_driver_sql(statement)
    else:
        # SQLAlchemy has the driver look for parameters in it.
        connection.exec_driver_sql(qualified(statement, schema).replace("%", "%%"))

"""The schema of eventkit's tables on Postgres, whose name the URL gives.

The definitions omit it.  It is inserted before each name that begins with ``eventkit_``, also in the bodies of
functions and in quotes, so that nothing depends on a ``search_path``, which belongs to the application.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.resources import files
from types import SimpleNamespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection

# An index and a trigger are created in the schema of their table, and their names take no schema.
_OURS = re.compile(r"(?<![\w.\"])(?<!INDEX )(?<!TRIGGER )eventkit_(?=\w)")


def qualified(sql: str, schema: str) -> str:
    """Return *sql* with the schema before each of eventkit's names."""
    return _OURS.sub(f'"{schema}".eventkit_', sql)


def alone(connection: Connection, schema: str | None) -> None:
    """Wait until no other transaction changes the schema, and lock it until the transaction ends."""
    if schema is not None:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock(hashtextextended('eventkit {schema}', 0))")


class Recorder:
    """A stand-in for the connection of a revision, which only records the statements."""

    def __init__(self, dialect: str) -> None:
        self.dialect = SimpleNamespace(name=dialect)
        self.statements: list[str] = []

    def exec_driver_sql(self, statement: str) -> None:
        """Record the statement, without the escaping of % for a driver."""
        self.statements.append(statement if self.dialect.name == "sqlite" else statement.replace("%%", "%"))


@cache
def schema_hash(dialect: str, revision: str) -> str:
    """Return the hash of the statements from nothing to *revision*, without their comments and layout.

    `eventkit.connect` compares it with the stored one, so the revisions are loaded without Alembic.
    """
    recorder = Recorder(dialect)
    for name in sorted(file.name for file in files("eventkit_migrations").joinpath("versions").iterdir()):
        if name.endswith(".py") and name.partition("_")[0] <= revision:
            import_module(f"eventkit_migrations.versions.{name.removesuffix('.py')}").upgrade(recorder, None)
    statements = (" ".join(re.sub(r"--.*", "", statement).split()) for statement in recorder.statements)
    return sha256("\n".join(statements).encode()).hexdigest()


def keep_hash(connection: Connection | Recorder, revision: str, schema: str | None) -> None:
    """Store the hash of the schema at *revision*, unless that is ``base``."""
    if revision != "base":
        value = schema_hash(connection.dialect.name, revision)
        execute(connection, f"UPDATE eventkit_identity SET schema_hash = '{value}'", schema)


def execute(connection: Connection | Recorder, statement: str, schema: str | None) -> None:
    """Execute a statement of a revision, in *schema* where the database has schemas."""
    if schema is None:
        connection.exec_driver_sql(statement)
    else:
        # SQLAlchemy makes the driver look for parameters in it.
        connection.exec_driver_sql(qualified(statement, schema).replace("%", "%%"))

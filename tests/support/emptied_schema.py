"""A schema that successive tests share, emptied in between.

Creating and dropping the tables and functions takes ten times as long as emptying the few tables that a test has
filled.  Only tests of the public promises may use it; a test that names the tables may change more than rows, and has a
schema of its own (``postgres_url``).
"""

import secrets

import psycopg
from postgres_server import drop_schema, end_work
from psycopg.sql import SQL, Identifier

import eventkit

FILLED = """
    SELECT relname FROM pg_class
    WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r'
    AND relname NOT IN ('eventkit_version', 'eventkit_identity') AND pg_relation_size(oid) > 0
"""
"""The tables with any write since they were created or truncated."""

REWIND = """
    SELECT setval(seqrelid::regclass, seqstart, false) FROM pg_sequence JOIN pg_class ON pg_class.oid = seqrelid
    WHERE relnamespace = to_regnamespace(%s)
"""


class EmptiedSchema:
    """A schema with eventkit's tables in the database at *database*."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._name = f"t_{secrets.token_hex(4)}"
        self.url = f"{database}{'&' if '?' in database else '?'}schema={self._name}"
        self._connection = psycopg.connect(database, autocommit=True)
        self._connection.execute("SET lock_timeout = '30s'")
        eventkit.connect(self.url).close()
        assert self._filled() == [], "a migration fills tables, which `empty` then has to fill again"

    def empty(self) -> None:
        """Reset the schema to the state after its creation.

        It runs before a test and not after it, because kits save offsets when they are closed.
        """
        end_work(self._connection, self._name)
        if filled := self._filled():
            tables = SQL(", ").join(Identifier(self._name, table) for table in filled)
            self._connection.execute(SQL("TRUNCATE {}").format(tables))
        self._connection.execute(REWIND, (self._name,))

    def close(self) -> None:
        """Drop the schema."""
        self._connection.close()
        drop_schema(self._database, self._name)

    def _filled(self) -> list[str]:
        return [table for (table,) in self._connection.execute(FILLED, (self._name,)).fetchall()]

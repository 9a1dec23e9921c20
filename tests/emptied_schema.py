"""A schema that one test after another has, emptied in between.

To make the tables and functions anew, and to drop them, takes ten times what it takes to empty the few tables that a
test has filled.  This is for tests that know of eventkit nothing but what it promises: whoever knows the names of its
tables may change more than rows, and has a schema of its own (``postgres_url``).
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
"""The tables that anything was ever written to since they were made or truncated."""

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
        """Let the schema be as it was when it was made.

        Before a test, not after it: kits save offsets when they are closed.
        """
        end_work(self._connection, self._name)
        if filled := self._filled():
            tables = SQL(", ").join(Identifier(self._name, table) for table in filled)
            self._connection.execute(SQL("TRUNCATE {}").format(tables))
        self._connection.execute(REWIND, (self._name,))

    def close(self) -> None:
        """Drop it."""
        self._connection.close()
        drop_schema(self._database, self._name)

    def _filled(self) -> list[str]:
        return [table for (table,) in self._connection.execute(FILLED, (self._name,)).fetchall()]

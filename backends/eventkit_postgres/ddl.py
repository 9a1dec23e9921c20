"""The definitions of the schema, and the connections that change it.

The tables of each revision are in a file, and the functions, which every migration may replace, in `functions`.  The
schema that the URL names is inserted before each name that begins with ``eventkit_``, also in the bodies of functions
and in quotes, so that nothing depends on a ``search_path``, which belongs to the application.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib.resources import files
from math import inf
from typing import TYPE_CHECKING, Any

from eventkit_migrations import database

from .address import parse, qualified, shown
from .errors import translated
from .session import OwnConnection, check_encoding

if TYPE_CHECKING:
    from sqlalchemy import Connection

TIMEOUT = 30.0
"""Seconds to wait for other processes that change the same schema."""

LOCK_TIMEOUT = 5.0
"""Seconds to wait for the lock on a table in use, which also bounds how long later queries wait behind the change."""

_TYPES = {"timestamptz": "timestamp with time zone"}
"""The names of types that the server writes differently."""

_DROP_CHANGED = """
DO $do$
DECLARE
    changed record;
    grants json := '[]';
BEGIN
    FOR changed IN
        SELECT
            p.oid::regprocedure AS identity,
            (
                SELECT json_agg(json_build_object(
                    'name', p.proname, 'role', CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
                ))
                FROM aclexplode(p.proacl) AS a
                WHERE a.grantee <> p.proowner
            ) AS grants
        FROM pg_proc AS p
        WHERE
            p.pronamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'eventkit_version'::regclass)
            AND starts_with(p.proname, 'eventkit' || '_')
            AND substr(p.proname, 10) || '(' || pg_get_function_identity_arguments(p.oid) || ') '
                || pg_get_function_result(p.oid) <> ALL (ARRAY[{signatures}])
    LOOP
        grants := (
            SELECT json_agg(g) FROM (
                SELECT json_array_elements(grants) UNION ALL SELECT json_array_elements(changed.grants)
            ) AS all_of_them (g)
        );
        EXECUTE 'DROP FUNCTION ' || changed.identity;
    END LOOP;
    PERFORM set_config('eventkit.grants', coalesce(grants, '[]')::text, true);
END
$do$
"""
"""Drops the functions that have another signature now, or are gone, and remembers who may call them."""

_GRANT_AGAIN = """
DO $do$
DECLARE
    again record;
BEGIN
    FOR again IN
        SELECT p.oid::regprocedure AS identity, string_agg(DISTINCT g.role, ', ') AS roles
        FROM
            json_to_recordset(current_setting('eventkit.grants')::json) AS g (name text, role text)
            JOIN pg_proc AS p ON p.proname = g.name
        WHERE p.pronamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'eventkit_version'::regclass)
        GROUP BY p.oid
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', again.identity);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', again.identity, again.roles);
    END LOOP;
END
$do$
"""


class Schema(database.Schema):
    """The schema in one database, for migrations; see `eventkit_migrations.database.Schema`."""

    scheme = dialect = "postgresql"

    def __init__(self, url: str | None = None, name: str = "eventkit") -> None:
        self._address = None if url is None else parse(url)
        self.name = name if self._address is None else self._address.schema
        self.functions_hash = functions_hash()

    def tables(self, revision: str) -> list[str]:
        """Return the statements that create or change the tables of a revision."""
        return _statements(f"schema_{revision}.sql")

    def functions(self, replace: bool = False) -> list[str]:
        """Return the statements that create the functions, or replace those of another version."""
        # A function may be created before the tables that it uses.
        made = ["SET LOCAL check_function_bodies = off", *_functions()]
        if not replace:
            return made
        known = ", ".join(f"'{one}'" for one in signatures())
        return [_DROP_CHANGED.replace("{signatures}", known).strip(), *made, _GRANT_AGAIN.strip()]

    def functions_dropped(self) -> list[str]:
        """Return the statements that drop the functions."""
        return ["DROP FUNCTION " + ", ".join(f"eventkit_{one[: one.index(')') + 1]}" for one in signatures())]

    def prepared(self, statement: str) -> str:
        """Return a statement with the schema in its names."""
        assert self.name is not None
        return qualified(statement, self.name)

    def escaped(self, statement: str) -> str:
        """Return a prepared statement for the driver, which SQLAlchemy makes look for parameters in it."""
        return statement.replace("%", "%%")

    def lock(self, connection: Connection) -> None:
        """Wait until no other transaction changes the schema, and lock it until the transaction ends."""
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock(hashtextextended('eventkit {self.name}', 0))")

    def make_room(self, connection: Connection) -> None:
        """Create the schema if it does not exist."""
        # The query comes first because a role may lack the right to create a schema that already exists.
        found = f"SELECT 1 FROM pg_namespace WHERE nspname = '{self.name}'"
        if not connection.exec_driver_sql(found).fetchall():
            connection.exec_driver_sql(f'CREATE SCHEMA IF NOT EXISTS "{self.name}"')

    def shown(self) -> str:
        """Return the URL without its password."""
        assert self._address is not None
        return shown(self._address.url)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Provide a connection that does not block writers."""
        from sqlalchemy import create_engine
        from sqlalchemy.exc import DBAPIError
        from sqlalchemy.pool import NullPool

        address = self._address
        assert address is not None

        def connect() -> OwnConnection:
            # libpq parses the rest of the URL, as it does for the kit.
            driver = OwnConnection.connect(address.conninfo, client_encoding="utf8")
            check_encoding(driver, address)
            driver.patience = inf  # A schema change takes time in proportion to the rows.
            return driver

        engine = create_engine("postgresql+psycopg://", creator=connect, poolclass=NullPool)
        try:
            with engine.connect() as connection:
                yield connection
        except DBAPIError as error:
            raise translated(error.orig, address) or error from error

    @contextmanager
    def locked(self) -> Iterator[Connection]:
        """Provide a connection in a transaction with an exclusive lock on the schema, and commit at the end."""
        with self.reading() as connection, connection.begin():
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{TIMEOUT * 1000:.0f}ms'")
            self.lock(connection)
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT * 1000:.0f}ms'")
            yield connection


@cache
def functions_hash() -> str:
    """Return the hash of the functions, which `connect` compares with the one that the last migration stored."""
    plain = (" ".join(re.sub(r"--.*", "", statement).split()) for statement in _functions())
    return sha256("\n".join(plain).encode()).hexdigest()


@cache
def signatures() -> tuple[str, ...]:
    """Return the functions as the server writes them: name without prefix, arguments, type of the result."""
    return tuple(
        f"{found[1]}({', '.join(map(_argument, found[2].split(',')))}) {_result(found[3])}"
        for statement in _functions()
        if (
            found := re.search(
                r"^CREATE OR REPLACE FUNCTION eventkit_(\w+)\((.*?)\)\s+(.*?)LANGUAGE", statement, re.M | re.S
            )
        )
    )


def _argument(text: str) -> str:
    words = re.sub(r" DEFAULT .*", "", " ".join(text.split()))
    *names, kind = words.split(" ", 2 if words.startswith("OUT ") else 1) if words else [""]
    return " ".join([*names, _TYPES.get(kind, kind)])


def _result(text: str) -> str:
    words = " ".join(text.split()).removeprefix("RETURNS ") or "record"
    if not (columns := re.fullmatch(r"TABLE \((.*)\)", words)):
        return _TYPES.get(words, words)
    return f"TABLE({', '.join(map(_argument, columns[1].split(',')))})"


@cache
def _functions() -> list[str]:
    folder = files("eventkit_postgres").joinpath("functions")
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    return [statement for name in names for statement in _statements(f"functions/{name}")]


@cache
def _statements(file: str) -> list[str]:
    """Return the statements of a file, which blank lines separate."""
    parts = files("eventkit_postgres").joinpath(file).read_text("utf-8").strip().split("\n\n")
    return [part for part in parts if not all(line.startswith("--") for line in part.splitlines())]


def schema(url: str | None = None, name: str = "eventkit") -> Any:
    """Return the schema of *url*; without one, the schema called *name* on the connection of an application."""
    return Schema(url, name)

"""The content of a database's schema, for the tests of the migrations."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from eventkit_postgres import address
from sqlalchemy import Connection, NullPool, create_engine

Definitions = set[tuple[object, ...]]

only_sqlite = pytest.mark.parametrize("url", ["sqlite+apsw", "sqlite+pysqlite"], indirect=True)
"""A mark for tests of files."""

_POSTGRES = """
    SELECT 'column', table_name::text, column_name::text, data_type::text, is_nullable::text, column_default::text
    FROM information_schema.columns WHERE table_schema = '{schema}' AND table_name <> 'eventkit_version'
    UNION ALL
    SELECT 'relation', relname, relkind::text, relpersistence::text, reloptions::text, pg_get_viewdef(oid)
    FROM pg_class WHERE relnamespace = '{schema}'::regnamespace AND relkind <> 'i'
        AND relname NOT LIKE 'eventkit_version%'
    UNION ALL
    SELECT 'index', tablename, indexname, indexdef, NULL, NULL
    FROM pg_indexes WHERE schemaname = '{schema}' AND tablename <> 'eventkit_version'
    UNION ALL
    SELECT 'function', proname, pg_get_functiondef(oid), obj_description(oid, 'pg_proc'), NULL, NULL
    FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace
    UNION ALL
    SELECT 'trigger', tgname, pg_get_triggerdef(t.oid), NULL, NULL, NULL
    FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = tgrelid WHERE c.relnamespace = '{schema}'::regnamespace
    UNION ALL
    SELECT 'type', typname, pg_get_constraintdef(c.oid), NULL, NULL, NULL
    FROM pg_type AS t LEFT JOIN pg_constraint AS c ON c.contypid = t.oid
    WHERE typnamespace = '{schema}'::regnamespace AND typname NOT LIKE '%eventkit_version'
    """


def on_postgres(url: str) -> bool:
    return url.startswith("postgresql")


def place(url: str, name: str) -> str:
    """Return another file or schema, beside the one that is called shop."""
    return url.replace("shop", name)


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """Return a connection to the file, or to the schema, which it creates and puts on the search path."""
    if not on_postgres(url):
        with create_engine(url, poolclass=NullPool).begin() as connection:
            yield connection
        return
    there = address.parse(url)
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(there.conninfo), poolclass=NullPool)
    with engine.begin() as connection:
        if not connection.exec_driver_sql(f"SELECT FROM pg_namespace WHERE nspname = '{there.schema}'").all():
            connection.exec_driver_sql(f"CREATE SCHEMA {there.schema}")
        connection.exec_driver_sql(f"SET LOCAL search_path = {there.schema}")
        yield connection


def schema(url: str) -> Definitions:
    """Return every definition of eventkit's; on SQLite its tables, and the indexes and triggers on them."""
    sql = "SELECT type, name, sql FROM sqlite_master WHERE tbl_name GLOB 'eventkit_*'"
    name = address.parse(url).schema if on_postgres(url) else ""
    with connected(url) as connection:
        if not name:
            return {tuple(row) for row in connection.exec_driver_sql(sql)}
        rows = connection.connection.cursor().execute(_POSTGRES.replace("{schema}", name).encode())
        return {tuple(str(value).replace(name, "schema") for value in row) for row in rows}


def tables(url: str) -> set[str]:
    sql = "SELECT name FROM sqlite_master WHERE type = 'table'"
    if on_postgres(url):
        sql = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema"
    with connected(url) as connection:
        return {row[0] for row in connection.exec_driver_sql(sql)} - {"sqlite_sequence"}


def content(url: str) -> dict[str, list[list[tuple[str, str]]]]:
    """Return the rows of eventkit's tables, as names and values, without those of the migrations."""
    found = {}
    with connected(url) as connection:
        for table in sorted(tables(url) - {"eventkit_version", "eventkit_identity", "eventkit_sleeper"}):
            # Python has no date for the infinity of Postgres.
            shown = "row_to_json(t)::text AS row_to_json" if on_postgres(url) else "*"
            rows = connection.exec_driver_sql(f"SELECT {shown} FROM {table} AS t").mappings().all()
            read = [json.loads(row["row_to_json"]) if on_postgres(url) else dict(row) for row in rows]
            found[table] = sorted(sorted((name, repr(value)) for name, value in row.items()) for row in read)
    return found


def journal_mode(url: str) -> object:
    with connected(url) as connection:
        return connection.exec_driver_sql("PRAGMA journal_mode").scalar()


def python(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

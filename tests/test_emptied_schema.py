"""The shared schema of the suite's tests on Postgres looks new to each of them."""

from contextlib import closing

import psycopg
from emptied_schema import EmptiedSchema
from own_cluster import exercise
from psycopg.sql import SQL, Identifier

import eventkit


def contents(connection: psycopg.Connection, schema: str) -> dict[str, object]:
    """Return the number of rows of each of the schema's tables, and the positions of its sequences."""
    tables = "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind IN ('r', 'S')"
    found: dict[str, object] = {}
    for (name,) in connection.execute(tables, (schema,)).fetchall():
        count = SQL("SELECT {} FROM {}").format(
            SQL("last_value::text || is_called" if name.endswith("_seq") else "count(*)"), Identifier(schema, name)
        )
        [found[name]] = connection.execute(count).fetchone() or (None,)
    return found


def test_what_a_test_leaves_behind_the_next_one_does_not_find(postgres: str) -> None:
    """Rows, drawn numbers, and open or prepared transactions are gone."""
    with closing(EmptiedSchema(postgres)) as emptied, psycopg.connect(postgres, autocommit=True) as connection:
        schema = emptied.url.partition("schema=")[2]
        fresh = contents(connection, schema)
        for _ in range(2):
            with eventkit.connect(emptied.url) as kit:
                assert kit.queue("first").enqueue(1).id == 1
                exercise(kit)
                assert kit.lock("l").acquire()
            left, prepared = psycopg.connect(postgres), psycopg.connect(postgres)
            for transaction in (left, prepared):
                transaction.execute(f"SELECT \"{schema}\".eventkit_publish('t', '1')".encode())
            prepared.execute(f"PREPARE TRANSACTION '{schema}'".encode())
            emptied.empty()
            assert contents(connection, schema) == fresh
            left.close()
            prepared.close()

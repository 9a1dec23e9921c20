"""Diagnostics of a database, as `eventkit.protocols.Admin`."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

import eventkit_migrations
import psycopg

from eventkit.values import Diagnostic

from .address import Address, parse
from .errors import translated
from .session import OwnConnection, options

_OLDEST = 130000
_LONG = 60
"""Seconds after which a transaction is long: until it ends, VACUUM cannot remove dead rows of any table."""


def diagnose(url: str) -> list[Diagnostic]:
    """Return the diagnostics of the database."""
    address = parse(url)
    with _connected(address) as driver:
        return [
            *_server(driver),
            *_tables(driver, address.schema),
            *_transactions(driver),
            *_leftovers(driver, address.schema),
        ]


def compact(url: str) -> tuple[int, int]:
    """Vacuum the tables: dead rows become free space, and free space at the end of a table returns to the system."""
    address = parse(url)
    with _connected(address) as driver:
        before = _size(driver, address.schema)
        for (name,) in _ask(driver, "SELECT tablename FROM pg_tables WHERE schemaname = %s", address.schema):
            if name.startswith("eventkit_"):
                driver.execute(f'VACUUM (ANALYZE) "{address.schema}"."{name}"'.encode())
        return before, _size(driver, address.schema)


def _server(driver: Any) -> Iterator[Diagnostic]:
    number, name = driver.info.server_version, _one(driver, "SHOW server_version")
    if number >= _OLDEST:
        yield Diagnostic("good", f"PostgreSQL {name}")
    else:
        yield Diagnostic("bad", f"PostgreSQL {name} is too old", "upgrade the server to 13 or newer")
    for setting, why in (
        ("fsync", "a crash of the machine can destroy the database"),
        ("full_page_writes", "a crash of the machine can destroy the database"),
        ("autovacuum", "dead rows are never removed, and all queries become slow"),
        ("track_counts", "autovacuum does not know which tables to process"),
    ):
        if _one(driver, f"SHOW {setting}") == "off":
            yield Diagnostic("bad", f"{setting} is off: {why}", f"set {setting} = on in postgresql.conf, and reload")
    used = _one(driver, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
    most = int(_one(driver, "SHOW max_connections"))
    if used * 5 > most * 4:
        yield Diagnostic(
            "doubtful",
            f"{used} of {most} connections are taken",
            "lower ?max_size= in the URLs of your processes, or use a connection pooler",
        )


def _tables(driver: Any, schema: str) -> Iterator[Diagnostic]:
    there = {
        name: valid
        for name, valid in _ask(
            driver,
            "SELECT c.relname, coalesce(i.indisvalid, true) FROM pg_class AS c LEFT JOIN pg_index AS i "
            "ON i.indexrelid = c.oid WHERE c.relnamespace = to_regnamespace(quote_ident(%s)) UNION ALL "
            "SELECT t.tgname, t.tgenabled <> 'D' FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid "
            "WHERE c.relnamespace = to_regnamespace(quote_ident(%s))",
            schema,
            schema,
        )
    }
    missing = sorted({name for name in eventkit_migrations.objects("postgresql") if not there.get(name)})
    if missing:
        yield Diagnostic(
            "bad",
            f"the schema lacks {', '.join(missing)}, or they are invalid or disabled",
            "REINDEX invalid indexes; execute missing definitions from eventkit migrate --sql for an empty schema",
        )
    else:
        yield Diagnostic("good", "all tables and indexes are there")


def _transactions(driver: Any) -> Iterator[Diagnostic]:
    for pid, state, seconds, who, query in _ask(
        driver,
        "SELECT pid, state, extract(epoch FROM clock_timestamp() - xact_start)::integer, "
        "coalesce(nullif(application_name, ''), usename), left(query, 60) FROM pg_stat_activity "
        "WHERE xact_start < clock_timestamp() - make_interval(secs => %s) AND pid <> pg_backend_pid() "
        "AND backend_type = 'client backend' ORDER BY xact_start",
        _LONG,
    ):
        yield Diagnostic(
            "doubtful",
            f"process {pid} ({who}) has had a transaction open for {seconds} s ({state}: {query}): "
            "until it ends, VACUUM cannot remove dead rows",
            f"end it: SELECT pg_terminate_backend({pid}); and set idle_in_transaction_session_timeout",
        )
    for name, seconds in _ask(
        driver,
        "SELECT gid, extract(epoch FROM clock_timestamp() - prepared)::integer FROM pg_prepared_xacts "
        "WHERE prepared < clock_timestamp() - make_interval(secs => %s)",
        _LONG,
    ):
        yield Diagnostic(
            "bad",
            f"the prepared transaction {name!r} has waited for {seconds} s, and keeps its locks",
            f"COMMIT PREPARED '{name}' or ROLLBACK PREPARED '{name}'",
        )


def _leftovers(driver: Any, schema: str) -> Iterator[Diagnostic]:
    for name, dead, alive in _ask(
        driver,
        "SELECT relname, n_dead_tup, n_live_tup FROM pg_stat_user_tables WHERE schemaname = %s "
        "AND relname LIKE 'eventkit%%' AND n_dead_tup > 100000 AND n_dead_tup > n_live_tup",
        schema,
    ):
        yield Diagnostic(
            "doubtful",
            f"{name} has {dead:,} dead rows beside {alive:,} live ones",
            "eventkit queue compact removes them; the diagnostics above show what blocks autovacuum",
        )


@contextmanager
def _connected(address: Address) -> Iterator[Any]:
    try:
        with OwnConnection.connect(address.conninfo, autocommit=True, **options(address, address.conninfo)) as driver:
            driver.patience = inf  # VACUUM takes time in proportion to the rows.
            yield driver
    except psycopg.Error as error:
        raise translated(error, address) or error from error


def _size(driver: Any, schema: str) -> int:
    sql = (
        "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c "
        "WHERE c.relkind = 'r' AND c.relname LIKE 'eventkit%%' AND c.relnamespace = to_regnamespace(quote_ident(%s))"
    )
    return int(_ask(driver, sql, schema)[0][0])


def _one(driver: Any, sql: str) -> Any:
    return driver.execute(sql).fetchone()[0]


def _ask(driver: Any, sql: str, *parameters: Any) -> Any:
    return driver.execute(sql, parameters).fetchall()

"""Migrations on Postgres alone: schemas, roles, locks on tables, and passwords."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import eventkit_migrations
import psycopg
import pytest
from eventkit_migrations import HEAD, VERSION_TABLE
from eventkit_postgres import address, ddl
from schemas import connected, place, python, schema, tables

import eventkit
from eventkit.errors import Busy, NotMigrated, Unavailable
from eventkit.testing import advance

on_postgres = pytest.mark.parametrize("url", ["postgresql"], indirect=True)
pytestmark = on_postgres


def bare(url: str) -> "psycopg.Connection[Any]":
    """Return a connection to the database, in autocommit."""
    return psycopg.connect(address.parse(url).conninfo, autocommit=True)


def test_a_table_in_use_is_busy(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration that would queue behind a long transaction, and block others, gives up and is rolled back."""
    monkeypatch.setattr(ddl, "LOCK_TIMEOUT", 0.1)
    eventkit_migrations.upgrade(url)
    before = schema(url)
    with connected(url) as reader:
        reader.exec_driver_sql("SELECT * FROM eventkit_event").all()
        with pytest.raises(Busy, match="try again"):
            eventkit_migrations.downgrade(url, "base")
    assert schema(url) == before
    eventkit_migrations.downgrade(url, "base")
    assert eventkit_migrations.current(url) is None


CARRIED = """
import sys
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine
import eventkit_migrations

url, schema = sys.argv[1:]
with create_engine(url).begin() as connection:
    eventkit_migrations.upgrade_op(Operations(MigrationContext.configure(connection)), schema=schema)
    print("upgraded", flush=True)
    sys.stdin.readline()
"""


def test_an_applications_migration_is_waited_for(url: str) -> None:
    """While it runs no other process begins to create the same tables; afterwards they exist."""
    there = address.parse(url)
    carrier = python(CARRIED, there.conninfo.replace("postgresql", "postgresql+psycopg", 1), there.schema)
    assert carrier.stdout
    assert carrier.stdout.readline() == "upgraded\n"
    with ThreadPoolExecutor() as pool:
        upgrading = pool.submit(eventkit_migrations.upgrade, url)
        time.sleep(0.3)
        assert not upgrading.done()
        carrier.communicate("\n")
        upgrading.result()
    assert eventkit_migrations.current(url) == HEAD


def test_a_role_without_the_right_to_make_schemas(url: str) -> None:
    """The error names the missing right; in a schema created for it, the role creates the tables."""
    there = address.parse(url)
    role = there.schema
    as_role = url + f"&options=-crole%3D{role}"
    with bare(url) as admin:
        admin.execute(f"CREATE ROLE {role}")  # type: ignore[arg-type]
        try:
            with pytest.raises(Unavailable, match="eventkit_migrations upgrade"):
                eventkit_migrations.upgrade(as_role)
            assert eventkit_migrations.current(url) is None
            admin.execute(f"CREATE SCHEMA {there.schema} AUTHORIZATION {role}")  # type: ignore[arg-type]
            eventkit_migrations.upgrade(as_role)
            with eventkit.connect(as_role) as kit:
                assert kit.stream("orders").publish(1) == kit.stream("orders").head()
            eventkit_migrations.downgrade(as_role, "base")
            assert tables(url) == {VERSION_TABLE}
        finally:
            admin.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")  # type: ignore[arg-type]


@pytest.mark.parametrize(("version", "remedy"), [("0000", "eventkit_migrations upgrade"), ("9999", "install")])
def test_a_schema_of_another_version_is_refused(url: str, version: str, remedy: str) -> None:
    """Connecting upgrades nothing silently, and refuses an unknown version."""
    eventkit_migrations.upgrade(url)
    with connected(url) as connection:
        connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '{version}'")
    before = schema(url)
    with pytest.raises(NotMigrated, match=remedy) as refused:
        eventkit.connect(url)
    assert version in str(refused.value)
    assert schema(url) == before


@pytest.mark.parametrize(
    "secret",
    [
        "postgresql://ann:s3cret@127.0.0.1:1/shop",
        "postgresql://ann:s3cret/s3cret@127.0.0.1:1/shop",
        "postgresql://ann:s3cret@s3cret@127.0.0.1:1/shop",
        "postgresql://ann:100%s3cret@127.0.0.1:1/shop",
        "postgresql://127.0.0.1:1/shop?user=ann&password=s3cret",
        "postgresql://127.0.0.1:1/shop?password=s3cret&nonsense=1",
        "postgresql://127.0.0.1:1/shop?listen_url=postgresql%3A%2F%2Fann%3As3cret%40127.0.0.1",
        "postgresql://ann:s3cret@127.0.0.1:1/shop?schema=no-such",
    ],
)
def test_passwords_are_not_shown(url: str, secret: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The message about any mistake in a URL omits the password."""
    from eventkit_migrations.__main__ import main

    assert main(["upgrade", secret]) == 1
    said = capsys.readouterr()
    assert "s3cret" not in said.out + said.err
    for connect in (eventkit.connect, eventkit_migrations.upgrade):
        with pytest.raises((ValueError, Unavailable)) as error:
            connect(secret)
        assert "s3cret" not in str(error.value)


def test_two_schemas_are_strangers(url: str) -> None:
    """Neither sees, wakes, delays, locks or advances anything of the other, and the same keys are free in both."""
    ours, theirs = eventkit.connect(f"{url}&fallback_poll=3600"), eventkit.connect(place(url, "other"))
    with ours, theirs, ThreadPoolExecutor() as pool:
        listening = pool.submit(lambda: next(ours.channel("c").listen()).payload)
        time.sleep(0.3)
        with theirs.transaction() as tx:
            theirs.stream("t").publish("theirs", dedup="a", tx=tx)
            theirs.queue("q").enqueue("theirs", key="a", tx=tx)
            theirs.channel("c").notify("theirs", tx=tx)
            assert ours.stream("t").publish("ours", dedup="a") == 1
            assert [event.payload for event in ours.stream("t").read()] == ["ours"]
            assert ours.queue("q").enqueue("ours", key="a").created
        assert not listening.done()
        assert [task.payload for task in ours.queue("q").claim("w", 9)] == ["ours"]
        theirs.queue("q").configure(max_size=1)
        theirs.queue("q").pause()
        ours.queue("q").enqueue("more")
        advance(theirs, 3600)
        assert [info.state for info in ours.queue("q").tasks()] == ["running", "ready"]
        theirs.stream("t").prune(keep_count=0)
        assert [event.payload for event in ours.stream("t").read()] == ["ours"]
        ours.channel("c").notify("ours")
        assert listening.result(60) == "ours"
        eventkit_migrations.downgrade(place(url, "other"), "base")
        assert ours.stream("t").publish("still there") == 2


def functions(url: str) -> dict[str, str]:
    """Return the signature and the body of each function, by name."""
    with connected(url) as connection:
        rows = connection.exec_driver_sql(
            "SELECT proname || '(' || pg_get_function_identity_arguments(oid) || ') ' || pg_get_function_result(oid), "
            "prosrc FROM pg_proc WHERE pronamespace = current_schema::regnamespace"
        ).all()
    return {signature.removeprefix("eventkit_"): body for signature, body in rows}


def make_functions_older(url: str, *statements: str) -> None:
    """Store the hash of other functions, and execute the statements that make some of those."""
    with connected(url) as connection:
        for statement in (f"UPDATE {VERSION_TABLE} SET functions_hash = 'older'", *statements):
            connection.exec_driver_sql(statement)


def test_signatures_are_written_as_the_server_does(url: str) -> None:
    """A migration drops what has another signature, so each must be recognized."""
    eventkit_migrations.upgrade(url)
    assert functions(url).keys() == {*ddl.signatures()}


@pytest.mark.parametrize("way", ["upgrade", "script"])
def test_only_a_migration_replaces_functions(url: str, way: str) -> None:
    """Connecting refuses a database with other functions and changes nothing; a migration keeps rows and grants."""
    with eventkit.connect(url) as kit:
        kit.stream("orders").publish(1)
    current = functions(url)
    name = address.parse(url).schema
    with bare(url) as admin:
        admin.execute(f"CREATE ROLE {name}_caller")  # type: ignore[arg-type]
    try:
        make_functions_older(
            url,
            "CREATE OR REPLACE FUNCTION eventkit_token() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'",
            "DROP FUNCTION eventkit_stats(text)",
            "CREATE FUNCTION eventkit_stats(queue text, most bigint) RETURNS json LANGUAGE sql AS 'SELECT NULL::json'",
            "DROP FUNCTION eventkit_result_get(bigint)",
            "CREATE FUNCTION eventkit_result_get(id bigint) RETURNS text LANGUAGE sql AS 'SELECT NULL::text'",
            "CREATE FUNCTION eventkit_former() RETURNS text LANGUAGE sql AS 'SELECT NULL::text'",
            "REVOKE ALL ON FUNCTION eventkit_stats(text, bigint) FROM PUBLIC",
            f"GRANT EXECUTE ON FUNCTION eventkit_stats(text, bigint) TO {name}_caller",
        )
        older = functions(url)
        for create in (True, False):
            with pytest.raises(NotMigrated, match="functions of another version .*eventkit_migrations upgrade"):
                eventkit.connect(url, create=create)
        assert functions(url) == older
        if way == "upgrade":
            eventkit_migrations.upgrade(url)
        else:
            with bare(url) as admin:
                admin.execute(eventkit_migrations.script(url).encode())
        assert functions(url) == current
        assert eventkit_migrations.script(url) == ""
        with eventkit.connect(url) as kit:
            assert kit.stream("orders").head() == 1
        with connected(url) as connection:
            allowed = connection.exec_driver_sql(
                f"SELECT has_function_privilege('{name}_caller', 'eventkit_stats(text)', 'EXECUTE'), "
                "(SELECT proacl::text FROM pg_proc WHERE oid = 'eventkit_stats(text)'::regprocedure) LIKE '%%{=%%', "
                f"has_function_privilege('{name}_caller', 'eventkit_token()', 'EXECUTE')"
            ).one()
        assert tuple(allowed) == (True, False, True)
    finally:
        with bare(url) as admin:
            admin.execute(f"DROP OWNED BY {name}_caller; DROP ROLE {name}_caller")  # type: ignore[arg-type]

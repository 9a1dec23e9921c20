"""Databases of unreleased versions are refused, by the hash that the migrations store."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import eventkit_migrations
import pytest
from alembic import command
from alembic.config import Config
from eventkit_migrations import database
from eventkit_postgres import ddl
from schemas import connected, on_postgres, place, python, schema

import eventkit
from eventkit.cli.admin import examine
from eventkit.conformance import proves
from eventkit.errors import NotMigrated

EARLIER = {
    "another hash": ["UPDATE eventkit_identity SET schema_hash = 'another'"],
    "no hash": ["UPDATE eventkit_identity SET schema_hash = NULL"],
    "no column for it": ["ALTER TABLE eventkit_identity DROP COLUMN schema_hash"],
    "no row": ["DELETE FROM eventkit_identity"],
    "no table for it": ["DROP TABLE eventkit_identity"],
}
"""The differences of databases of earlier commits, and how to make one."""

REMEDY = r"unreleased version.*eventkit export FILE.*downgrade <url> --to base.*eventkit import FILE.*new database"

FOURTH = """
from eventkit_migrations.database import execute

revision, down_revision = "0004", "0003"

def upgrade(connection, schema):
    execute(connection, "CREATE TABLE eventkit_fourth (id bigint)", schema)

def downgrade(connection, schema):
    execute(connection, "DROP TABLE eventkit_fourth", schema)
"""


def dialect(url: str) -> str:
    return "postgresql" if on_postgres(url) else "sqlite"


def stored(url: str) -> Any:
    """Return the hash in the database."""
    with connected(url) as connection:
        return connection.exec_driver_sql("SELECT schema_hash FROM eventkit_identity").scalar()


def make_earlier(url: str, statements: list[str]) -> None:
    with connected(url) as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


@pytest.mark.parametrize("earlier", EARLIER)
@proves("G3")
def test_a_database_of_an_unreleased_version_is_refused(url: str, tmp_path: Path, earlier: str) -> None:
    """No call uses or changes it, and each refusal names the remedy."""
    with eventkit.connect(url) as kit:
        kit.stream("orders").publish(1)
    make_earlier(url, EARLIER[earlier])
    before = schema(url)
    fresh = place(url, "fresh")
    calls: list[Callable[[], object]] = [
        lambda: eventkit.connect(url),
        lambda: eventkit.connect(url, create=False),
        lambda: asyncio.run(connect(url)),
        lambda: eventkit.copy(url, fresh),
        lambda: eventkit.copy(fresh, url),
        lambda: eventkit_migrations.upgrade(url),
        lambda: eventkit_migrations.downgrade(url, "base"),
        lambda: eventkit_migrations.script(url),
        lambda: eventkit_migrations.current(url),
        lambda: command.upgrade(alembic(url), "head"),
        lambda: command.downgrade(alembic(url), "base"),
    ]
    eventkit.connect(fresh).close()
    for call in calls:
        with pytest.raises(NotMigrated, match=REMEDY):
            call()
    assert [found for found in examine(url) if found.level == "bad" and "unreleased version" in found.what]
    assert schema(url) == before


async def connect(url: str) -> None:
    await eventkit.connect_async(url)


def alembic(url: str) -> Config:
    """Run Alembic's own command."""
    config = Config()
    config.set_main_option("script_location", "eventkit_migrations:")
    config.set_main_option("path_separator", "os")
    config.set_main_option("sqlalchemy.url", url)
    return config


def test_alembics_own_command_stores_the_hash(url: str) -> None:
    """So do an upgrade and the execution of its script, which the tests of those cover."""
    command.upgrade(alembic(url), "head")
    assert stored(url) == eventkit_migrations.schema_hash(dialect(url))
    command.current(alembic(url))
    command.downgrade(alembic(url), "base")
    assert eventkit_migrations.current(url) is None


def test_a_script_stores_the_hash(url: str) -> None:
    """Executed by hand, it leaves a database that `connect` accepts."""
    script = eventkit_migrations.script(url)
    assert f"schema_hash = '{eventkit_migrations.schema_hash(dialect(url))}'" in script


@pytest.mark.parametrize("name", ["sqlite", "postgresql"])
def test_each_statement_is_in_the_hash(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Comments and layout are not, so that they can change without a new schema."""
    schema = type(database.of_scheme(name))
    statements = database.of_scheme(name).tables("0001")

    def hash_of(changed: list[str]) -> str:
        monkeypatch.setattr(schema, "tables", lambda *_: changed)
        return database.schema_hash.__wrapped__(name, "0001")

    ours = database.schema_hash(name, "0001")
    assert hash_of([f"-- A note.\n\n{statement}\n" for statement in statements]) == ours
    changed = {hash_of([*statements[:at], f"{one} x", *statements[at + 1 :]]) for at, one in enumerate(statements)}
    assert len(changed - {ours}) == len(statements)


def test_each_function_is_in_the_hash_of_the_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comments and layout are not."""
    statements = ddl._functions()

    def hash_of(changed: list[str]) -> str:
        monkeypatch.setattr(ddl, "_functions", lambda: changed)
        return ddl.functions_hash.__wrapped__()

    ours = ddl.functions_hash()
    assert hash_of([f"-- A note.\n\n{statement}\n" for statement in statements]) == ours
    changed = {hash_of([*statements[:at], f"{one} x", *statements[at + 1 :]]) for at, one in enumerate(statements)}
    assert len(changed - {ours}) == len(statements)
    assert any("FUNCTION eventkit_ack" in statement for statement in statements)


@pytest.fixture
def later(tmp_path: Path) -> Callable[[str], str]:
    """Run code with one more revision, and return a program's output."""
    package = Path(eventkit_migrations.__file__).parent
    copied = shutil.copytree(package, tmp_path / "later" / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    head = copied / "__init__.py"
    head.write_text(head.read_text().replace('HEAD = "0003"', 'HEAD = "0004"'))
    (copied / "versions" / "0004_fourth.py").write_text(FOURTH)

    def run(program: str) -> str:
        ended = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(copied.parent)!r}); {program}"],
            capture_output=True,
            text=True,
        )
        return ended.stdout + ended.stderr

    return run


def test_a_later_revision_upgrades_what_is_released(url: str, later: Callable[[str], str]) -> None:
    """It upgrades nothing else; a downgrade stores the hash of the revision below."""
    eventkit_migrations.upgrade(url)
    ours = stored(url)
    upgrade = f"import eventkit, eventkit_migrations; eventkit_migrations.upgrade({url!r})"
    said = later(f"{upgrade}; eventkit.connect({url!r}).close(); print(eventkit_migrations.current({url!r}))")
    assert said == "0004\n"
    assert stored(url) != ours
    assert later(f"import eventkit_migrations; eventkit_migrations.downgrade({url!r}, '0003')") == ""
    assert stored(url) == ours
    eventkit.connect(url).close()
    make_earlier(url, EARLIER["another hash"])
    assert "NotMigrated: the database has the eventkit tables of an unreleased version" in later(upgrade)


def test_connecting_loads_no_migration_library(url: str) -> None:
    """The hash of a current schema is compared without Alembic and SQLAlchemy."""
    eventkit_migrations.upgrade(url)
    program = (
        "import eventkit, sys; eventkit.connect(sys.argv[1]).close(); print({'alembic', 'sqlalchemy'} & {*sys.modules})"
    )
    assert python(program, url).communicate()[0] == "set()\n"

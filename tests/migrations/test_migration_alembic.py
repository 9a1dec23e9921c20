"""An application's own Alembic tree, and Alembic's own command, carry the schema."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import alembic.command
import apsw
import eventkit_migrations
import psycopg
import pytest
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from eventkit_migrations import HEAD
from eventkit_postgres import address
from eventkit_sqlite import address as sqlite_address
from schemas import connected, journal_mode, on_postgres, place, schema, tables
from sqlalchemy import Column, Integer, MetaData, Table

APPLICATION_ENV = """
from alembic import context
from sqlalchemy import NullPool, create_engine
import eventkit_migrations

engine = create_engine(context.config.get_main_option("sqlalchemy.url"), poolclass=NullPool)
with engine.connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=context.config.attributes["metadata"],
        include_object=eventkit_migrations.include_object,
        include_schemas=context.config.attributes.get("include_schemas", False),
    )
    with context.begin_transaction():
        context.run_migrations()
"""

APPLICATION_REVISION = f"""
import eventkit_migrations
import sqlalchemy as sa
from alembic import context, op

revision = "a1"
down_revision = None
schema = context.config.attributes["schema"]

def upgrade():
    eventkit_migrations.upgrade_op(op, to="{HEAD}", schema=schema)
    op.create_table("shop_order", sa.Column("id", sa.Integer, primary_key=True))

def downgrade():
    eventkit_migrations.downgrade_op(op, to="base", schema=schema)
    op.drop_table("shop_order")
"""


@pytest.fixture
def application(tmp_path: Path, url: str) -> Config:
    """Create an application with one table and an Alembic tree of its own."""
    (tmp_path / "tree" / "versions").mkdir(parents=True)
    (tmp_path / "tree" / "env.py").write_text(APPLICATION_ENV)
    (tmp_path / "tree" / "versions" / "a1_orders.py").write_text(APPLICATION_REVISION)
    metadata = MetaData()
    Table("shop_order", metadata, Column("id", Integer, primary_key=True))
    config = Config(attributes={"metadata": metadata, "schema": None})
    config.set_main_option("script_location", str(tmp_path / "tree"))
    config.set_main_option("path_separator", "os")
    if on_postgres(url):
        config.attributes["schema"] = address.parse(url).schema
        with connected(own(url)):
            url = own(url).replace("postgresql", "postgresql+psycopg", 1).replace("schema=", "options=-csearch_path%3D")
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config


def offline(config: Config, command: Callable[..., None], revision: str) -> str:
    """Return the output of Alembic's *command* with ``--sql``."""
    config.output_buffer = StringIO()
    command(config, revision, sql=True)
    return config.output_buffer.getvalue()


def execute(url: str, script: str) -> None:
    """Execute a script as psql and the shell of SQLite do: all statements of the text, outside of a driver."""
    if on_postgres(url):
        with psycopg.connect(address.parse(url).conninfo, autocommit=True) as connection:
            connection.execute(f'SET search_path = "{address.parse(url).schema}"')
            connection.execute(script)
    else:
        connection = apsw.Connection(sqlite_address.parse(url).path)
        connection.execute(script)
        connection.close()


def own(url: str) -> str:
    """Return where the application's own tables are: in the same file, or in another schema."""
    return place(url, "own") if on_postgres(url) else url


def test_an_applications_own_migration_carries_our_tables(application: Config, url: str) -> None:
    """One `alembic upgrade head` makes both, eventkit finds its schema current, one downgrade undoes both."""
    other = place(url, "other")
    eventkit_migrations.upgrade(other, to=HEAD)
    alembic.command.upgrade(application, "head")
    assert eventkit_migrations.current(url) == HEAD
    assert schema(url) == schema(other)
    assert "shop_order" in tables(own(url))
    alembic.command.downgrade(application, "base")
    assert eventkit_migrations.current(url) is None
    assert "shop_order" not in tables(own(url))


def test_an_applications_migration_finds_the_schema_there(application: Config, url: str) -> None:
    """The application's migration skips the tables that eventkit.connect created."""
    eventkit_migrations.upgrade(url)
    alembic.command.upgrade(application, "head")
    assert eventkit_migrations.current(url) == HEAD
    assert "shop_order" in tables(own(url))


@pytest.mark.parametrize("include_schemas", [False, True])
def test_autogenerate_leaves_our_tables_alone(application: Config, url: str, include_schemas: bool) -> None:
    """With include_object Alembic compares the application's own tables; without it, it would drop ours if it sees
    them, in any schema."""
    application.attributes["include_schemas"] = include_schemas
    alembic.command.upgrade(application, "head")
    alembic.command.check(application)
    with connected(own(url)) as connection:
        connection.exec_driver_sql("CREATE TABLE shop_forgotten (id INTEGER PRIMARY KEY)")
    with pytest.raises(alembic.util.AutogenerateDiffsDetected, match="shop_forgotten") as found:
        alembic.command.check(application)
    assert "eventkit" not in str(found.value)
    env = Path(application.get_main_option("script_location") or "") / "env.py"
    env.write_text(APPLICATION_ENV.replace("include_object=eventkit_migrations.include_object,", ""))
    seen = "eventkit_event" if include_schemas or not on_postgres(url) else "shop_forgotten"
    with pytest.raises(alembic.util.AutogenerateDiffsDetected, match=seen):
        alembic.command.check(application)


def test_an_applications_offline_mode_writes_our_tables_too(application: Config, url: str) -> None:
    """The script of `alembic upgrade head --sql`, executed by hand, leaves the schema that an upgrade leaves."""
    other = place(url, "other")
    eventkit_migrations.upgrade(other, to=HEAD)
    env = Path(application.get_main_option("script_location") or "") / "env.py"
    dialect = "postgresql" if on_postgres(url) else "sqlite"
    env.write_text(
        "from alembic import context\n"
        f"context.configure(dialect_name={dialect!r})\n"
        "with context.begin_transaction():\n"
        "    context.run_migrations()\n"
    )
    execute(own(url), offline(application, alembic.command.upgrade, "head"))
    assert eventkit_migrations.current(url) == HEAD
    assert schema(url) == schema(other)
    assert "shop_order" in tables(own(url))
    execute(own(url), offline(application, alembic.command.downgrade, "a1:base"))
    assert eventkit_migrations.current(url) is None
    assert "shop_order" not in tables(own(url))


@pytest.mark.parametrize("step", [("base", "0001"), ("0001", HEAD)])
def test_a_step_of_an_application_writes_only_its_own_statements(step: tuple[str, str]) -> None:
    """Offline, an application's second migration begins at the revision that it names, up and down."""
    below, above = step
    for name in "sqlite", "postgresql":
        written = StringIO()
        op = Operations(MigrationContext.configure(dialect_name=name, opts={"as_sql": True, "output_buffer": written}))
        eventkit_migrations.upgrade_op(op, to=above, at=below)
        assert ("CREATE TABLE eventkit_task" in written.getvalue().replace('"eventkit".', "")) is (below == "base")
        assert ("ADD COLUMN code" in written.getvalue()) is (above == HEAD)
        eventkit_migrations.downgrade_op(op, to=below, at=above)
        assert ("DROP COLUMN code" in written.getvalue()) is (above == HEAD)


@pytest.fixture
def alembic_config(url: str) -> Config:
    config = Config()
    config.set_main_option("script_location", "eventkit_migrations:")
    config.set_main_option("path_separator", "os")
    config.set_main_option("sqlalchemy.url", url)
    return config


def test_alembics_own_command_works_too(alembic_config: Config, url: str) -> None:
    """`alembic upgrade head` on our script location is the same as upgrade()."""
    other = place(url, "other")
    eventkit_migrations.upgrade(other)
    alembic.command.upgrade(alembic_config, "head")
    assert eventkit_migrations.current(url) == HEAD
    assert schema(url) == schema(other)
    assert on_postgres(url) or journal_mode(url) == "wal"
    alembic.command.downgrade(alembic_config, "base")
    assert eventkit_migrations.current(url) is None


def test_alembics_offline_mode_writes_the_script_of_migrate(alembic_config: Config, url: str) -> None:
    """`alembic upgrade head --sql` is `eventkit migrate --sql`, and its downgrade reverts it."""
    script = offline(alembic_config, alembic.command.upgrade, "head")
    assert script.strip() == eventkit_migrations.script(url).strip()
    execute(url, script)
    assert eventkit_migrations.current(url) == HEAD
    execute(url, offline(alembic_config, alembic.command.downgrade, "head:base"))
    assert eventkit_migrations.current(url) is None

"""The schema's migrations, under both SQLite drivers."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import alembic.command
import eventkit_migrations
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from eventkit_migrations import HEAD, VERSION_TABLE, database
from eventkit_migrations.__main__ import main
from sqlalchemy import Column, Connection, Integer, MetaData, NullPool, Table, create_engine

from eventkit.errors import Busy, NotMigrated, UnknownBackend

PACKAGE = Path(eventkit_migrations.__file__).parent
REVISIONS = [script.revision for script in ScriptDirectory(PACKAGE).walk_revisions()][::-1]


@pytest.fixture(params=["sqlite+apsw", "sqlite+pysqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}:///{tmp_path}/shop.db"


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    with create_engine(url, poolclass=NullPool).begin() as connection:
        yield connection


def schema(url: str) -> set[tuple[str, ...]]:
    """Every definition that is eventkit's: its tables, and the indexes and triggers on them."""
    sql = "SELECT type, name, sql FROM sqlite_master WHERE tbl_name GLOB 'eventkit_*'"
    with connected(url) as connection:
        return {tuple(row) for row in connection.exec_driver_sql(sql)}


def tables(url: str) -> set[str]:
    with connected(url) as connection:
        rows = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").all()
    return {row[0] for row in rows} - {"sqlite_sequence"}


def journal_mode(url: str) -> object:
    with connected(url) as connection:
        return connection.exec_driver_sql("PRAGMA journal_mode").scalar()


def python(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_head_is_the_newest_revision() -> None:
    """HEAD is what Alembic finds to be the single head."""
    assert ScriptDirectory(PACKAGE).get_current_head() == HEAD


def test_importing_loads_no_migration_library() -> None:
    """A process that finds its schema current never loads Alembic or SQLAlchemy."""
    script = "import eventkit_migrations, sys; print({'alembic', 'sqlalchemy'} & set(sys.modules))"
    assert python(script).communicate()[0] == "set()\n"


def test_upgrade_creates_the_schema(url: str) -> None:
    """An empty place gets the tables, the newest revision and WAL."""
    assert eventkit_migrations.current(url) is None
    eventkit_migrations.upgrade(url)
    assert eventkit_migrations.current(url) == HEAD
    assert {"eventkit_event", "eventkit_task", "eventkit_notification", VERSION_TABLE} <= tables(url)
    assert journal_mode(url) == "wal"


def test_upgrade_is_idempotent(url: str) -> None:
    """A second upgrade changes nothing and keeps the data."""
    eventkit_migrations.upgrade(url)
    before = schema(url)
    with connected(url) as connection:
        connection.exec_driver_sql("INSERT INTO eventkit_event (topic, payload) VALUES ('orders', '1')")
    eventkit_migrations.upgrade(url)
    eventkit_migrations.upgrade(url, to=REVISIONS[0])
    assert schema(url) == before
    with connected(url) as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM eventkit_event").scalar() == 1


def test_both_drivers_create_the_same_schema(tmp_path: Path) -> None:
    """The driver does not show in the tables."""
    ours, stdlib = f"sqlite+apsw:///{tmp_path}/a.db", f"sqlite+pysqlite:///{tmp_path}/b.db"
    eventkit_migrations.upgrade(ours)
    eventkit_migrations.upgrade(stdlib)
    assert schema(ours) == schema(stdlib)


def test_a_schema_upgraded_step_by_step_equals_a_fresh_one(url: str) -> None:
    """Every revision can be undone and done again, alone, and the last one leads to what a new file gets."""
    eventkit_migrations.upgrade(url)
    fresh = schema(url)
    seen = {HEAD: fresh}
    for revision in [*REVISIONS[-2::-1], "base"]:
        eventkit_migrations.downgrade(url, revision)
        seen[revision] = schema(url)
    assert eventkit_migrations.current(url) is None
    assert tables(url) == {VERSION_TABLE}
    for revision in REVISIONS:
        eventkit_migrations.upgrade(url, to=revision)
        assert eventkit_migrations.current(url) == revision
        assert schema(url) == seen[revision]
    assert schema(url) == fresh


def test_the_applications_tables_stay(url: str) -> None:
    """A downgrade to base drops what is eventkit's and nothing else."""
    with connected(url) as connection:
        connection.exec_driver_sql("CREATE TABLE eventkitten (id INTEGER PRIMARY KEY)")
    eventkit_migrations.upgrade(url)
    eventkit_migrations.downgrade(url, "base")
    assert tables(url) == {"eventkitten", VERSION_TABLE}


RACER = """
import sys
from sqlalchemy import Engine, event
import eventkit_migrations
from eventkit_migrations import database, revisions

created = 0

@event.listens_for(Engine, "before_cursor_execute")
def count(connection, cursor, statement, *rest):
    global created
    created += statement.startswith("CREATE TABLE eventkit_event ")

for url in sys.argv[1:]:
    print("ready", flush=True)
    sys.stdin.readline()
    eventkit_migrations.upgrade(url)
print(created)
"""


def test_twenty_processes_create_the_schema_once(url: str) -> None:
    """Twenty processes that meet at a new file all return normally, and one of them made the tables."""
    urls = [url.replace("shop.db", f"shop{n}.db") for n in range(3)]
    racers = [python(RACER, *urls) for _ in range(20)]
    for _ in urls:
        assert [racer.stdout.readline() for racer in racers if racer.stdout] == ["ready\n"] * 20
        for racer in racers:
            assert racer.stdin
            racer.stdin.write("\n")
            racer.stdin.flush()
    assert sum(int(racer.communicate()[0]) for racer in racers) == len(urls)
    assert [racer.returncode for racer in racers] == [0] * 20
    eventkit_migrations.upgrade(url)
    for created in urls:
        assert schema(created) == schema(url)
        with connected(created) as connection:
            versions = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").all()
        assert [tuple(row) for row in versions] == [(HEAD,)]


MORTAL = """
import itertools, os, signal, sys
from sqlalchemy import Engine, event
import eventkit_migrations
from eventkit_migrations import database, revisions

left = 0

@event.listens_for(Engine, "after_cursor_execute")
def die(*_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

command, url, *to = sys.argv[1:]
for left in itertools.count(1):
    child = os.fork()
    if child == 0:
        getattr(eventkit_migrations, command)(url.replace("shop", f"shop{left}"), *to)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    print(status, flush=True)
    if not os.WIFSIGNALED(status):
        break
"""


def killed(*arguments: str) -> int:
    """Run the command on one file after the other, killed one statement later each time until it ends."""
    output = python(MORTAL, *arguments).communicate()[0]
    *deaths, last = [int(status) for status in output.split()]
    assert last == 0
    assert set(deaths) == {signal.SIGKILL}
    return len(deaths)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL to survive")
def test_a_killed_upgrade_leaves_nothing(url: str) -> None:
    """Killed after any of its statements, an upgrade has done nothing, and the next one does everything."""
    deaths = killed("upgrade", url)
    assert deaths > 20
    eventkit_migrations.upgrade(url)
    for death in range(1, deaths + 1):
        struck = url.replace("shop", f"shop{death}")
        assert schema(struck) == set()
        eventkit_migrations.upgrade(struck)
        assert schema(struck) == schema(url)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL to survive")
def test_a_killed_downgrade_leaves_everything(url: str) -> None:
    """Killed after any of its statements, a downgrade has dropped nothing."""
    eventkit_migrations.upgrade(url)
    for n in range(1, 40):
        eventkit_migrations.upgrade(url.replace("shop", f"shop{n}"))
    deaths = killed("downgrade", url, "base")
    assert 5 < deaths < 39
    for death in range(1, deaths + 1):
        struck = url.replace("shop", f"shop{death}")
        assert schema(struck) == schema(url)
        assert eventkit_migrations.current(struck) == HEAD


def test_a_lock_that_is_not_given_up_is_busy(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits in vain for another process's migration gets Busy, not the driver's error."""
    monkeypatch.setattr(database, "TIMEOUT", 0.1)
    eventkit_migrations.upgrade(url)
    with database.locked(url), pytest.raises(Busy, match="try again"):
        eventkit_migrations.upgrade(url)


def test_a_database_without_wal_waits_for_its_writer(url: str) -> None:
    """Switching to WAL is refused at once while somebody writes; upgrade tries again instead of failing."""
    with connected(url) as connection:
        connection.exec_driver_sql("CREATE TABLE shop_order (id INTEGER PRIMARY KEY)")
    with ThreadPoolExecutor() as pool:
        with connected(url) as connection:
            connection.exec_driver_sql("INSERT INTO shop_order DEFAULT VALUES")
            upgrading = pool.submit(eventkit_migrations.upgrade, url)
            time.sleep(0.2)
            assert not upgrading.done()
        upgrading.result()
    assert eventkit_migrations.current(url) == HEAD


def test_a_newer_database_is_refused(url: str) -> None:
    """Code that does not know the database's revision changes nothing and says what to install."""
    eventkit_migrations.upgrade(url)
    with connected(url) as connection:
        connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    before = schema(url)
    with pytest.raises(NotMigrated, match=r"9999.*install"):
        eventkit_migrations.upgrade(url)
    with pytest.raises(NotMigrated, match=r"9999.*install"):
        eventkit_migrations.downgrade(url, "base")
    assert eventkit_migrations.current(url) == "9999"
    assert schema(url) == before


def test_an_unknown_target_is_refused(url: str) -> None:
    """A revision that does not exist is a ValueError that lists those that do."""
    with pytest.raises(ValueError, match=f"'12'.*{HEAD}"):
        eventkit_migrations.upgrade(url, to="12")
    assert eventkit_migrations.current(url) is None


def test_what_is_no_database_is_not_made_one(url: str, tmp_path: Path) -> None:
    """Asking for the revision of a missing file, or downgrading it, does not create it."""
    assert eventkit_migrations.current(url) is None
    eventkit_migrations.downgrade(url, "base")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("nowhere", ["sqlite://", "sqlite:///:memory:", "sqlite+pysqlite:///:memory:"])
def test_a_database_in_memory_is_refused(nowhere: str) -> None:
    """Tables that end with the connection are no schema."""
    with pytest.raises(ValueError, match="names no file"):
        eventkit_migrations.upgrade(nowhere)


def test_an_unknown_scheme_is_refused() -> None:
    """A URL of another database says which ones there are."""
    with pytest.raises(UnknownBackend, match=r"'mysql'.*sqlite"):
        eventkit_migrations.upgrade("mysql://localhost/shop")


def test_the_kits_options_stay_out_of_it(url: str, tmp_path: Path) -> None:
    """Whatever eventkit.connect understands in a URL, the migrations take the same URL."""
    eventkit_migrations.upgrade(f"{url}?durability=full&busy_timeout=5&watch=poll")
    assert eventkit_migrations.current(f"{url}?durability=off") == HEAD
    assert {path.name for path in tmp_path.iterdir()} <= {"shop.db", "shop.db-wal", "shop.db-shm"}


def test_plain_sqlite_means_our_driver(tmp_path: Path) -> None:
    """sqlite:/// is served by apsw: the stdlib's SQLite never opens the file."""
    script = """
import sys
import eventkit_migrations
sys.addaudithook(lambda name, details: print(name) if name == "sqlite3.connect" else None)
eventkit_migrations.upgrade(sys.argv[1])
print("done")
"""
    assert python(script, f"sqlite:///{tmp_path}/shop.db").communicate()[0] == "done\n"
    assert eventkit_migrations.current(f"sqlite+apsw:///{tmp_path}/shop.db") == HEAD


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
    )
    with context.begin_transaction():
        context.run_migrations()
"""

APPLICATION_REVISION = """
import eventkit_migrations
import sqlalchemy as sa
from alembic import op

revision = "a1"
down_revision = None

def upgrade():
    eventkit_migrations.upgrade_op(op, to="0001")
    op.create_table("shop_order", sa.Column("id", sa.Integer, primary_key=True))

def downgrade():
    eventkit_migrations.downgrade_op(op, to="base")
    op.drop_table("shop_order")
"""


@pytest.fixture
def application(tmp_path: Path, url: str) -> Config:
    """An application with one table and an Alembic tree of its own."""
    (tmp_path / "tree" / "versions").mkdir(parents=True)
    (tmp_path / "tree" / "env.py").write_text(APPLICATION_ENV)
    (tmp_path / "tree" / "versions" / "a1_orders.py").write_text(APPLICATION_REVISION)
    metadata = MetaData()
    Table("shop_order", metadata, Column("id", Integer, primary_key=True))
    config = Config(attributes={"metadata": metadata})
    config.set_main_option("script_location", str(tmp_path / "tree"))
    config.set_main_option("path_separator", "os")
    config.set_main_option("sqlalchemy.url", url)
    return config


def test_an_applications_own_migration_carries_our_tables(application: Config, url: str) -> None:
    """One `alembic upgrade head` makes both, eventkit finds its schema current, one downgrade undoes both."""
    other = url.replace("shop.db", "other.db")
    eventkit_migrations.upgrade(other, to="0001")
    alembic.command.upgrade(application, "head")
    assert eventkit_migrations.current(url) == "0001"
    assert schema(url) == schema(other)
    assert "shop_order" in tables(url)
    alembic.command.downgrade(application, "base")
    assert eventkit_migrations.current(url) is None
    assert "shop_order" not in tables(url)


def test_an_applications_migration_finds_the_schema_there(application: Config, url: str) -> None:
    """What eventkit.connect created before, the application's migration does not create again."""
    eventkit_migrations.upgrade(url)
    alembic.command.upgrade(application, "head")
    assert eventkit_migrations.current(url) == HEAD
    assert "shop_order" in tables(url)


def test_autogenerate_leaves_our_tables_alone(application: Config, url: str) -> None:
    """With include_object Alembic compares the application's own tables; without it, it would drop ours."""
    alembic.command.upgrade(application, "head")
    alembic.command.check(application)
    with connected(url) as connection:
        connection.exec_driver_sql("CREATE TABLE shop_forgotten (id INTEGER PRIMARY KEY)")
    with pytest.raises(alembic.util.AutogenerateDiffsDetected, match="shop_forgotten") as found:
        alembic.command.check(application)
    assert "eventkit" not in str(found.value)
    env = Path(application.get_main_option("script_location") or "") / "env.py"
    env.write_text(APPLICATION_ENV.replace("include_object=eventkit_migrations.include_object,", ""))
    with pytest.raises(alembic.util.AutogenerateDiffsDetected, match="eventkit_event"):
        alembic.command.check(application)


def test_an_applications_offline_mode_is_refused(application: Config, url: str) -> None:
    """A script cannot look where the database is, so `alembic upgrade --sql` ends at our migration."""
    env = Path(application.get_main_option("script_location") or "") / "env.py"
    env.write_text(f"from alembic import context\ncontext.configure(url={url!r})\ncontext.run_migrations()")
    with pytest.raises(alembic.util.CommandError, match="--sql"):
        alembic.command.upgrade(application, "head", sql=True)


@pytest.fixture
def alembic_config(url: str) -> Config:
    config = Config()
    config.set_main_option("script_location", "eventkit_migrations:")
    config.set_main_option("path_separator", "os")
    config.set_main_option("sqlalchemy.url", url)
    return config


def test_alembics_own_command_works_too(alembic_config: Config, url: str) -> None:
    """`alembic upgrade head` on our script location is the same as upgrade()."""
    other = url.replace("shop.db", "other.db")
    eventkit_migrations.upgrade(other)
    alembic.command.upgrade(alembic_config, "head")
    assert eventkit_migrations.current(url) == HEAD
    assert schema(url) == schema(other)
    assert journal_mode(url) == "wal"
    alembic.command.downgrade(alembic_config, "base")
    assert eventkit_migrations.current(url) is None


def test_alembics_offline_mode_is_refused(alembic_config: Config, tmp_path: Path) -> None:
    """--sql writes nothing, neither a script nor tables."""
    with pytest.raises(alembic.util.CommandError, match="--sql"):
        alembic.command.upgrade(alembic_config, "head", sql=True)
    assert list(tmp_path.iterdir()) == []


def test_the_command_line(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command prints the revision it ends at, and exits with 0."""
    for command, printed in [
        (["current", url], "none\n"),
        (["upgrade", url], f"{HEAD}\n"),
        (["current", url], f"{HEAD}\n"),
        (["upgrade", url, "--to", "0001"], f"{HEAD}\n"),
        (["downgrade", url, "--to", "base"], "none\n"),
    ]:
        assert main(command) == 0
        assert capsys.readouterr() == (printed, "")


def test_the_command_line_says_in_one_line_what_went_wrong(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failure is one line on stderr and exit code 1."""
    newer = url.replace("shop.db", "newer.db")
    eventkit_migrations.upgrade(newer)
    with connected(newer) as connection:
        connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    for arguments, word in [
        (["upgrade", newer], "9999"),
        (["upgrade", url, "--to", "12"], "'12'"),
        (["upgrade", url.replace("shop.db", "missing/shop.db")], "unable to open database file"),
        (["current", "mysql://localhost/shop"], "mysql"),
        (["current", "nonsense"], "nonsense"),
    ]:
        assert main(arguments) == 1
        printed, error = capsys.readouterr()
        assert printed == ""
        assert word in error
        assert error.count("\n") == 1


def test_the_command_line_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """--help exits with 0, a misuse with 2."""
    with pytest.raises(SystemExit) as asked:
        main(["--help"])
    assert asked.value.code == 0
    assert "dropped with its data" in " ".join(capsys.readouterr().out.lower().split())
    with pytest.raises(SystemExit) as misused:
        main(["downgrade", "sqlite:///shop.db"])
    assert misused.value.code == 2


def test_the_module_can_be_run(url: str) -> None:
    """python -m eventkit_migrations is the command."""
    command = [sys.executable, "-m", "eventkit_migrations", "upgrade", url]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == f"{HEAD}\n"

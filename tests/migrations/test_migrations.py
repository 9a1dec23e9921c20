"""Upgrades and downgrades of the schema, and refused databases."""

from itertools import pairwise
from pathlib import Path

import apsw
import eventkit_migrations
import pytest
from alembic.script import ScriptDirectory
from eventkit_migrations import HEAD, VERSION_TABLE
from eventkit_postgres import address
from eventkit_sqlite import ddl
from eventkit_sqlite.address import parse as address_of
from schemas import connected, content, journal_mode, on_postgres, only_sqlite, place, python, schema, tables

import eventkit
from eventkit import NewTask
from eventkit.conformance.urls import with_options
from eventkit.errors import NotMigrated, UnknownBackend
from eventkit.operations.coordination import OpenOutbox

PACKAGE = Path(eventkit_migrations.__file__).parent
REVISIONS = [script.revision for script in ScriptDirectory(PACKAGE).walk_revisions()][::-1]


def test_head_is_the_newest_revision() -> None:
    """HEAD is the single head that Alembic finds."""
    assert ScriptDirectory(PACKAGE).get_current_head() == HEAD


def test_importing_loads_no_migration_library() -> None:
    """A process that finds its schema current never loads Alembic or SQLAlchemy."""
    script = "import eventkit_migrations, sys; print({'alembic', 'sqlalchemy'} & set(sys.modules))"
    assert python(script).communicate()[0] == "set()\n"


def test_upgrade_creates_the_schema(url: str) -> None:
    """An empty place gets the tables, the newest revision and, where it is a file, WAL."""
    assert eventkit_migrations.current(url) is None
    eventkit_migrations.upgrade(url)
    assert eventkit_migrations.current(url) == HEAD
    assert {"eventkit_event", "eventkit_task", "eventkit_notification", VERSION_TABLE} <= tables(url)
    assert on_postgres(url) or journal_mode(url) == "wal"


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
    """The tables do not depend on the driver."""
    ours, stdlib = f"sqlite+apsw:///{tmp_path}/a.db", f"sqlite+pysqlite:///{tmp_path}/b.db"
    eventkit_migrations.upgrade(ours)
    eventkit_migrations.upgrade(stdlib)
    assert schema(ours) == schema(stdlib)


def test_a_schema_upgraded_step_by_step_equals_a_fresh_one(url: str) -> None:
    """Every revision can be undone and done again, alone, and the last one leads to the schema of a new file."""
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


RENAMED = {"lane": "group_key"}
"""The columns that revisions have renamed."""

DERIVED = {"key_start"}
"""The columns that the database computes from others."""


def fill(url: str) -> None:
    """Leave rows of each kind: tasks in each state, keys, settings, events, offsets, results, locks and schedules."""
    with eventkit.connect(url) as kit:
        queue = kit.queue("emails")
        queue.configure(max_attempts=5, rate=100.0, keep_done=3600, history=True)
        kept, dead, gone = (queue.enqueue({"n": n}, key=f"k{n}", priority=9 - n).id for n in range(3))
        for task in queue.claim("w", 3):
            assert {kept: queue.ack, dead: lambda task: queue.fail(task, "no"), gone: queue.ack}[task.id](task)
        queue.enqueue(["waits"], delay=3600)
        queue.enqueue_many([1, 2])
        assert queue.claim("w", lease=3600)
        queue.purge("done")
        queue.enqueue("ready", headers={"a": "b"})
        kit.stream("orders").publish({"id": 1}, key="k", dedup="d")
        kit.stream("orders").save_offset("billing", 1)
        kit.channel("alerts").notify("now")
        kit.results.save("sum", [1, None])
        kit.lock("one").acquire()
        kit.limit("calls", count=3, per=60).acquire()
        kit.schedules.add("daily", "0 3 * * *", queue="emails", payload={})


def test_an_upgrade_keeps_the_content_of_a_filled_database(url: str) -> None:
    """Every revision keeps all rows, up and down, and an upgraded database works."""
    fill(url)
    for above, below in pairwise(REVISIONS[::-1]):
        eventkit_migrations.downgrade(url, below)
        before = content(url)
        assert all(before[f"eventkit_{table}"] for table in ("task", "queue", "key", "event", "result", "schedule"))
        eventkit_migrations.upgrade(url, above)
        after = content(url)
        for table, rows in before.items():
            for stored, now in zip(rows, after[table], strict=True):
                names = dict(now)
                row = {(name if name in names else RENAMED[name], value) for name, value in stored}
                assert set(row) <= set(now)
                assert {value for name, value in set(now) - set(row) if name not in DERIVED} <= {"None"}
        eventkit_migrations.downgrade(url, below)
        assert content(url) == before
    eventkit_migrations.upgrade(url)
    with eventkit.connect(url) as kit:
        queue = kit.queue("emails")
        assert queue.enqueue(0, key="k1").created is False
        [failed] = queue.dead()
        assert (failed.payload, failed.error, failed.reason) == ({"n": 1}, "no", "failed")
        assert [task.payload for task in queue.claim("w", 9)] == [2, "ready"]
        assert kit.results.get("sum") == [1, None]


def test_tasks_that_wait_for_their_group_survive_revision_0003(url: str) -> None:
    """They wait for the earlier ones of their outbox above it, are not held below it, and keep their order."""
    with eventkit.connect(url) as kit:
        queue = kit.queue("outbox:mails")
        queue.configure(ordered=True)
        queue.enqueue_many([NewTask(n, group="ann") for n in range(3)])
        [first] = queue.claim("w", 9)
        assert queue.claim("w", 9) == []
        assert queue.stats().scheduled == 2
    eventkit_migrations.downgrade(url, "0002")
    with connected(url) as connection:
        found = connection.exec_driver_sql(
            "SELECT lane, state, wake_at = run_at FROM eventkit_task ORDER BY id"
        ).fetchall()
        assert [tuple(row) for row in found[1:]] == [("ann", "scheduled", True)] * 2
    eventkit_migrations.upgrade(url)
    with eventkit.connect(url) as kit:
        queue = kit.queue("outbox:mails")
        assert [task.group for task in queue.tasks()] == ["ann"] * 3
        kit._connection.execute(OpenOutbox("outbox:mails", True))  # type: ignore[attr-defined]
        assert queue.claim("w", 9, wait=1) == []
        assert queue.ack(first)
        assert [task.payload for task in queue.claim("w", 9, wait=5)] == [1]
        assert queue.claim("w", 9) == []


@only_sqlite
@pytest.mark.parametrize("way", ["upgrade", "script"])
def test_only_a_migration_replaces_the_views_of_plain_sql(url: str, way: str) -> None:
    """Connecting refuses a file with other views, or without any; a migration keeps the rows."""
    with eventkit.connect(url) as kit:
        kit.stream("orders").publish(1)
    current, known = schema(url), ddl.schema(url)
    other = ["DROP VIEW eventkit_do_ack", "CREATE VIEW eventkit_do_ack AS SELECT 1 AS id"]
    for statements in (
        ["DROP VIEW eventkit_functions", "CREATE VIEW eventkit_functions AS SELECT 'older' AS hash", *other],
        known.functions_dropped(),
    ):
        with connected(url) as database:
            for statement in statements:
                database.exec_driver_sql(statement)
        older = schema(url)
        with pytest.raises(NotMigrated, match="views of plain SQL of another version .*eventkit_migrations upgrade"):
            eventkit.connect(url)
        assert schema(url) == older
        if way == "upgrade":
            eventkit_migrations.upgrade(url)
        else:
            connection = apsw.Connection(address_of(url).path)
            connection.execute(eventkit_migrations.script(url))
            connection.close()
        assert (schema(url), eventkit_migrations.script(url)) == (current, "")
        with eventkit.connect(url) as kit:
            assert [event.payload for event in kit.stream("orders").read()] == [1]


def test_the_applications_tables_stay(url: str) -> None:
    """A downgrade to base drops eventkit's tables and nothing else."""
    with connected(url) as connection:
        connection.exec_driver_sql("CREATE TABLE eventkitten (id INTEGER PRIMARY KEY)")
    eventkit_migrations.upgrade(url)
    eventkit_migrations.downgrade(url, "base")
    assert tables(url) == {"eventkitten", VERSION_TABLE}


def test_a_newer_database_is_refused(url: str) -> None:
    """A program that does not know the database's revision changes nothing and names the package to install."""
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
    """Neither the revision of a missing file or schema nor its downgrade creates it."""
    assert eventkit_migrations.current(url) is None
    eventkit_migrations.downgrade(url, "base")
    assert list(tmp_path.iterdir()) == []
    if on_postgres(url):
        with connected(place(url, "looking")) as connection:
            found = connection.exec_driver_sql("SELECT to_regnamespace(%s)", (address.parse(url).schema,))
            assert found.scalar() is None


@pytest.mark.parametrize("nowhere", ["sqlite://", "sqlite:///:memory:", "sqlite+pysqlite:///:memory:"])
def test_a_database_in_memory_is_refused(nowhere: str) -> None:
    """Tables that end with the connection are no schema."""
    with pytest.raises(ValueError, match="names no file"):
        eventkit_migrations.upgrade(nowhere)


def test_an_unknown_scheme_is_refused() -> None:
    """A URL of another database lists the supported ones."""
    with pytest.raises(UnknownBackend, match=r"'mysql'.*sqlite"):
        eventkit_migrations.upgrade("mysql://localhost/shop")


def test_the_kits_options_stay_out_of_it(url: str, tmp_path: Path) -> None:
    """The migrations accept every URL that eventkit.connect accepts."""
    option = {"pooler": "transaction"} if on_postgres(url) else {"watch": "poll"}
    eventkit_migrations.upgrade(with_options(url, durability="full", busy_timeout=5, **option))
    assert eventkit_migrations.current(with_options(url, durability="off")) == HEAD
    assert {path.name for path in tmp_path.iterdir()} <= {"shop.db", "shop.db-wal", "shop.db-shm", "shop.db-lock"}


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

"""Migrations that meet, wait or are killed leave a complete schema or none."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor

import eventkit_migrations
import eventkit_postgres.ddl
import eventkit_sqlite.ddl
import pytest
from eventkit_migrations import HEAD, VERSION_TABLE, database
from schemas import connected, on_postgres, only_sqlite, place, python, schema

from eventkit.errors import Busy

DRIVERS = pytest.mark.parametrize(
    "url", ["sqlite+apsw", pytest.param("sqlite+pysqlite", marks=pytest.mark.slow), "postgresql"], indirect=True
)
"""The standard library's driver, which takes the same path, is in the slow group."""

RACERS = """
import os, sys, traceback
from sqlalchemy import Engine, event
import eventkit_migrations
from eventkit_migrations import database, revisions

created = 0

@event.listens_for(Engine, "before_cursor_execute")
def count(connection, cursor, statement, *rest):
    global created
    created += statement.startswith("CREATE TABLE") and "eventkit_event (" in statement

for url in sys.argv[1:]:
    starting, start = os.pipe()
    for _ in range(20):
        if os.fork() == 0:
            os.close(start)
            os.read(starting, 1)
            try:
                eventkit_migrations.upgrade(url)
                os._exit(created)
            except BaseException:
                traceback.print_exc()
                os._exit(100)
    os.close(start)
    print(*sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(20)), flush=True)
"""
"""Twenty processes for each URL that begin together; prints how many tables of events each of them has created."""


@DRIVERS
def test_twenty_processes_create_the_schema_once(url: str) -> None:
    """All of twenty processes that meet at a new file return normally, and one of them created the tables."""
    urls = [place(url, f"shop{n}") for n in range(1 if on_postgres(url) else 3)]
    output = python(RACERS, *urls).communicate()[0]
    assert output.splitlines() == [" ".join(["0"] * 19 + ["1"])] * len(urls)
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
for left in itertools.count(1, 16):
    child = os.fork()
    if child == 0:
        getattr(eventkit_migrations, command)(url.replace("shop", f"shop{left}"), *to)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    print(status, flush=True)
    if not os.WIFSIGNALED(status):
        break
"""


def killed(*arguments: str) -> range:
    """Kill the command on one place after the other, sixteen statements later each time; return where it ended."""
    output = python(MORTAL, *arguments).communicate()[0]
    *deaths, last = [int(status) for status in output.split()]
    assert last == 0
    assert set(deaths) == {signal.SIGKILL}
    return range(1, 1 + 16 * len(deaths), 16)


@DRIVERS
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL to survive")
def test_a_killed_upgrade_leaves_nothing(url: str) -> None:
    """Killed after one of its statements, an upgrade has done nothing, and the next one does everything."""
    deaths = killed("upgrade", url)
    assert deaths[-1] > 20
    eventkit_migrations.upgrade(url)
    for death in deaths:
        struck = place(url, f"shop{death}")
        assert schema(struck) == set()
        eventkit_migrations.upgrade(struck)
        assert schema(struck) == schema(url)


@DRIVERS
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL to survive")
def test_a_killed_downgrade_leaves_everything(url: str) -> None:
    """Killed after one of its statements, a downgrade has dropped nothing."""
    eventkit_migrations.upgrade(url)
    for n in range(1, 402, 16):
        eventkit_migrations.upgrade(place(url, f"shop{n}"))
    deaths = killed("downgrade", url, "base")
    assert 5 < deaths[-1] < 401
    for death in deaths:
        struck = place(url, f"shop{death}")
        assert schema(struck) == schema(url)
        assert eventkit_migrations.current(struck) == HEAD


def test_a_lock_that_is_not_given_up_is_busy(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that waits too long for another process's migration gets Busy, not the driver's error."""
    monkeypatch.setattr(eventkit_postgres.ddl if on_postgres(url) else eventkit_sqlite.ddl, "TIMEOUT", 0.1)
    eventkit_migrations.upgrade(url)
    with database.of(url).locked(), pytest.raises(Busy, match="try again"):
        eventkit_migrations.upgrade(url)


@only_sqlite
def test_a_database_without_wal_waits_for_its_writer(url: str) -> None:
    """Switching to WAL is refused at once while another process writes; upgrade tries again instead of failing."""
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

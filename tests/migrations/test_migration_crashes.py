"""Migrations that meet, wait or are killed leave a whole schema or none."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor

import eventkit_migrations
import pytest
from eventkit_migrations import HEAD, VERSION_TABLE, database, postgres, sqlite
from schemas import connected, on_postgres, only_sqlite, place, python, schema

from eventkit.errors import Busy

DRIVERS = pytest.mark.parametrize(
    "url", ["sqlite+apsw", pytest.param("sqlite+pysqlite", marks=pytest.mark.slow), "postgresql"], indirect=True
)
"""With the standard library's driver, which takes the same way, in the slow group."""

RACER = """
import sys
from sqlalchemy import Engine, event
import eventkit_migrations
from eventkit_migrations import database, revisions

created = 0

@event.listens_for(Engine, "before_cursor_execute")
def count(connection, cursor, statement, *rest):
    global created
    created += statement.startswith("CREATE TABLE") and "eventkit_event (" in statement

for url in sys.argv[1:]:
    print("ready", flush=True)
    sys.stdin.readline()
    eventkit_migrations.upgrade(url)
print(created)
"""


@DRIVERS
def test_twenty_processes_create_the_schema_once(url: str) -> None:
    """Twenty processes that meet at a new file all return normally, and one of them made the tables."""
    urls = [place(url, f"shop{n}") for n in range(1 if on_postgres(url) else 3)]
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
for left in itertools.count(1, 1 if url.startswith("sqlite") else 6):
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
    """Run the command on one place after the other, killed some statements later each time until it ends; which."""
    output = python(MORTAL, *arguments).communicate()[0]
    *deaths, last = [int(status) for status in output.split()]
    assert last == 0
    assert set(deaths) == {signal.SIGKILL}
    step = 6 if on_postgres(arguments[1]) else 1
    return range(1, 1 + step * len(deaths), step)


@DRIVERS
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL to survive")
def test_a_killed_upgrade_leaves_nothing(url: str) -> None:
    """Killed after any of its statements, an upgrade has done nothing, and the next one does everything."""
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
    """Killed after any of its statements, a downgrade has dropped nothing."""
    eventkit_migrations.upgrade(url)
    for n in range(1, 86, 6) if on_postgres(url) else range(1, 40):
        eventkit_migrations.upgrade(place(url, f"shop{n}"))
    deaths = killed("downgrade", url, "base")
    assert 5 < deaths[-1] < (85 if on_postgres(url) else 39)
    for death in deaths:
        struck = place(url, f"shop{death}")
        assert schema(struck) == schema(url)
        assert eventkit_migrations.current(struck) == HEAD


def test_a_lock_that_is_not_given_up_is_busy(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits in vain for another process's migration gets Busy, not the driver's error."""
    monkeypatch.setattr(postgres if on_postgres(url) else sqlite, "TIMEOUT", 0.1)
    eventkit_migrations.upgrade(url)
    with database.locked(url), pytest.raises(Busy, match="try again"):
        eventkit_migrations.upgrade(url)


@only_sqlite
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

"""ADBC brings a second SQLite library, and two on one file in one process lose committed rows.

The symptom is that the process loses its locks on the file: another process can then write in between.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from eventkit_sqlite.bulk import arrow
from spark.streams import Query, read

import eventkit
from eventkit.arrow import opened
from eventkit.conformance.clauses import proves
from eventkit.operations.tables import FetchEvents

IS_LOCKED = """
import sqlite3, sys
try:
    sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None).execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError as error:
    assert "locked" in str(error), error
else:
    sys.exit("another process got the lock")
"""

EVENTS = FetchEvents("orders", 0, 10, [], None, None, 10)


@pytest.fixture
def file(sqlite_url: str) -> str:
    """Return the database's file."""
    return sqlite_url.removeprefix("sqlite:///")


def assert_locked(file: str) -> None:
    """Check that some process holds the write lock."""
    subprocess.run([sys.executable, "-c", IS_LOCKED, file], check=True)


@proves("D9")
def test_where_a_kit_is_its_library_reads(sqlite_url: str, file: str) -> None:
    """In a process with a kit and a transaction on the file, bulk reads go through the same library."""
    with eventkit.connect(sqlite_url) as kit:
        offset = kit.stream("orders").publish(1)
        with kit.transaction() as tx:
            kit.stream("orders").publish(2, tx=tx)
            assert_locked(file)
            with opened(sqlite_url) as fetch:
                assert fetch(EVENTS, ["offset", "payload"]).to_pydict() == {"offset": [offset], "payload": ["1"]}
            assert_locked(file)


@proves("D9")
def test_where_adbc_reads_no_kit_opens(sqlite_url: str) -> None:
    """The second library is refused until the first has closed the file."""
    eventkit.connect(sqlite_url).close()
    with arrow(sqlite_url) as fetch:
        assert fetch(EVENTS, ["offset"]).num_rows == 0
        with pytest.raises(eventkit.ForeignTransaction, match="reads .* through ADBC, .*: open the kit when that has"):
            eventkit.connect(sqlite_url)
    with eventkit.connect(sqlite_url) as kit:
        assert kit.stream("orders").publish(1)
        with pytest.raises(eventkit.ForeignTransaction), arrow(sqlite_url):
            pass


@proves("D9")
@pytest.mark.parametrize("low_latency", ["false", "true"], ids=["workers", "driver"])
def test_the_driver_may_have_a_kit(spark: Any, sqlite_url: str, file: str, tmp_path: Path, low_latency: str) -> None:
    """While Spark reads, its driver's own transaction holds; ADBC is in the workers only."""
    with eventkit.connect(sqlite_url) as kit:
        offset = kit.stream("orders").publish(1)
        with kit.transaction() as tx:
            kit.stream("orders").publish(2, tx=tx)
            assert read(spark, sqlite_url, topic="orders").count() == 1
            query = Query(
                spark, tmp_path, sqlite_url, topic="orders", startingOffsets="earliest", lowLatency=low_latency
            )
            query.run()
            assert query.offsets() == [offset]
            assert_locked(file)
        assert kit.stream("orders").head() == offset + 1

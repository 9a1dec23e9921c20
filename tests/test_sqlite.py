"""The conformance suite on SQLite: through apsw, and in the slow group through the standard library's driver.

`test_pysqlite` runs the tests of transactions and sessions, where the two differ most, each time.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import eventkit_sqlite
import pytest

import eventkit
from eventkit.conformance import *

ENGINES = {
    ("sqlite", "sync"): "sqlite+apsw",
    ("sqlite", "async"): "sqlite+apsw_async",
    ("sqlite+pysqlite", "sync"): "sqlite+pysqlite",
    ("sqlite+pysqlite", "async"): "sqlite+aiosqlite",
}
"""SQLAlchemy's name for the library that the kit uses."""


@pytest.fixture(scope="session")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a closed file with empty tables."""
    path = tmp_path_factory.mktemp("pattern") / "pattern.db"
    eventkit.connect(f"sqlite:///{path}").close()
    return path


@pytest.fixture(params=["sqlite", pytest.param("sqlite+pysqlite", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path, pattern: Path) -> str:
    """Return the URL of a fresh file, by each driver: a copy, because creating tables takes longer than most tests."""
    shutil.copyfile(pattern, tmp_path / "test.db")
    return f"{request.param}:///{tmp_path}/test.db"


@pytest.fixture
def new_url(url: str) -> str:
    """Return a URL without a file yet."""
    return url.replace("test.db", "new.db")


@pytest.fixture
def bare_sql(url: str) -> Iterator[tuple[str, Callable[[str], Any]]]:
    """Return a caller of SQL by a connection of apsw with the functions."""
    if url.startswith("sqlite+pysqlite"):
        pytest.skip("the functions are for connections of apsw")
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.set_busy_timeout(30_000)
    eventkit_sqlite.register(connection)

    def run(sql: str) -> Any:
        rows = connection.execute(sql).fetchall()
        return rows[0][0] if rows else None

    yield "", run
    connection.close()


@pytest.fixture
def engine_url(url: str, flavour: str) -> str:
    """Return an engine on the same SQLite library, with a busy timeout that is enough for many writers."""
    scheme, _, file = url.partition(":")
    return f"{ENGINES[scheme, flavour]}:{file}?timeout=30"

"""The extent of a run, and the databases that its groups use.

SQLite is a file in the run's folder.  Postgres is a server of the run's own, with default settings and fsync on.
"""

import itertools
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from clusters import Cluster

_VERSION = "EVENTKIT_TEST_POSTGRES_VERSION"
_DEFAULTS = {"max_connections": 100, "shared_buffers": "128MB", "fsync": "on", "full_page_writes": "on"}
SLOW_DISK = {"commit_delay": 1000, "commit_siblings": 0}
"""The leader of a commit waits for a millisecond before the fsync, as if the fsync took longer."""
EVERY_STATEMENT = {"log_statement": "all", "log_line_prefix": "%d "}
"""The server logs the statements, each after the name of its database."""


class Settings(msgspec.Struct, frozen=True):
    """The settings of a run: *quick* only checks that everything works."""

    root: str
    quick: bool = False

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return 1 if self.quick else 7

    @property
    def few_rounds(self) -> int:
        """The number of rounds of slow work."""
        return 1 if self.quick else 5

    def count(self, count: int, least: int = 1) -> int:
        """Return how many of *count* repetitions to do."""
        return max(least, count // 50) if self.quick else count

    def seconds(self, seconds: float) -> float:
        """Return for how long to measure instead of *seconds*."""
        return min(0.3, seconds) if self.quick else seconds

    def folder(self, name: str) -> str:
        """Return a new folder."""
        return tempfile.mkdtemp(prefix=f"{name}-", dir=self.root)


class SQLite:
    """Files in new folders."""

    name, note = "SQLite", ""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def new(self, options: str = "") -> str:
        """Return the URL of a new database."""
        return f"sqlite:///{self._settings.folder('sqlite')}/kit.db{options}"


class Postgres:
    """A running server."""

    name = "Postgres"

    def __init__(self, cluster: "Cluster") -> None:
        self.cluster = cluster
        self._numbers = itertools.count(1)

    @property
    def note(self) -> str:
        """The description of the server."""
        names = ("fsync", "synchronous_commit", "shared_buffers", "commit_delay")
        settings = ", ".join(f"`{name}` {self.ask(f'SHOW {name}')}" for name in names)
        return f"PostgreSQL {self.cluster.version}, a server of the run's own: {settings}, otherwise default settings."

    def new(self, options: str = "") -> str:
        """Return the URL of a new database."""
        name = f"bench_{next(self._numbers)}"
        self.ask(f"CREATE DATABASE {name}")
        return f"{self.cluster.url.removesuffix('/postgres')}/{name}{options}"

    def ask(self, statement: Any) -> Any:
        """Return the single value that a statement returns, if any."""
        import psycopg

        with psycopg.connect(self.cluster.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return next(iter(cursor.fetchone() or ())) if cursor.description else None


Database = SQLite | Postgres


@contextmanager
def sqlite(settings: Settings) -> Iterator[SQLite]:
    """Provide files."""
    yield SQLite(settings)


@contextmanager
def postgres(settings: Settings, **changes: object) -> Iterator[Postgres]:
    """Provide a server in the run's folder, with default settings except *changes*, and remove it at the end."""
    # The tests' servers, which end with the process that started them.
    sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
    import postgres_binaries
    from clusters import Cluster

    version = os.environ.get(_VERSION)
    binaries = postgres_binaries.find(int(version) if version else None)
    elsewhere, tempfile.tempdir = tempfile.tempdir, os.path.dirname(settings.root)
    try:
        options: dict[str, Any] = _DEFAULTS | changes
        with Cluster(binaries, **options) as cluster:
            yield Postgres(cluster)
    finally:
        tempfile.tempdir = elsewhere

"""The server of a run: its own, with PostgreSQL's default settings."""

import itertools
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier

from ..settings import Settings

# The tests' servers, which end with the process that started them.
sys.path.append(str(Path(__file__).parents[2] / "tests"))

import postgres_binaries
from clusters import Cluster

_VERSION = "EVENTKIT_TEST_POSTGRES_VERSION"
_DEFAULTS = {"max_connections": 100, "shared_buffers": "128MB", "fsync": "on", "full_page_writes": "on"}
SLOW_DISK = {"commit_delay": 1000, "commit_siblings": 0}
"""The leader of a commit waits for a millisecond before the fsync, as if the fsync took longer."""


class Server:
    """A running server on which to create databases."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._numbers = itertools.count(1)

    @property
    def note(self) -> str:
        """The description of the server."""
        names = ("fsync", "synchronous_commit", "shared_buffers", "commit_delay")
        with psycopg.connect(self.cluster.url) as connection:
            values = [connection.execute(SQL("SHOW {}").format(Identifier(name))).fetchone() for name in names]
        settings = ", ".join(f"`{name}` {value[0]}" for name, value in zip(names, values, strict=True) if value)
        return f"PostgreSQL {self.cluster.version}, a server of the run's own: {settings}, otherwise default settings."

    def new_database(self) -> str:
        """Return the URL of an empty database."""
        name = f"bench_{next(self._numbers)}"
        with psycopg.connect(self.cluster.url, autocommit=True) as connection:
            connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        return f"{self.cluster.url.removesuffix('/postgres')}/{name}"


@contextmanager
def serving(settings: Settings, **changes: object) -> Iterator[Server]:
    """Provide a server in the run's folder, with default settings except *changes*, and remove it at the end."""
    version = os.environ.get(_VERSION)
    binaries = postgres_binaries.find(int(version) if version else None)
    elsewhere, tempfile.tempdir = tempfile.tempdir, os.path.dirname(settings.root)
    try:
        with Cluster(binaries, **(_DEFAULTS | changes)) as cluster:
            yield Server(cluster)
    finally:
        tempfile.tempdir = elsewhere

"""The server that a run measures on: one of its own, with the settings that PostgreSQL comes with."""

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

# The tests' servers, which end with the process that made them.
sys.path.append(str(Path(__file__).parents[2] / "tests"))

import postgres_binaries
from clusters import Cluster

_VERSION = "EVENTKIT_TEST_POSTGRES_VERSION"
_DEFAULTS = {"max_connections": 100, "shared_buffers": "128MB", "fsync": "on", "full_page_writes": "on"}
SLOW_DISK = {"commit_delay": 1000, "commit_siblings": 0}
"""Whoever leads a commit waits for a millisecond before the fsync, as if that took so much longer."""


class Server:
    """A running server, and new databases in it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._numbers = itertools.count(1)

    @property
    def note(self) -> str:
        """What was measured on."""
        names = ("fsync", "synchronous_commit", "shared_buffers", "commit_delay")
        with psycopg.connect(self.cluster.url) as connection:
            values = [connection.execute(SQL("SHOW {}").format(Identifier(name))).fetchone() for name in names]
        settings = ", ".join(f"`{name}` {value[0]}" for name, value in zip(names, values, strict=True) if value)
        return f"PostgreSQL {self.cluster.version}, a server of the run's own: {settings}, all else by default."

    def new_database(self) -> str:
        """The URL of a database that is empty."""
        name = f"bench_{next(self._numbers)}"
        with psycopg.connect(self.cluster.url, autocommit=True) as connection:
            connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        return f"{self.cluster.url.removesuffix('/postgres')}/{name}"


@contextmanager
def serving(settings: Settings, **changes: object) -> Iterator[Server]:
    """A server beside the run's folder, with the default settings but for *changes*; it is gone in the end."""
    version = os.environ.get(_VERSION)
    binaries = postgres_binaries.find(int(version) if version else None)
    elsewhere, tempfile.tempdir = tempfile.tempdir, os.path.dirname(settings.root)
    try:
        with Cluster(binaries, **(_DEFAULTS | changes)) as cluster:
            yield Server(cluster)
    finally:
        tempfile.tempdir = elsewhere

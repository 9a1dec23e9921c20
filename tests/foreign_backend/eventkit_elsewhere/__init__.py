"""A backend of eventkit in a distribution of its own, on Python's sqlite3, for URLs such as ``elsewhere:///shop.db``.

The module implements `eventkit.backend.Backend`.  It owns its tables and statements, and keeps the contract for
streams, queues, channels, locks, limits, results and schedules.
"""

import asyncio
import os
import time
from contextlib import closing

import eventkit_migrations

from eventkit.errors import NotMigrated, Unavailable
from eventkit.operations import ReadCondition, ReadSchema

from .connection import AsyncConnection, Connection
from .file import File, parse
from .schema import TIMEOUT, Schema
from .statements import fetch

__all__ = ["capabilities", "connect", "connect_async", "schema"]

capabilities: frozenset[str] = frozenset({"elsewhere"})


def connect(url: str, *, create: bool = True, incomplete: bool = False) -> Connection:
    """Return a connection to the file of *url*, and create its tables if there are none and *create* is true."""
    return Connection(_checked(url, create, incomplete))


async def connect_async(url: str, *, create: bool = True) -> AsyncConnection:
    """`connect`, for asyncio."""
    return AsyncConnection(await asyncio.to_thread(_checked, url, create, False))


def schema(url: str | None = None, name: str = "eventkit") -> Schema:
    """Return the tables of the file of *url*, for the migrations; a file has no schemas to *name*."""
    return Schema(url)


def _checked(url: str, create: bool, incomplete: bool) -> File:
    """Return the file of *url*, whose tables are those of this version."""
    file = parse(url)
    if not os.path.isdir(os.path.dirname(file.path)) or os.path.isdir(file.path):
        raise Unavailable(f"{file.path} cannot be a file: name one in a folder that exists")
    version = _version(file, incomplete)
    if version is None and create:
        eventkit_migrations.upgrade(url)
        version = _version(file, incomplete)
    if version != eventkit_migrations.HEAD:
        raise NotMigrated(
            f"{file.path} has the schema {version}, and this eventkit needs {eventkit_migrations.HEAD}: install the "
            f"newest eventkit, and run python -m eventkit_migrations upgrade {url}"
        )
    return file


def _version(file: File, incomplete: bool) -> str | None:
    """Return the revision of the tables; None without tables."""
    if not os.path.exists(file.path):
        return None
    with file.errors(), closing(file.open()) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'eventkit_version'").fetchall():
            return None
        version = ReadSchema().decode(fetch(connection, ReadSchema()))
        if version == eventkit_migrations.HEAD:
            condition = ReadCondition().decode(fetch(connection, ReadCondition()))
            if condition.schema_hash != eventkit_migrations.schema_hash("elsewhere"):
                raise NotMigrated(f"{file.path} {eventkit_migrations.UNRELEASED}")
            if condition.incomplete is not None and not incomplete:
                raise Unavailable(f"{file.path}: {condition.incomplete}")
        _use_wal(file)
        return version


def _use_wal(file: File) -> None:
    """Let readers read beside a writer; SQLite refuses the change, without waiting, while another one uses the file."""
    deadline = time.monotonic() + TIMEOUT
    with closing(file.open()) as connection:
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except connection.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

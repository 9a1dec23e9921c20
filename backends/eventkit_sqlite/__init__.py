"""eventkit on SQLite.

SQLite has one writer at a time.  Concurrent writes share a commit (`writer`), reads run beside the writer
(`reading`), and waiting calls sleep until the file system reports a write (`watcher`).  The module implements
`eventkit.protocols.Backend`.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from typing import Any

import eventkit_migrations

from eventkit.errors import NotMigrated, Unavailable
from eventkit.operations import Operation, ReadCondition, ReadSchema

from .address import Address, parse
from .admin import backup, compact, diagnose
from .connection import Connection
from .connection_async import AsyncConnection
from .ddl import functions_hash, schema
from .file import reserved
from .library import OLDEST, Error, open_connection, translate, use_wal
from .statements import fetch
from .transaction import register

__all__ = ["arrow", "backup", "capabilities", "compact", "connect", "connect_async", "diagnose", "register", "schema"]

capabilities: frozenset[str] = frozenset()
"""The optional capabilities of this backend; it lacks ``concurrent_writers``."""

_HAS_FUNCTIONS = "SELECT 1 FROM sqlite_master WHERE name = 'eventkit_functions' AND instr(sql, ?)"
"""Finds the views of plain SQL by their hash, also in a database that has none."""


def connect(url: str, *, create: bool = True, incomplete: bool = False) -> Connection:
    """Return a connection to the database of *url*.  If it has no schema and *create* is true, create the schema.

    Refuse a database that was copied or imported in part, unless *incomplete* is true.
    """
    address = parse(url)
    _prepare(address, create, incomplete)
    return Connection(address)


async def connect_async(url: str, *, create: bool = True) -> AsyncConnection:
    """`connect`, for asyncio."""
    address = parse(url)
    await asyncio.to_thread(_prepare, address, create, False)
    return await AsyncConnection.open(address)


def arrow(url: str) -> AbstractContextManager[Callable[[Operation[Any], Sequence[str]], Any]]:
    """Return a function that executes an operation that reads and returns an Arrow table."""
    from .bulk import arrow as opened

    return opened(url)


def _prepare(address: Address, create: bool, incomplete: bool) -> None:
    """Check that the file is usable and has the current schema, or raise the error that says why not."""
    path, folder = address.path, os.path.dirname(address.path)
    with reserved(address):
        if address.library == "sqlite3" and sqlite3.sqlite_version_info < OLDEST:
            raise Unavailable(
                f"this Python's sqlite3 is SQLite {sqlite3.sqlite_version}, older than {'.'.join(map(str, OLDEST))}: "
                f"use a URL that begins with sqlite:///, for which eventkit brings SQLite itself, or a newer Python"
            )
        if os.path.isdir(path):
            raise Unavailable(f"{path} is a folder: name a file in it")
        if not os.path.isdir(folder):
            raise Unavailable(f"{path} cannot be created: there is no folder {folder}")
        if not os.path.exists(path):
            if not create:
                raise NotMigrated(f"there is no {path}: run python -m eventkit_migrations upgrade {address.url}")
            if not os.access(folder, os.W_OK):
                raise Unavailable(f"{path} cannot be created: check the permissions of the folder")
            eventkit_migrations.upgrade(address.url)
        elif not os.access(path, os.W_OK) or not os.access(folder, os.W_OK):
            raise Unavailable(f"{path} cannot be written: check the permissions of the file and its folder")
        version = _version(address, incomplete)
        if version is None and create:
            eventkit_migrations.upgrade(address.url)
            version = _version(address, incomplete)
    eventkit_migrations.check(path, address.url, version)


def _version(address: Address, incomplete: bool) -> str | None:
    """Switch the file to WAL mode and return the revision of its schema; None without a schema."""
    path = address.path
    try:
        opened = open_connection(address.library, path, address.synchronous, address.busy_timeout)
        with closing(opened) as connection:
            version: str | None = ReadSchema().decode(fetch(connection, ReadSchema()))
            # A migration run by the application may create the tables but cannot switch to WAL mode.
            use_wal(connection, address.busy_timeout)
            if version == eventkit_migrations.HEAD:
                condition = ReadCondition().decode(fetch(connection, ReadCondition()))
                if condition.schema_hash != eventkit_migrations.schema_hash("sqlite"):
                    raise NotMigrated(f"{path} {eventkit_migrations.UNRELEASED}")
                if not connection.execute(_HAS_FUNCTIONS, (functions_hash(),)).fetchall():
                    raise NotMigrated(
                        f"{path} has the views of plain SQL of another version of eventkit: "
                        f"run python -m eventkit_migrations upgrade {address.url}"
                    )
                if condition.incomplete is not None and not incomplete:
                    raise Unavailable(f"{path}: {condition.incomplete}")
            return version
    except Error as error:
        if "no such table: eventkit_version" in str(error):
            return None
        if "no such table: eventkit_identity" in str(error) or "no such column" in str(error):
            raise NotMigrated(f"{path} {eventkit_migrations.UNRELEASED}") from error
        raise translate(error, path) from error

"""eventkit on SQLite.

One writer at a time is SQLite's law; everything here makes it feel like more.  Writes that meet share a
commit (`turns`, `writer`), readers work beside the writer (`reading`), and waiters sleep on the file system's
own word that something was written (`watcher`, `alarm`).  A module of this shape is what
`eventkit.protocols.Backend` describes.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import eventkit_migrations

from eventkit.errors import NotMigrated, Unavailable
from eventkit.operations import Operation, ReadIncomplete, ReadSchema

from .address import Address, parse
from .care import backup, compact, diagnose
from .connection import Connection
from .connection_async import AsyncConnection
from .file import reserved
from .functions import register
from .library import OLDEST, Error, open_connection, translate, use_wal
from .statements import fetch

__all__ = ["arrow", "backup", "capabilities", "compact", "connect", "connect_async", "diagnose", "register"]

capabilities: frozenset[str] = frozenset()
"""What this backend can do beyond the contract; ``concurrent_writers`` is not among it."""


def connect(url: str, *, create: bool = True, incomplete: bool = False) -> Connection:
    """A connection to the database of *url*, whose schema is made first if there is none and *create* is true.

    A database that was copied or imported in part is refused unless *incomplete* is true.
    """
    address = parse(url)
    _prepare_alone(address, create, incomplete)
    return Connection(address)


async def connect_async(url: str, *, create: bool = True) -> AsyncConnection:
    """`connect`, for asyncio."""
    address = parse(url)
    await asyncio.to_thread(_prepare_alone, address, create, False)
    return await AsyncConnection.open(address)


def arrow(url: str) -> AbstractContextManager[Callable[[Operation[Any], Sequence[str]], Any]]:
    """What executes an operation that reads, with an Arrow table for an answer."""
    from .bulk import arrow as opened

    return opened(url)


def _prepare_alone(address: Address, create: bool, incomplete: bool) -> None:
    with reserved(address):
        _prepare(address, create, incomplete)


def _prepare(address: Address, create: bool, incomplete: bool) -> None:
    """See that the file can be used and has the schema of this code, or say why not."""
    path = address.path
    if address.library == "sqlite3" and sqlite3.sqlite_version_info < OLDEST:
        raise Unavailable(
            f"this Python's sqlite3 is SQLite {sqlite3.sqlite_version}, older than {'.'.join(map(str, OLDEST))}: "
            f"use a URL that begins with sqlite:///, for which eventkit brings SQLite itself, or a newer Python"
        )
    if os.path.isdir(path):
        raise Unavailable(f"{path} is a folder: name a file in it")
    folder = os.path.dirname(path)
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
    if version != eventkit_migrations.HEAD:
        raise _wrong_version(address, version)


def _version(address: Address, incomplete: bool) -> str | None:
    """The revision of the schema in the file, which is in WAL mode then; None without a schema."""
    path = address.path
    try:
        connection = open_connection(address.library, path, address.synchronous, address.busy_timeout)
        try:
            version = ReadSchema().decode(fetch(connection, ReadSchema()))
            # An application's own migration, which may have brought our tables, cannot switch it.
            use_wal(connection, address.busy_timeout)
            if version == eventkit_migrations.HEAD and not incomplete:
                refused = ReadIncomplete().decode(fetch(connection, ReadIncomplete()))
                if refused is not None:
                    raise Unavailable(f"{path}: {refused}")
            return version
        finally:
            connection.close()
    except Error as error:
        if "no such table: eventkit_version" in str(error):
            return None
        raise translate(error, path) from error


def _wrong_version(address: Address, version: str | None) -> NotMigrated:
    head = eventkit_migrations.HEAD
    if version is None:
        found = "has no eventkit schema"
    elif version < head:
        found = f"has the eventkit schema of revision {version}, older than this code's {head}"
    else:
        return NotMigrated(
            f"{address.path} has the eventkit schema of revision {version}, newer than this code's {head}: "
            f"install a newer eventkit"
        )
    return NotMigrated(f"{address.path} {found}: run python -m eventkit_migrations upgrade {address.url}")

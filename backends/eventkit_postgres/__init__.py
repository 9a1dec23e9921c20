"""eventkit on Postgres.

Many write at once here, and what that takes is in the database: functions that leave a mark before they draw a
number, so that a reader knows how far everything has settled, and that notify only when somebody sleeps
(``eventkit_migrations``).  This package opens connections (`session`), executes operations on them
(`connection`, `connection_async`), and sleeps until a commit is worth looking at (`listener`, `napping`).  A module
of this shape is what `eventkit.protocols.Backend` describes.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import eventkit_migrations
import psycopg

from eventkit.errors import NotMigrated, Unavailable
from eventkit.operations import Operation, ReadIncomplete, ReadSchema

from .address import Address, parse, shown
from .care import compact, diagnose
from .connection import Connection
from .connection_async import AsyncConnection
from .errors import translated
from .session import OwnConnection, check_encoding, options
from .statements import statements

__all__ = ["arrow", "capabilities", "compact", "connect", "connect_async", "diagnose"]

capabilities: frozenset[str] = frozenset({"concurrent_writers"})
"""What this backend can do beyond the contract: several transactions write at the same time."""


def connect(url: str, *, create: bool = True, incomplete: bool = False) -> Connection:
    """A connection to the schema of *url*, which is made first if it is not there and *create* is true.

    A database that was copied or imported in part is refused unless *incomplete* is true.
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
    """What executes an operation that reads, with an Arrow table for an answer."""
    from .bulk import arrow as opened

    return opened(url)


def _prepare(address: Address, create: bool, incomplete: bool) -> None:
    """See that the database can be used and has the schema of this code, or say why not."""
    version = _version(address, incomplete)
    if version is None and create:
        eventkit_migrations.upgrade(address.url)
        version = _version(address, incomplete)
    if version != eventkit_migrations.HEAD:
        raise _wrong_version(address, version)


def _version(address: Address, incomplete: bool) -> str | None:
    """The revision of eventkit's schema; None where there is none."""
    try:
        with OwnConnection.connect(address.conninfo, autocommit=True, **options(address, address.conninfo)) as driver:
            check_encoding(driver, address)
            known = statements(address.schema)
            version = ReadSchema().decode(driver.execute(known[ReadSchema].sql.encode()).fetchall())
            if version == eventkit_migrations.HEAD and not incomplete:
                rows = driver.execute(known[ReadIncomplete].sql.encode()).fetchall()
                if (refused := ReadIncomplete().decode(rows)) is not None:
                    raise Unavailable(f"{shown(address.url)}: {refused}")
            return version
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return None
    except psycopg.Error as error:
        raise translated(error, address) or error from error


def _wrong_version(address: Address, version: str | None) -> NotMigrated:
    head = eventkit_migrations.HEAD
    place = f"schema {address.schema!r} of {shown(address.url)}"
    if version is None:
        found = "has no eventkit tables"
    elif version < head:
        found = f"has the eventkit tables of revision {version}, older than this code's {head}"
    else:
        return NotMigrated(
            f"{place} has the eventkit tables of revision {version}, newer than this code's {head}: "
            f"install a newer eventkit"
        )
    return NotMigrated(f"{place} {found}: run python -m eventkit_migrations upgrade {shown(address.url)}")

"""eventkit on Postgres.

Several transactions write at once.  Functions of the schema (``eventkit_migrations``) mark a transaction before it
draws a number, so that readers know which numbers are settled, and notify only when a listener sleeps.  This
package opens connections (`session`), executes operations on them (`connection`), and waits for
commits (`waking`).  The module implements `eventkit.protocols.Backend`.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import eventkit_migrations
import psycopg

from eventkit.errors import NotMigrated, Unavailable
from eventkit.operations import Condition, Operation, ReadCondition, ReadSchema

from .address import Address, parse, qualified, shown
from .admin import compact, diagnose
from .connection import AsyncConnection, Connection
from .ddl import functions_hash, schema
from .errors import translated
from .session import OwnConnection, check_encoding, options
from .statements import statements

__all__ = ["arrow", "capabilities", "compact", "connect", "connect_async", "diagnose", "schema"]

capabilities: frozenset[str] = frozenset({"concurrent_writers"})
"""The optional capabilities of this backend: several transactions write at the same time."""


def connect(url: str, *, create: bool = True, incomplete: bool = False) -> Connection:
    """Return a connection to the schema of *url*.  If it does not exist and *create* is true, create it.

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
    """Check that the database is usable and has the current schema, or raise the error that says why not."""
    version = _version(address, incomplete)
    if version is None and create:
        eventkit_migrations.upgrade(address.url)
        version = _version(address, incomplete)
    eventkit_migrations.check(_place(address), shown(address.url), version)


def _version(address: Address, incomplete: bool) -> str | None:
    """Return the revision of eventkit's schema; None where there is none."""
    try:
        with OwnConnection.connect(address.conninfo, autocommit=True, **options(address, address.conninfo)) as driver:
            check_encoding(driver, address)
            sql = statements(address.schema)[ReadSchema.heading].sql
            version: str | None = ReadSchema().decode(driver.execute(sql.encode()).fetchall())
            if version == eventkit_migrations.HEAD:
                condition = _condition(driver, address)
                if condition.schema_hash != eventkit_migrations.schema_hash("postgresql"):
                    raise NotMigrated(f"{_place(address)} {eventkit_migrations.UNRELEASED}")
                if _functions_hash(driver, address) != functions_hash():
                    raise NotMigrated(
                        f"{_place(address)} has the functions of another version of "
                        f"eventkit: run python -m eventkit_migrations upgrade {shown(address.url)}"
                    )
                if condition.incomplete is not None and not incomplete:
                    raise Unavailable(f"{shown(address.url)}: {condition.incomplete}")
            return version
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return None
    except psycopg.Error as error:
        raise translated(error, address) or error from error


def _condition(driver: OwnConnection, address: Address) -> Condition:
    """Return the condition of the tables; without a hash where their version stored none."""
    sql = statements(address.schema)[ReadCondition.heading].sql
    try:
        return ReadCondition().decode(driver.execute(sql.encode()).fetchall())
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        return Condition(None, None)


def _functions_hash(driver: OwnConnection, address: Address) -> str | None:
    """Return the hash of the functions in the database; None where no migration stored one."""
    try:
        sql = qualified("SELECT functions_hash FROM eventkit_version", address.schema)
        return str(driver.execute(sql.encode()).fetchall()[0][0])
    except psycopg.errors.UndefinedColumn:
        return None


def _place(address: Address) -> str:
    return f"schema {address.schema!r} of {shown(address.url)}"

"""The caller's own transaction: finding its driver connection, and running an operation on it.

Whoever brings the transaction ends it.  Nothing here begins, commits or rolls back one.  Errors of the database
are the caller's too, and go to them as they are.
"""

import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from weakref import WeakSet

import psycopg
from eventkit_migrations.schemas import qualified
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from eventkit.errors import ForeignTransaction
from eventkit.execute import run, run_async
from eventkit.operations import Operation

from .address import Address, shown
from .statements import Statements, fetch, fetch_async

T = TypeVar("T")
Identity = tuple[Any, ...]


class Home:
    """The database of a kit, and which connections are known to lead there."""

    def __init__(self, address: Address) -> None:
        self._address = address
        # Never fails, whatever the connection leads to, because that would end the caller's transaction.  A
        # server that was restarted has other connections, so what was found out of one stays true.
        self._ask = (
            f"SELECT pg_postmaster_start_time(), (SELECT oid FROM pg_database WHERE datname = current_database()), "
            f"to_regclass('{qualified('eventkit_event', address.schema)}')::oid"
        )
        self._known: WeakSet[Any] = WeakSet()

    def knows(self, driver: Any) -> bool:
        """Whether *driver* has been checked."""
        return driver in self._known

    def own(self, driver: Any) -> None:
        """*driver* is one of the kit's own."""
        self._known.add(driver)

    def identity_of(self, driver: psycopg.Connection[Any]) -> Identity:
        """Where *driver* leads."""
        [identity] = psycopg.ClientCursor(driver, row_factory=tuple_row).execute(self._ask.encode()).fetchall()
        return identity

    async def identity_of_async(self, driver: psycopg.AsyncConnection[Any]) -> Identity:
        """Where *driver* leads."""
        cursor = psycopg.AsyncClientCursor(driver, row_factory=tuple_row)
        [identity] = await (await cursor.execute(self._ask.encode())).fetchall()
        return identity

    def check(self, driver: Any, identity: Identity, own: Callable[[], Identity]) -> None:
        """Remember *driver*, if it leads where a connection of our *own* leads; else refuse it."""
        if identity != own():
            raise self._foreign(driver)
        self._known.add(driver)

    async def check_async(self, driver: Any, identity: Identity, own: Callable[[], Awaitable[Identity]]) -> None:
        """`check`, awaited."""
        if identity != await own():
            raise self._foreign(driver)
        self._known.add(driver)

    def _foreign(self, driver: Any) -> ForeignTransaction:
        return ForeignTransaction(
            f"tx= belongs to the database {driver.info.dbname!r} at {driver.info.host}:{driver.info.port}, and the kit "
            f"to schema {self._address.schema!r} of {shown(self._address.url)}: use a session of the kit's database, "
            f"or a kit of the session's"
        )


def unwrap(tx: Any) -> psycopg.Connection[Any]:
    """The driver connection of *tx*, which has a transaction open; for calls of a sync kit."""
    if isinstance(tx, psycopg.Connection):
        return _begun(tx)
    if "sqlalchemy" in sys.modules:
        from sqlalchemy import Connection
        from sqlalchemy.orm import Session, scoped_session

        if isinstance(tx, Session | scoped_session):
            tx = tx.connection()
        if isinstance(tx, Connection):
            if not tx.in_transaction():
                tx.begin()
            return unwrap(_postgres_driver(tx))
    raise TypeError(
        f"tx= is a SQLAlchemy Session, scoped_session or Connection, a psycopg.Connection, "
        f"or what kit.transaction() gives; not {type(tx).__name__}"
    )


async def unwrap_async(tx: Any) -> psycopg.AsyncConnection[Any]:
    """The driver connection of *tx*, which has a transaction open; for calls of an async kit."""
    if isinstance(tx, psycopg.AsyncConnection):
        return _begun(tx)
    if "sqlalchemy.ext.asyncio" in sys.modules:
        from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

        if isinstance(tx, AsyncSession):
            tx = await tx.connection()
        if isinstance(tx, AsyncConnection):
            if not tx.in_transaction():
                await tx.begin()
            return await unwrap_async(await tx.run_sync(_postgres_driver))
    raise TypeError(
        f"tx= is a SQLAlchemy AsyncSession or AsyncConnection, a psycopg.AsyncConnection, "
        f"or what kit.transaction() gives; not {type(tx).__name__}"
    )


def execute_in(driver: psycopg.Connection[Any], known: Statements, operation: Operation[T]) -> T:
    """The answer to *operation*, in the transaction that *driver* has open; whole, or not at all."""
    statement = known.get(type(operation))
    if statement is not None and statement.single:
        return operation.decode(fetch(driver, known, operation))
    driver.execute("SAVEPOINT eventkit_call")
    try:
        answer = run(operation.plan(), lambda step: fetch(driver, known, step))
    except BaseException:
        if driver.info.transaction_status in _OPEN:
            driver.execute("ROLLBACK TO eventkit_call")
            driver.execute("RELEASE eventkit_call")
        raise
    driver.execute("RELEASE eventkit_call")
    return answer


async def execute_in_async(driver: psycopg.AsyncConnection[Any], known: Statements, operation: Operation[T]) -> T:
    """`execute_in`, awaited."""
    statement = known.get(type(operation))
    if statement is not None and statement.single:
        return operation.decode(await fetch_async(driver, known, operation))
    await driver.execute("SAVEPOINT eventkit_call")
    try:
        answer = await run_async(operation.plan(), lambda step: fetch_async(driver, known, step))
    except BaseException:
        if driver.info.transaction_status in _OPEN:
            await driver.execute("ROLLBACK TO eventkit_call")
            await driver.execute("RELEASE eventkit_call")
        raise
    await driver.execute("RELEASE eventkit_call")
    return answer


_OPEN = (TransactionStatus.INTRANS, TransactionStatus.INERROR)
_D = TypeVar("_D", psycopg.Connection[Any], psycopg.AsyncConnection[Any])


def _begun(driver: _D) -> _D:
    """*driver*, if it has a transaction open, or will begin one with its next statement."""
    if driver.autocommit and driver.info.transaction_status == TransactionStatus.IDLE:
        raise ValueError("tx= is a connection without an open transaction: begin one, or leave tx= out")
    return driver


def _postgres_driver(connection: Any) -> Any:
    from sqlalchemy.engine import TwoPhaseTransaction

    if connection.dialect.name != "postgresql":
        raise ForeignTransaction(
            f"tx= is a transaction on {connection.engine.url.render_as_string()}, which is not Postgres: "
            f"use the session of the database that the kit is connected to"
        )
    if isinstance(connection.get_transaction(), TwoPhaseTransaction):
        # What has notified cannot be prepared.  Set again in each call, for a savepoint may have taken it back.
        connection.exec_driver_sql("SELECT set_config('eventkit.notify_off', 'on', true)")
    return connection.connection.driver_connection

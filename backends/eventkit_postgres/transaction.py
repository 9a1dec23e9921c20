"""The caller's own transaction: its driver connection, and the execution of an operation on it.

The caller ends its transaction: this module never begins, commits or rolls back one.  Errors of the database
are raised unchanged.
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
from eventkit.operations import Operation, Rows, Scope
from eventkit.plans import run, run_async
from eventkit.transaction import NO_ASYNC, driver_of, is_django

from .address import Address, shown
from .drivers import Asyncpg, Psycopg2
from .statements import Statements, fetch, fetch_async

T = TypeVar("T")
Driver = psycopg.Connection[Any] | Psycopg2
AsyncDriver = psycopg.AsyncConnection[Any] | Asyncpg
Identity = tuple[Any, ...]

_QUIET = "SELECT set_config('eventkit.notify_off', 'on', true)"
"""A transaction that has notified cannot be prepared.  Set in each call, because a savepoint may have undone it."""

_OF_SEVERAL = '; of a session with several engines, pass tx=session.connection(bind_arguments={"mapper": Model})'


class Home:
    """The database of a kit, and the connections known to lead there."""

    def __init__(self, address: Address) -> None:
        self._address = address
        # Never fails on any connection, because that would end the caller's transaction.  A restarted server has new
        # connections, so the identity of a connection stays valid.
        self._ask = (
            f"SELECT extract(epoch FROM pg_postmaster_start_time())::text, "
            f"(SELECT oid FROM pg_database WHERE datname = current_database()), "
            f"to_regclass('{qualified('eventkit_event', address.schema)}')::oid"
        )
        self._known: WeakSet[Any] = WeakSet()

    def knows(self, driver: Driver | AsyncDriver) -> bool:
        """Return whether *driver* has been checked."""
        return _itself(driver) in self._known

    def own(self, driver: Any) -> None:
        """Mark *driver* as one of the kit's own connections."""
        self._known.add(driver)

    def identity_of(self, driver: Driver) -> Identity:
        """Return the database that *driver* leads to."""
        if isinstance(driver, Psycopg2):
            return driver.execute(self._ask)[0]
        [identity] = psycopg.ClientCursor(driver, row_factory=tuple_row).execute(self._ask.encode()).fetchall()
        return identity

    async def identity_of_async(self, driver: AsyncDriver) -> Identity:
        """Return the database that *driver* leads to."""
        if isinstance(driver, Asyncpg):
            return (await driver.execute(self._ask))[0]
        cursor = psycopg.AsyncClientCursor(driver, row_factory=tuple_row)
        [identity] = await (await cursor.execute(self._ask.encode())).fetchall()
        return identity

    def check(self, driver: Driver, identity: Identity, own: Callable[[], Identity]) -> None:
        """Remember *driver* if it leads to the kit's database, as *own* returns it; else raise."""
        if identity != own():
            raise self._foreign(driver)
        self._known.add(_itself(driver))

    async def check_async(
        self, driver: AsyncDriver, identity: Identity, own: Callable[[], Awaitable[Identity]]
    ) -> None:
        """Do the same as `check`, awaited."""
        if identity != await own():
            raise self._foreign(driver)
        self._known.add(_itself(driver))

    def _foreign(self, driver: Driver | AsyncDriver) -> ForeignTransaction:
        if isinstance(driver, Psycopg2 | Asyncpg):
            place = driver.place
        else:
            place = f"{driver.info.dbname!r} at {driver.info.host}:{driver.info.port}"
        return ForeignTransaction(
            f"tx= belongs to the database {place}, and the kit to schema {self._address.schema!r} of "
            f"{shown(self._address.url)}: use a session of the kit's database, or a kit of the session's{_OF_SEVERAL}"
        )


def _itself(driver: Driver | AsyncDriver) -> Any:
    return driver.driver if isinstance(driver, Psycopg2 | Asyncpg) else driver


def unwrap(tx: Any) -> Driver:
    """Return the driver connection of *tx*, which has a transaction open, for a sync kit."""
    if isinstance(tx, psycopg.Connection):
        if tx._tpc:
            tx.execute(_QUIET)
        return _begun(tx)
    if "sqlalchemy" in sys.modules:
        from sqlalchemy import Connection
        from sqlalchemy.exc import UnboundExecutionError
        from sqlalchemy.orm import Session, scoped_session

        if isinstance(tx, Session | scoped_session):
            try:
                tx = tx.connection()
            except UnboundExecutionError as error:
                raise _unbound() from error
        if isinstance(tx, Connection):
            if tx.dialect.is_async:
                raise TypeError(
                    "tx= is a transaction of an async engine, which a kit of eventkit.connect() cannot await: "
                    "await the call of a kit of eventkit.connect_async(), outside of run_sync()"
                )
            if not tx.in_transaction():
                tx.begin()
            driver = _postgres_driver(tx)
            return _begun(Psycopg2(tx)) if tx.dialect.driver == "psycopg2" else unwrap(driver)
    if is_django(tx):
        return unwrap(driver_of(tx, "postgresql", "Postgres"))
    raise TypeError(
        f"tx= is a SQLAlchemy Session, scoped_session or Connection on psycopg or psycopg2, a psycopg.Connection, "
        f"Django's connection, or what kit.transaction() gives; not {_kind(tx)}"
    )


async def unwrap_async(tx: Any) -> AsyncDriver:
    """Return the driver connection of *tx*, which has a transaction open, for an async kit."""
    if isinstance(tx, psycopg.AsyncConnection):
        if tx._tpc:
            await tx.execute(_QUIET)
        return _begun(tx)
    if "sqlalchemy.ext.asyncio" in sys.modules:
        from sqlalchemy.exc import UnboundExecutionError
        from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

        if isinstance(tx, AsyncSession | async_scoped_session):
            try:
                tx = await tx.connection()
            except UnboundExecutionError as error:
                raise _unbound() from error
        if isinstance(tx, AsyncConnection):
            if not tx.in_transaction():
                await tx.begin()
            driver = await tx.run_sync(_postgres_driver)
            return _begun(Asyncpg(tx)) if tx.dialect.driver == "asyncpg" else await unwrap_async(driver)
    if is_django(tx):
        raise TypeError(NO_ASYNC)
    raise TypeError(
        f"tx= is a SQLAlchemy AsyncSession, async_scoped_session or AsyncConnection on psycopg or asyncpg, "
        f"a psycopg.AsyncConnection, or what kit.transaction() gives; not {_kind(tx)}"
    )


def execute_in(driver: Driver, known: Statements, operation: Operation[T]) -> T:
    """Execute *operation* in the open transaction of *driver*, completely or not at all, and return its result."""
    if operation.scope is Scope.NONE:
        return operation.decode(_fetch(driver, known, operation))
    driver.execute("SAVEPOINT eventkit_call")
    try:
        answer = run(operation.plan(), lambda step: _fetch(driver, known, step))
    except BaseException:
        if _in_transaction(driver):
            driver.execute("ROLLBACK TO eventkit_call")
            driver.execute("RELEASE eventkit_call")
        raise
    driver.execute("RELEASE eventkit_call")
    return answer


async def execute_in_async(driver: AsyncDriver, known: Statements, operation: Operation[T]) -> T:
    """Do the same as `execute_in`, awaited."""
    if operation.scope is Scope.NONE:
        return operation.decode(await _fetch_async(driver, known, operation))
    await driver.execute("SAVEPOINT eventkit_call")
    try:
        answer = await run_async(operation.plan(), lambda step: _fetch_async(driver, known, step))
    except BaseException:
        if _in_transaction(driver):
            await driver.execute("ROLLBACK TO eventkit_call")
            await driver.execute("RELEASE eventkit_call")
        raise
    await driver.execute("RELEASE eventkit_call")
    return answer


def _fetch(driver: Driver, known: Statements, step: Operation[Any]) -> Rows:
    return driver.fetch(known, step) if isinstance(driver, Psycopg2) else fetch(driver, known, step)


async def _fetch_async(driver: AsyncDriver, known: Statements, step: Operation[Any]) -> Rows:
    return await (driver.fetch(known, step) if isinstance(driver, Asyncpg) else fetch_async(driver, known, step))


def _in_transaction(driver: Driver | AsyncDriver) -> bool:
    if isinstance(driver, Psycopg2 | Asyncpg):
        return driver.in_transaction
    return driver.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)


_D = TypeVar("_D", bound=Driver | AsyncDriver)


def _begun(driver: _D) -> _D:
    """Return *driver* if it has a transaction open, or begins one with its next statement."""
    if isinstance(driver, Psycopg2 | Asyncpg):
        idle = not driver.in_transaction
    else:
        idle = driver.info.transaction_status == TransactionStatus.IDLE
    if driver.autocommit and idle:
        raise ValueError("tx= is a connection without an open transaction: begin one, or leave tx= out")
    return driver


def _kind(tx: Any) -> str:
    module = type(tx).__module__.partition(".")[0]
    if module in ("psycopg2", "asyncpg"):
        return f"{module}'s own connection, which must come through SQLAlchemy"
    return type(tx).__name__


def _unbound() -> ValueError:
    return ValueError(
        "tx= is a session with several engines, which does not say whose transaction is meant: pass "
        'tx=session.connection(bind_arguments={"mapper": Model}), with a model of the kit\'s database'
    )


def _postgres_driver(connection: Any) -> Any:
    from sqlalchemy.engine import TwoPhaseTransaction

    if connection.dialect.name != "postgresql":
        raise ForeignTransaction(
            f"tx= is a transaction on {connection.engine.url.render_as_string()}, which is not Postgres: "
            f"use the session of the database that the kit is connected to{_OF_SEVERAL}"
        )
    if isinstance(connection.get_transaction(), TwoPhaseTransaction):
        connection.exec_driver_sql(_QUIET)
    return connection.connection.driver_connection

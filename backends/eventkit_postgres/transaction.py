"""The caller's own transaction: its driver connection, and the execution of an operation on it.

The caller ends its transaction: this module never begins, commits or rolls back one.  Errors of the database
are raised unchanged.
"""

import re
from functools import cache
from typing import Any, TypeVar
from weakref import WeakSet

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from eventkit.errors import ForeignTransaction
from eventkit.operations import Operation, Rows
from eventkit.plans import Steps
from eventkit.transaction import NO_ASYNC, OF_SEVERAL, driver_of, is_django, sqlalchemy_connection

from .address import Address, qualified, shown
from .session import planned
from .statements import Statements, columns, fetch, fetch_async, is_single, parameters

T = TypeVar("T")
Identity = tuple[Any, ...]

_QUIET = "SELECT set_config('eventkit.notify_off', 'on', true)"
"""A transaction that has notified cannot be prepared.  Set in each call, because a savepoint may have undone it."""


class Psycopg2:
    """A connection of psycopg2 with an open transaction."""

    def __init__(self, connection: Any) -> None:
        self.driver = connection.connection.driver_connection
        self.autocommit: bool = self.driver.autocommit
        self.place = _place(connection)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.driver.get_transaction_status() in (TransactionStatus.INTRANS, TransactionStatus.INERROR)

    def execute(self, sql: str, values: dict[str, Any] | None = None) -> Rows:
        """Execute *sql*, and return its rows."""
        with self.driver.cursor() as cursor:
            cursor.execute(sql, values)
            return cursor.fetchall() if cursor.description else []

    def fetch(self, known: Statements, step: Operation[Any]) -> Rows:
        """Execute the statement of *step*, and return its rows."""
        statement = known[step.heading]
        values = {str(number): value for number, value in enumerate(parameters(statement, step), 1)}
        return self.execute(_named(statement.sql), values) if values else self.execute(statement.sql)


class Asyncpg:
    """A connection of asyncpg, on which SQLAlchemy begins a transaction with the first statement."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        adapted = connection.sync_connection.connection
        self.driver = adapted.driver_connection
        self.autocommit: bool = adapted.dbapi_connection.autocommit
        self.place = _place(connection)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return bool(self.driver.is_in_transaction())

    async def execute(self, sql: str, values: tuple[Any, ...] = ()) -> Rows:
        """Execute *sql*, and return its rows."""
        rows: Rows = await self._connection.run_sync(_rows, sql, values)
        return rows

    async def fetch(self, known: Statements, step: Operation[Any]) -> Rows:
        """Execute the statement of *step*, and return its rows."""
        statement = known[step.heading]
        return await self.execute(statement.sql, columns(statement, step))


def _place(connection: Any) -> str:
    url = connection.engine.url
    return f"{url.database!r} at {url.host}:{url.port}"


@cache
def _named(sql: str) -> str:
    return re.sub(r"\$(\d+)", r"%(\1)s", sql.replace("%", "%%"))


def _rows(connection: Any, sql: str, values: tuple[Any, ...]) -> Rows:
    cursor = connection.connection.cursor()
    try:
        cursor.execute(sql, values)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
    finally:
        cursor.close()


_OTHERS: dict[str, Any] = {"psycopg2": Psycopg2, "asyncpg": Asyncpg}
Driver = psycopg.Connection[Any] | psycopg.AsyncConnection[Any] | Psycopg2 | Asyncpg


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

    def knows(self, driver: Driver) -> bool:
        """Return whether *driver* has been checked."""
        return _itself(driver) in self._known

    def own(self, driver: Any) -> None:
        """Mark *driver* as one of the kit's own connections."""
        self._known.add(driver)

    def identity_of(self, driver: Driver) -> Steps[Identity]:
        """Return the database that *driver* leads to."""
        if isinstance(driver, Psycopg2 | Asyncpg):
            rows: list[Identity] = yield driver.execute(self._ask)
            return rows[0]
        kind = psycopg.AsyncClientCursor if isinstance(driver, psycopg.AsyncConnection) else psycopg.ClientCursor
        cursor = yield kind(driver, row_factory=tuple_row).execute(self._ask.encode())  # type: ignore[arg-type]  # of its flavour
        identity: Identity
        [identity] = yield cursor.fetchall()
        return identity

    def check(self, driver: Driver, identity: Identity, own: Identity) -> None:
        """Remember *driver* if it leads to the kit's database, whose identity is *own*; else raise."""
        if identity != own:
            raise self._foreign(driver)
        self._known.add(_itself(driver))

    def _foreign(self, driver: Driver) -> ForeignTransaction:
        if isinstance(driver, Psycopg2 | Asyncpg):
            place = driver.place
        else:
            place = f"{driver.info.dbname!r} at {driver.info.host}:{driver.info.port}"
        return ForeignTransaction(
            f"tx= belongs to the database {place}, and the kit to schema {self._address.schema!r} of "
            f"{shown(self._address.url)}: use a session of the kit's database, or a kit of the session's{OF_SEVERAL}"
        )


def _itself(driver: Driver) -> Any:
    return driver.driver if isinstance(driver, Psycopg2 | Asyncpg) else driver


def unwrap(tx: Any, awaited: bool) -> Steps[Any]:
    """Return the driver connection of *tx*, which has a transaction open, for a kit of one flavour."""
    if isinstance(tx, psycopg.AsyncConnection if awaited else psycopg.Connection):
        if tx._tpc:
            yield tx.execute(_QUIET)
        return _begun(tx)
    connection = yield from sqlalchemy_connection(tx, awaited, "postgresql", "Postgres")
    if connection is not None:
        driver = yield connection.run_sync(_driver) if awaited else _driver(connection)
        if other := _OTHERS.get(connection.dialect.driver):
            return _begun(other(connection))
        return (yield from unwrap(driver, awaited))
    if is_django(tx):
        if awaited:
            raise TypeError(NO_ASYNC)
        return (yield from unwrap(driver_of(tx, "postgresql", "Postgres"), awaited))
    accepted = (
        "AsyncSession, async_scoped_session or AsyncConnection on psycopg or asyncpg, a psycopg.AsyncConnection"
        if awaited
        else "Session, scoped_session or Connection on psycopg or psycopg2, a psycopg.Connection, Django's connection"
    )
    raise TypeError(f"tx= is a SQLAlchemy {accepted}, or what kit.transaction() gives; not {_kind(tx)}")


def execute_in(driver: Any, known: Statements, operation: Operation[T]) -> Steps[T]:
    """Execute *operation* in the open transaction of *driver*, completely or not at all, and return its result."""
    if is_single(known, operation):
        return operation.decode((yield from _fetched(driver, known, operation)))
    yield driver.execute("SAVEPOINT eventkit_call")
    try:
        answer = yield from planned(operation.plan(), lambda step: _fetched(driver, known, step))
    except BaseException:
        if _in_transaction(driver):
            yield driver.execute("ROLLBACK TO eventkit_call")
            yield driver.execute("RELEASE eventkit_call")
        raise
    yield driver.execute("RELEASE eventkit_call")
    return answer


def _fetched(driver: Driver, known: Statements, step: Operation[Any]) -> Steps[Rows]:
    rows: Rows
    if isinstance(driver, Psycopg2 | Asyncpg):
        rows = yield driver.fetch(known, step)
    elif isinstance(driver, psycopg.AsyncConnection):
        rows = yield fetch_async(driver, known, step)
    else:
        rows = yield fetch(driver, known, step)
    return rows


def _in_transaction(driver: Driver) -> bool:
    if isinstance(driver, Psycopg2 | Asyncpg):
        return driver.in_transaction
    return driver.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)


_D = TypeVar("_D", bound=Driver)


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


def _driver(connection: Any) -> Any:
    from sqlalchemy.engine import TwoPhaseTransaction

    if isinstance(connection.get_transaction(), TwoPhaseTransaction):
        connection.exec_driver_sql(_QUIET)
    return connection.connection.driver_connection

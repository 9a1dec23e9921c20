"""The caller's own transaction: its driver connection, and the execution of an operation on it."""

import sqlite3
import sys
import threading
import time
from asyncio import CancelledError
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import quote
from weakref import WeakKeyDictionary

import apsw

from eventkit.errors import Busy, ForeignTransaction
from eventkit.operations import Operation, Scope
from eventkit.plans import run
from eventkit.transaction import NO_ASYNC, driver_of, is_django

from . import driver_async
from .file import File, Identity, identify, two_libraries
from .library import Connection as Driver
from .library import Error, begin, is_busy, own_lock, translate
from .statements import fetch
from .worker import StandardWorker
from .write_lock import WriteLock


def needs_the_standard_library(path: str) -> ForeignTransaction:
    """Return the error for Django beside a kit on apsw: Django works only with sqlite3."""
    return ForeignTransaction(
        f"this process has {path} open through apsw and Django uses Python's own sqlite3, and two SQLite libraries on "
        f"one file would lose committed rows without an error: connect the kit to sqlite+pysqlite:///{quote(path)}"
    )


T = TypeVar("T")

_threads: WeakKeyDictionary[apsw.Connection, int] = WeakKeyDictionary()
"""The thread that last used an apsw connection as ``tx=``."""

_OF_SEVERAL = '; of a session with several engines, pass tx=session.connection(bind_arguments={"mapper": Model})'

_main_files: WeakKeyDictionary[apsw.Connection, tuple[Identity | None, str]] = WeakKeyDictionary()


def execute_in(driver: Driver, operation: Operation[T]) -> T:
    """Execute *operation* in the open transaction of *driver*, completely or not at all, and return its result."""
    if operation.scope is Scope.NONE:
        return operation.decode(fetch(driver, operation))
    driver.execute("SAVEPOINT eventkit_call")
    try:
        answer = run(operation.plan(), lambda step: fetch(driver, step))
    except BaseException:
        if driver.in_transaction:
            driver.execute("ROLLBACK TO eventkit_call")
            driver.execute("RELEASE eventkit_call")
        raise
    driver.execute("RELEASE eventkit_call")
    return answer


def unwrap(tx: Any, file: File) -> Driver:
    """Return the driver connection of *tx*, which has a transaction open on *file*, for a sync kit."""
    if isinstance(tx, apsw.Connection) and not tx.is_async:
        _threads[tx] = threading.get_ident()
        return _begun(tx, "apsw", file, asyncio=False)
    if isinstance(tx, sqlite3.Connection):
        return _begun(tx, "sqlite3", file, asyncio=False)
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
            return unwrap(_sqlite_driver(tx), file)
    if is_django(tx):
        driver = driver_of(tx, "sqlite", "an SQLite file")
        if file.library != "sqlite3" and _main_file(driver)[0] == file.identity:
            raise needs_the_standard_library(file.path)
        return unwrap(driver, file)
    raise TypeError(
        f"tx= is a SQLAlchemy Session, scoped_session or Connection, an apsw.Connection, Django's connection, "
        f"or what kit.transaction() gives; not {type(tx).__name__}"
    )


async def execute_in_async(tx: Any, operation: Operation[T], file: File) -> T:
    """Execute *operation* in the transaction *tx* of an async kit, and return its result."""
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
            answer: T = await tx.run_sync(_execute_adapted, operation, file)
            return answer
    if isinstance(tx, apsw.Connection) and tx.is_async:
        return await tx.async_run(_execute_on, tx, "apsw", operation, file)  # type: ignore[attr-defined, no-any-return]  # the stubs have a class of its own for this
    if isinstance(tx, StandardWorker):
        return await tx.async_run(_execute_on, tx.connection, "sqlite3", operation, file)  # type: ignore[no-any-return]
    if is_django(tx):
        raise TypeError(NO_ASYNC)
    raise TypeError(
        f"tx= is a SQLAlchemy AsyncSession, async_scoped_session or AsyncConnection, an async apsw connection, "
        f"or what kit.transaction() gives; not {type(tx).__name__}"
    )


def raise_if_busy(error: Exception, file: File) -> None:
    """Raise `Busy` if *error*, from the driver or SQLAlchemy, means that the file is busy."""
    cause = getattr(error, "orig", None) or error
    if is_busy(cause):
        raise Busy(
            f"another connection is writing to {file.path}, or has written since the transaction tx= began to read: "
            f"roll back and try again; begin transactions that read before they write with BEGIN IMMEDIATE "
            f"(?begin=immediate in the URL of an engine), or raise the timeout of the connection"
        ) from error


def begin_own(
    driver: Driver,
    lock: WriteLock,
    file: File,
    caller: object,
    busy_timeout: float,
    unwanted: Callable[[], bool] = lambda: False,
) -> None:
    """Begin ``kit.transaction()`` for *caller* on *driver* when it is its turn, unless *unwanted* returns true first.

    `end_own` releases *lock*.
    """
    deadline = time.monotonic() + busy_timeout

    def give_up(error: Exception) -> bool:
        if holds_lock(caller, file):
            raise own_lock()
        if unwanted() or time.monotonic() >= deadline:
            raise translate(error, file.path) from error
        return False

    file.check_identity_sometimes(driver)
    begin(driver, lock, give_up)
    file.transactions.append(caller)


def end_own(driver: Driver, lock: WriteLock, file: File, caller: object, commit: bool) -> None:
    """End ``kit.transaction()``, unless it was not begun or the user has ended it."""
    with suppress(ValueError):
        file.transactions.remove(caller)
    try:
        if driver.in_transaction:
            driver.execute("COMMIT" if commit else "ROLLBACK")
    except Error as error:
        if driver.in_transaction:
            driver.execute("ROLLBACK")
        raise translate(error, file.path) from error
    finally:
        lock.release()


def holds_lock(caller: object, file: File) -> bool:
    """Return whether *caller*, a thread ident or a task, has a write transaction open on *file*."""
    return caller in file.transactions or any(_holds(caller, connection, file) for connection in apsw.connections())


def _holds(caller: object, connection: apsw.Connection, file: File) -> bool:
    if isinstance(connection, driver_async.Connection):
        return connection.holds_up(caller) and identify(connection.path) == file.identity
    # The owner is checked first: most connections belong to other threads, which may be using them.
    if caller not in (getattr(connection, "thread", None), _threads.get(connection)):
        return False
    try:
        writing = connection.txn_state("main") == apsw.SQLITE_TXN_WRITE
        return writing and identify(connection.db_filename("main")) == file.identity
    except (apsw.ThreadingViolationError, apsw.ConnectionClosedError):
        return False  # Another thread uses it, or has just closed it.


class Adapted:
    """The driver connection of an async SQLAlchemy connection, for use inside its ``run_sync``.

    The driver's own calls must be awaited; those of SQLAlchemy's adapter need not be.
    """

    def __init__(self, adapted: Any, driver: Any) -> None:
        self._adapted = adapted
        self._driver = driver

    @property
    def isolation_level(self) -> str | None:
        """How the standard library begins transactions; None if it does not."""
        level: str | None = self._driver.isolation_level
        return level

    @property
    def in_transaction(self) -> bool:
        """Whether the driver has begun a transaction."""
        return bool(self._driver.in_transaction)

    def execute(self, sql: str, parameters: Any = ()) -> Any:
        """Execute *sql*, and return a cursor."""
        cursor = self._adapted.cursor()
        cursor.execute(sql, parameters)
        return cursor


def _execute_adapted(connection: Any, operation: Operation[T], file: File) -> T:
    driver = _sqlite_driver(connection)
    adapted = connection.connection.dbapi_connection
    if not isinstance(driver, apsw.Connection):
        return execute_in(_begun(Adapted(adapted, driver), "sqlite3", file, asyncio=True), operation)
    try:
        answer: T = adapted.run_async(lambda driver: driver.async_run(_execute_on, driver, "apsw", operation, file))
    except CancelledError as error:
        # As after a statement of SQLAlchemy: the progress of the call and the state of its transaction are unknown.
        connection.invalidate(error)
        raise
    return answer


def _execute_on(driver: Driver, library: str, operation: Operation[T], file: File) -> T:
    return execute_in(_begun(driver, library, file, asyncio=True), operation)


def _unbound() -> ValueError:
    return ValueError(
        "tx= is a session with several engines, which does not say whose transaction is meant: pass "
        'tx=session.connection(bind_arguments={"mapper": Model}), with a model of the kit\'s database'
    )


class Plain:
    """A connection whose rows are tuples, regardless of the row factory of its user."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    @property
    def in_transaction(self) -> bool:
        """Whether the driver has begun a transaction."""
        return bool(self._driver.in_transaction)

    def execute(self, sql: str, parameters: Any = ()) -> Any:
        """Execute *sql*, and return a cursor."""
        cursor = self._driver.cursor()
        if isinstance(cursor, sqlite3.Cursor):
            cursor.row_factory = None
        else:
            cursor.row_trace = None
        return cursor.execute(sql, parameters)


def plain(driver: Driver) -> Driver:
    if isinstance(driver, apsw.Connection):
        return driver if driver.row_trace is None else Plain(driver)
    if isinstance(driver, sqlite3.Connection):
        return driver if driver.row_factory is None else Plain(driver)
    return driver


def _sqlite_driver(connection: Any) -> Driver:
    if connection.dialect.name != "sqlite":
        raise ForeignTransaction(
            f"tx= is a transaction on {connection.engine.url.render_as_string()}, which is not an SQLite file: "
            f"use the session of the database that the kit is connected to{_OF_SEVERAL}"
        )
    return connection.connection.driver_connection


def _main_file(driver: Driver) -> tuple[Identity | None, str]:
    """Return the identity and path of the file of *driver*, read once per connection because it never changes."""
    known = _main_files.get(driver) if isinstance(driver, apsw.Connection) else None
    if known is None:
        path = str(plain(driver).execute("PRAGMA database_list").fetchall()[0][2])
        known = (identify(path) if path else None, path)
        if isinstance(driver, apsw.Connection):
            _main_files[driver] = known
    return known


def _begun(driver: Driver, library: str, file: File, *, asyncio: bool) -> Driver:
    """Return *driver* after checking that it is in a transaction on *file*, through the right library."""
    identity, path = _main_file(driver)
    if identity != file.identity:
        raise ForeignTransaction(
            f"tx= belongs to the database {path or 'in memory'}, and the kit to {file.path}: "
            f"use a session of the kit's database, or a kit of the session's{_OF_SEVERAL}"
        )
    if library != file.library:
        raise two_libraries(file.path, file.library, asyncio)
    if not driver.in_transaction and library == "sqlite3" and driver.isolation_level is not None:
        # The standard library begins at the first INSERT, but a plan may start with a SELECT or a savepoint.
        driver.execute("BEGIN")
    if not driver.in_transaction:
        raise ValueError("tx= is a connection without an open transaction: execute BEGIN first, or leave tx= out")
    return plain(driver)

"""The caller's own transaction: its driver connection, and the execution of an operation on it.

SQL can call the operations as functions, on any connection of apsw (`register`).  Each runs on the connection that
calls it: in the open transaction, or in one of its own.  All of its statements take effect, or none.
"""

import sqlite3
import threading
from asyncio import CancelledError
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote
from weakref import WeakKeyDictionary, ref

import apsw

from eventkit.errors import Busy, EventkitError, ForeignTransaction
from eventkit.functions import FUNCTIONS, PREFIX, Functions
from eventkit.operations import Operation, Scope
from eventkit.plans import drive, drive_async, run
from eventkit.transaction import NO_ASYNC, OF_SEVERAL, driver_of, is_django, sqlalchemy_connection

from .file import File, Identity, identify, threads, two_libraries
from .library import Connection as Driver
from .library import StandardWorker, Worker, connection_of, is_busy
from .statements import fetch

T = TypeVar("T")

_SQLITE = ("sqlite", "an SQLite file")

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
        threads[tx] = threading.get_ident()
        return _begun(tx, file)
    if isinstance(tx, sqlite3.Connection):
        return _begun(tx, file)
    connection = drive(sqlalchemy_connection(tx, False, *_SQLITE))
    if connection is not None:
        return unwrap(connection.connection.driver_connection, file)
    if is_django(tx):
        driver = driver_of(tx, *_SQLITE)
        if file.library != "sqlite3" and _main_file(driver)[0] == file.identity:
            raise ForeignTransaction(
                f"this process has {file.path} open through apsw and Django uses Python's own sqlite3, and two SQLite "
                f"libraries on one file would lose committed rows without an error: connect the kit to "
                f"sqlite+pysqlite:///{quote(file.path)}"
            )
        return unwrap(driver, file)
    raise TypeError(
        f"tx= is a SQLAlchemy Session, scoped_session or Connection, an apsw.Connection, Django's connection, "
        f"or what kit.transaction() gives; not {type(tx).__name__}"
    )


async def execute_in_async(tx: Any, operation: Operation[T], file: File) -> T:
    """Execute *operation* in the transaction *tx* of an async kit, and return its result."""
    connection = await drive_async(sqlalchemy_connection(tx, True, *_SQLITE))
    if connection is not None:
        answer: T = await connection.run_sync(_execute_adapted, operation, file)
        return answer
    if isinstance(tx, StandardWorker) or (isinstance(tx, apsw.Connection) and tx.is_async):
        worker: Worker = tx
        answered: T = await worker.async_run(_execute_on, connection_of(tx), operation, file)
        return answered
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


def _execute_adapted(connection: Any, operation: Operation[T], file: File) -> T:
    driver = connection.connection.driver_connection
    adapted = connection.connection.dbapi_connection
    if not isinstance(driver, apsw.Connection):
        return _execute_on(Plain(driver, adapted), operation, file)
    try:
        answer: T = adapted.run_async(lambda driver: driver.async_run(_execute_on, driver, operation, file))
    except CancelledError as error:
        # As after a statement of SQLAlchemy: the progress of the call and the state of its transaction are unknown.
        connection.invalidate(error)
        raise
    return answer


def _execute_on(driver: Driver, operation: Operation[T], file: File) -> T:
    return execute_in(_begun(driver, file, asyncio=True), operation)


class Plain:
    """A connection whose rows are tuples, regardless of the row factory of its user.

    For an async connection of SQLAlchemy, within its ``run_sync``, *adapted* is SQLAlchemy's adapter, whose calls need
    not be awaited.
    """

    def __init__(self, driver: Driver, adapted: Any = None) -> None:
        self._driver = driver
        self._cursors = adapted or driver

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def execute(self, sql: str, parameters: Any = ()) -> Any:
        """Execute *sql*, and return a cursor."""
        cursor = self._cursors.cursor()
        if isinstance(cursor, sqlite3.Cursor):
            cursor.row_factory = None
        elif isinstance(cursor, apsw.Cursor):
            cursor.row_trace = None
        cursor.execute(sql, parameters)
        return cursor


def plain(driver: Driver) -> Driver:
    if isinstance(driver, apsw.Connection):
        return driver if driver.row_trace is None else Plain(driver)
    if isinstance(driver, sqlite3.Connection):
        return driver if driver.row_factory is None else Plain(driver)
    return driver


def _main_file(driver: Driver) -> tuple[Identity | None, str]:
    """Return the identity and path of the file of *driver*, read once per connection because it never changes."""
    known = _main_files.get(driver) if isinstance(driver, apsw.Connection) else None
    if known is None:
        path = str(plain(driver).execute("PRAGMA database_list").fetchall()[0][2])
        known = (identify(path) if path else None, path)
        if isinstance(driver, apsw.Connection):
            _main_files[driver] = known
    return known


def _library(driver: Driver) -> str:
    return "apsw" if isinstance(driver, apsw.Connection) else "sqlite3"


def _begun(driver: Driver, file: File, *, asyncio: bool = False) -> Driver:
    """Return *driver* after checking that it is in a transaction on *file*, through the right library."""
    library = _library(driver)
    identity, path = _main_file(driver)
    if identity != file.identity:
        raise ForeignTransaction(
            f"tx= belongs to the database {path or 'in memory'}, and the kit to {file.path}: "
            f"use a session of the kit's database, or a kit of the session's{OF_SEVERAL}"
        )
    if library != file.library:
        raise two_libraries(file.path, file.library, asyncio)
    if not driver.in_transaction and library == "sqlite3" and driver.isolation_level is not None:
        # The standard library begins at the first INSERT, but a plan may start with a SELECT or a savepoint.
        driver.execute("BEGIN")
    if not driver.in_transaction:
        raise ValueError("tx= is a connection without an open transaction: execute BEGIN first, or leave tx= out")
    return plain(driver)


def register(connection: apsw.Connection) -> None:
    """Let SQL on *connection* call ``eventkit_publish``, ``eventkit_claim`` and the others of docs/plain-sql.md.

    On an async connection of apsw, call it in its thread: ``await connection.async_run(register, connection)``.
    """
    # The connection holds the functions, so they must not hold the connection.
    executor = ref(connection)

    def execute(operation: Operation[Any]) -> Any:
        driver = executor()
        assert driver is not None
        return _execute(plain(driver), operation)

    functions = Functions(execute)
    for name in FUNCTIONS:
        connection.create_scalar_function(PREFIX + name, _sql_function(getattr(functions, name)))


def _sql_function(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return *call* with its errors raised as those of a statement."""

    def function(*values: Any) -> Any:
        try:
            return call(*values)
        except (EventkitError, ValueError, TypeError) as error:
            raise apsw.SQLError(str(error)) from error

    return function


def _execute(driver: Driver, operation: Operation[T]) -> T:
    if operation.scope is not Scope.NONE:
        # The statements take effect together, which a savepoint cannot ensure inside a statement that writes.
        begun = driver.in_transaction
        try:
            driver.execute("SAVEPOINT eventkit_function").close()
        except apsw.BusyError as error:
            raise apsw.SQLError(
                "this call takes more than one step, and cannot be made within a statement that writes, nor in a "
                "trigger: call it in a SELECT of its own, in the same transaction"
            ) from error
        driver.execute("RELEASE eventkit_function").close()
        if operation.writes and not begun:
            driver.execute("BEGIN IMMEDIATE").close()
            try:
                answer = execute_in(driver, operation)
                driver.execute("COMMIT").close()
            finally:
                if driver.in_transaction:
                    driver.execute("ROLLBACK").close()
            return answer
    return execute_in(driver, operation)

"""The two SQLite libraries of a process: apsw's own, and the one of the standard library.

Both are used through the same interface: a connection has ``execute(sql, parameters)``, ``in_transaction`` and
``close()``, and errors carry SQLite's result code.

For asyncio, a connection has a thread of its own.  apsw supports this natively: an async connection is the same
class, whose calls are awaited, and ``async_run`` runs a function in its thread, where the connection answers directly.
eventkit supplies the thread, so that a kit that was not closed does not keep the interpreter from ending.  For the
standard library's driver, `StandardWorker` has the same interface.
"""

import asyncio
import os
import queue
import sqlite3
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import apsw
import apsw.aio

from eventkit.errors import Busy, DatabaseError, EventkitError, NotMigrated, Unavailable

from .address import Address

Connection = Any
"""A connection of either library."""

Worker = Any
"""An async apsw connection, or a `StandardWorker`."""

Error = (apsw.Error, sqlite3.Error)

DAMAGE = (apsw.SQLITE_CORRUPT, apsw.SQLITE_NOTADB)
"""The result codes of a damaged file."""

OLDEST = (3, 38)
"""The oldest supported version of SQLite: the statements use the operator ``->>``."""

_PAUSE = 0.01
_OPENING_TIMEOUT = 5000
_CLOSING_TAKES = 5.0
"""Seconds after which `close_from_outside` no longer waits for a thread."""

_LAST_ID = 2**63 - 1

_IS_BUSY = (
    "another connection is writing to {path} and did not finish in time: "
    "keep transactions short, try again, or raise busy_timeout in the URL"
)
_UNFINISHED = "SQLite could not finish the call on {path} ({error}): try again"
_TEXTS = {
    apsw.SQLITE_BUSY: _IS_BUSY,
    apsw.SQLITE_LOCKED: _IS_BUSY,
    apsw.SQLITE_FULL: "the disk of {path} is full: free some space; committed data is safe",
    apsw.SQLITE_READONLY: "{path} cannot be written: check the permissions of the file and its folder",
    apsw.SQLITE_CANTOPEN: "{path} cannot be opened: check that the folder exists and may be written",
    apsw.SQLITE_NOTADB: "{path} is not an SQLite database: name another file",
    apsw.SQLITE_IOERR: (
        "the system could not read or write {path} ({error}): check the disk, its free space and its limits"
    ),
    apsw.SQLITE_CORRUPT: "{path} is damaged ({error}): restore it from a backup",
    apsw.SQLITE_NOMEM: _UNFINISHED,
    apsw.SQLITE_INTERRUPT: _UNFINISHED,
    apsw.SQLITE_PROTOCOL: _UNFINISHED,
}


def create_file(path: str, mode: int) -> None:
    """Create an empty file, unless it exists; its log gets the same *mode*.

    On Linux it opens no descriptor: closing one would drop the locks of a connection that another thread has opened
    meanwhile.
    """
    with suppress(FileExistsError):
        if sys.platform == "linux":
            os.mknod(path, mode)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, mode))


def open_connection(library: str, path: str, synchronous: str, busy_timeout: float) -> Connection:
    """Return a connection to the file, usable from any thread."""
    connection: Connection = (
        apsw.Connection(path)
        if library == "apsw"
        else sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    )
    configure(connection, synchronous, busy_timeout)
    return connection


def configure(connection: Connection, synchronous: str, busy_timeout: float) -> None:
    """Set the options that SQLite keeps per connection.

    With partial indexes and outer joins SQLite prepares a statement again for each new value of a parameter, in
    case a better plan results: 20 µs for a claim, and always the same plan.  This is disabled.
    """
    if isinstance(connection, apsw.Connection):
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    elif sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_QPSG, True)
    # PRAGMA synchronous reads the file, where another connection may hold a lock to recover or remove the log.
    connection.execute(f"PRAGMA busy_timeout = {_OPENING_TIMEOUT}")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute(f"PRAGMA busy_timeout = {round(busy_timeout * 1000)}")


def use_wal(connection: Connection, patience: float) -> None:
    """Switch the file to WAL mode, permanently.

    SQLite may refuse the switch at once during a write, regardless of the busy timeout; retry for *patience* seconds.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
            return
        except Error as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE)


def is_busy(error: BaseException) -> bool:
    """Return whether another connection holds the lock."""
    return result_code(error) in (apsw.SQLITE_BUSY, apsw.SQLITE_LOCKED)


def result_code(error: BaseException) -> int:
    """Return SQLite's primary result code; 0 for an error that has none."""
    return int(getattr(error, "result" if isinstance(error, apsw.Error) else "sqlite_errorcode", 0)) & 0xFF


def translate(error: BaseException, path: str, connection: Connection | None = None) -> EventkitError:
    """Return the library's *error* about the file at *path* as an eventkit error, with the remedy."""
    code = result_code(error)
    if code == apsw.SQLITE_ERROR and "no such table: eventkit_" in str(error):
        return NotMigrated(
            f"{path} has lost eventkit's tables ({error}): run python -m eventkit_migrations upgrade <url>"
        )
    if code not in _TEXTS:
        return DatabaseError(
            f"SQLite refused a statement on {path} ({error}): look for a constraint or trigger that refuses it"
        )
    if code == apsw.SQLITE_FULL and connection is not None:
        # SQLite reports the same for a table that has no higher id.
        for (table,) in connection.execute(f"SELECT name FROM sqlite_sequence WHERE seq = {_LAST_ID}").fetchall():
            return Unavailable(
                f"{table} in {path} has a row with the id {_LAST_ID}, the highest there is, which a plain INSERT has "
                f"chosen: delete that row, and then UPDATE sqlite_sequence SET seq = (SELECT coalesce(max(id), 0) "
                f"FROM {table}) WHERE name = '{table}'"
            )
    return (Busy if is_busy(error) else Unavailable)(_TEXTS[code].format(path=path, error=error))


class ThreadExecutor:
    """A thread that runs calls one after another, and delivers each result in the event loop of its call.

    It implements apsw's controller protocol.
    """

    def __init__(self) -> None:
        self._calls = queue.SimpleQueue[tuple[asyncio.Future[Any] | None, Callable[[], Any]] | None]()
        threading.Thread(target=self._run, name="eventkit-sqlite", daemon=True).start()

    def configure(self, connection: apsw.Connection) -> None:
        """Configure the new *connection* as apsw does without a controller."""
        for hook in apsw.connection_hooks:
            hook(connection)

    def send(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """Start *call*, and return a future for its result; it runs even if the future is cancelled."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls.put((future, call))
        return future

    def post(self, call: Callable[[], Any]) -> None:
        """Run *call* in its turn, without a result: the caller may have no event loop."""
        self._calls.put((None, call))

    def close(self) -> None:
        """End the thread after the calls that were sent."""
        self._calls.put(None)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            self._answer(*item)
            # The last reference, such as the one to a connection to close, must not live until the next call.
            del item

    def _answer(self, future: asyncio.Future[Any] | None, call: Callable[[], Any]) -> None:
        outcome: tuple[str, Any]
        try:
            outcome = "set_result", call()
        except BaseException as error:
            outcome = "set_exception", error
        if future is not None:
            with suppress(RuntimeError):  # The loop may be closed by now.
                future.get_loop().call_soon_threadsafe(_settle, future, *outcome)


def _settle(future: asyncio.Future[Any], method: str, outcome: Any) -> None:
    if not future.cancelled():
        getattr(future, method)(outcome)


class StandardWorker:
    """A connection of the standard library with the calls of an async apsw connection that are used here."""

    def __init__(self, connection: sqlite3.Connection, executor: ThreadExecutor) -> None:
        self.connection = connection
        self.async_controller = executor

    def async_run(self, call: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Return the result of *call*, run in the connection's thread."""
        return self.async_controller.send(lambda: call(*arguments))

    async def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
        """Execute *sql*, and return the cursor, whose rows are fetched already."""
        cursor: sqlite3.Cursor = await self.async_run(self.connection.execute, sql, parameters)
        return cursor

    async def aclose(self) -> None:
        """Close the connection and end its thread."""
        await self.async_run(self.connection.close)
        self.async_controller.close()


async def open_worker(address: Address, busy_timeout: float) -> Worker:
    """Return a connection to the file, in a thread of its own."""
    if address.library == "apsw":
        worker = await open_in(ThreadExecutor, apsw.Connection, address.path)
        await worker.async_run(configure, worker, address.synchronous, busy_timeout)
        return worker
    executor = ThreadExecutor()
    opened = partial(open_connection, address.library, address.path, address.synchronous, busy_timeout)
    return StandardWorker(await executor.send(opened), executor)


def open_in(
    controller: type[ThreadExecutor], kind: type[apsw.Connection], *arguments: Any, **options: Any
) -> Awaitable[Any]:
    """Return a connection of type *kind*, created with the arguments in the thread of a new *controller*."""
    token = apsw.async_controller.set(controller)  # type: ignore[arg-type]  # a controller by its shape
    try:
        return kind.as_async(*arguments, **options)
    finally:
        apsw.async_controller.reset(token)


def connection_of(worker: Worker) -> Connection:
    """Return the connection for use inside the worker's thread."""
    return worker.connection if isinstance(worker, StandardWorker) else worker


def close_from_outside(worker: Worker) -> None:
    """Close the connection and end its thread, for a caller without an event loop."""
    closed = threading.Event()

    def close() -> None:
        try:
            connection_of(worker).close()
        finally:
            closed.set()

    worker.async_controller.post(close)
    worker.async_controller.close()
    closed.wait(_CLOSING_TAKES)

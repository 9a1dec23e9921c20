"""The two SQLite libraries a process can have: apsw's own, and the one of the standard library.

They look alike from here: a connection has ``execute(sql, parameters)``, ``in_transaction`` and ``close()``,
and their errors carry SQLite's result code.
"""

import sqlite3
import sys
import time
from collections.abc import Callable
from typing import Any

import apsw

from eventkit.errors import Busy, EventkitError, NotMigrated, Unavailable

Connection = Any
"""A connection of either library."""

Error = (apsw.Error, sqlite3.Error)

_FIRST_PAUSE = 0.0002
_LONGEST_PAUSE = 0.01
_OPENING_TIMEOUT = 5000

_ERROR, _BUSY, _LOCKED, _READONLY, _IOERR, _CORRUPT, _FULL, _CANTOPEN, _NOTADB = (
    1,
    5,
    6,
    8,
    10,
    11,
    13,
    14,
    26,
)


def open_connection(library: str, path: str, synchronous: str, busy_timeout: float) -> Connection:
    """A connection to the file, usable from any thread."""
    connection: Connection
    if library == "apsw":
        connection = apsw.Connection(path)
    else:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    configure(connection, synchronous, busy_timeout)
    return connection


def configure(connection: Connection, synchronous: str, busy_timeout: float) -> None:
    """Set what SQLite keeps for each connection.

    Partial indexes and outer joins make SQLite prepare a statement again whenever a parameter has another
    value, in case a better plan comes of it: 20 µs for a claim, and always the same plan.  It is told not to.
    """
    if isinstance(connection, apsw.Connection):
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    elif sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_QPSG, True)
    # The second one looks into the file, where it may meet the lock of whoever recovers or removes the log.
    connection.execute(f"PRAGMA busy_timeout = {_OPENING_TIMEOUT}")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute(f"PRAGMA busy_timeout = {round(busy_timeout * 1000)}")


def use_wal(connection: Connection, patience: float) -> None:
    """Switch the file to WAL mode, for good.

    SQLite may refuse the switch at once while somebody writes, whatever the busy timeout; it is tried for
    *patience* seconds.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
            return
        except Error as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
        time.sleep(_LONGEST_PAUSE)


def begin(connection: Connection, give_up: Callable[[Exception], bool]) -> bool:
    """Begin a write transaction as soon as the lock is free; False if *give_up* said so on the way."""
    pause = _FIRST_PAUSE
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return True
        except Error as error:
            if not is_busy(error):
                raise
            if give_up(error):
                return False
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def interrupted() -> Unavailable:
    """The error for an operation whose transaction was taken back because its leader was interrupted."""
    return Unavailable("the transaction was interrupted and rolled back: try again")


def is_busy(error: BaseException) -> bool:
    """Whether another connection holds the lock that was wanted."""
    return result_code(error) in (_BUSY, _LOCKED)


def result_code(error: BaseException) -> int:
    """SQLite's primary result code; 0 for an error that has none."""
    if isinstance(error, apsw.Error):
        return int(getattr(error, "result", 0)) & 0xFF
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def translate(error: BaseException, path: str) -> EventkitError:
    """The library's *error* about the file at *path* as one of ours, with the remedy."""
    code = result_code(error)
    if code in (_BUSY, _LOCKED):
        return Busy(
            f"another connection is writing to {path} and did not finish in time: "
            f"keep transactions short, try again, or raise busy_timeout in the URL"
        )
    if code == _FULL:
        return Unavailable(f"the disk of {path} is full: free some space; what was committed is safe")
    if code == _READONLY:
        return Unavailable(f"{path} cannot be written: check the permissions of the file and its folder")
    if code == _CANTOPEN:
        return Unavailable(f"{path} cannot be opened: check that the folder exists and may be written")
    if code == _NOTADB:
        return Unavailable(f"{path} is not an SQLite database: name another file")
    if code == _IOERR:
        return Unavailable(
            f"the system could not read or write {path} ({error}): check the disk, its free space and its limits"
        )
    if code == _CORRUPT:
        return Unavailable(f"{path} is damaged ({error}): restore it from a backup")
    if code == _ERROR and "no such table: eventkit_" in str(error):
        return NotMigrated(
            f"{path} has lost eventkit's tables ({error}): run python -m eventkit_migrations upgrade <url>"
        )
    return Unavailable(f"SQLite failed on {path}: {error}")


def own_lock() -> Busy:
    """The error for a call that would wait for its own caller's transaction."""
    return Busy(
        "this call would wait for the transaction that its own caller holds open: "
        "pass tx= to make it part of that transaction, or make the call after it"
    )

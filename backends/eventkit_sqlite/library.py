"""The two SQLite libraries of a process: apsw's own, and the one of the standard library.

Both are used through the same interface: a connection has ``execute(sql, parameters)``, ``in_transaction`` and
``close()``, and errors carry SQLite's result code.
"""

import os
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any
from urllib.parse import quote

import apsw
import msgspec

from eventkit.errors import Busy, DatabaseError, EventkitError, NotMigrated, Unavailable

from .write_lock import WriteLock

Connection = Any
"""A connection of either library."""

Error = (apsw.Error, sqlite3.Error)

OLDEST = (3, 38)
"""The oldest supported version of SQLite: the statements use the operator ``->>``."""

_FIRST_PAUSE = 0.0002
_LONGEST_PAUSE = 0.01
_OPENING_TIMEOUT = 5000
_LAST_ID = 2**63 - 1

_ERROR, _BUSY, _LOCKED, _NOMEM, _READONLY, _INTERRUPT, _IOERR, _CORRUPT, _FULL, _CANTOPEN, _PROTOCOL, _NOTADB = (
    1,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
    13,
    14,
    15,
    26,
)


def create_file(path: str, mode: int) -> None:
    """Create an empty file, unless it exists; its log gets the same *mode*.

    On Linux it opens no descriptor: closing one would drop the locks of a connection that another thread has opened
    meanwhile.
    """
    try:
        if sys.platform == "linux":
            os.mknod(path, mode)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, mode))
    except FileExistsError:
        pass


def open_connection(library: str, path: str, synchronous: str, busy_timeout: float) -> Connection:
    """Return a connection to the file, usable from any thread."""
    connection: Connection
    if library == "apsw":
        connection = apsw.Connection(path)
    else:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    configure(connection, synchronous, busy_timeout)
    return connection


class Stored(msgspec.Struct, frozen=True):
    """The identity of a database and the last ids of its tables, as stored in the file without its log."""

    identity: str | None
    last_ids: dict[str, int]

    def continues(self, earlier: "Stored | None") -> bool:
        """Return whether the file can be a later state of *earlier*: ids are never reused."""
        return (
            earlier is None
            or earlier.identity is None
            or (
                self.identity == earlier.identity
                and all(self.last_ids.get(table, 0) >= last for table, last in earlier.last_ids.items())
            )
        )


def stored(library: str, path: str) -> Stored | None:
    """Return the `Stored` values of the file at *path*; None if they cannot be read now.

    A second connection of the same library shares SQLite's locks, and closing it drops none.
    """
    address = f"file:{quote(path)}?immutable=1"
    try:
        if library == "apsw":
            connection: Any = apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        else:
            connection = sqlite3.connect(address, uri=True)
        with closing(connection):
            [(identity,)] = connection.execute("SELECT id FROM eventkit_identity").fetchall()
            last_ids = connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
            return Stored(identity, dict(last_ids))
    except Error as error:
        return Stored(None, {}) if is_damage(error) or "no such table" in str(error) else None


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
        time.sleep(_LONGEST_PAUSE)


def begin(connection: Connection, lock: WriteLock, give_up: Callable[[Exception], bool]) -> bool:
    """Begin a write transaction when it is this connection's turn.  Return False if *give_up* returned true.

    The caller releases *lock* in either case.
    """
    if not lock.take(lambda: give_up(apsw.exception_for(_BUSY))):
        return False
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
        # The connection that writes does not use the lock file.
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def is_busy(error: BaseException) -> bool:
    """Return whether another connection holds the lock."""
    return result_code(error) in (_BUSY, _LOCKED)


def is_damage(error: BaseException) -> bool:
    """Return whether the error means that the file is damaged."""
    return result_code(error) in (_CORRUPT, _NOTADB)


def result_code(error: BaseException) -> int:
    """Return SQLite's primary result code; 0 for an error that has none."""
    if isinstance(error, apsw.Error):
        return int(getattr(error, "result", 0)) & 0xFF
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def translate(error: BaseException, path: str) -> EventkitError:
    """Return the library's *error* about the file at *path* as an eventkit error, with the remedy."""
    code = result_code(error)
    if code in (_BUSY, _LOCKED):
        return Busy(
            f"another connection is writing to {path} and did not finish in time: "
            f"keep transactions short, try again, or raise busy_timeout in the URL"
        )
    if code == _FULL:
        return Unavailable(f"the disk of {path} is full: free some space; committed data is safe")
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
    if code in (_NOMEM, _INTERRUPT, _PROTOCOL):
        return Unavailable(f"SQLite could not finish the call on {path} ({error}): try again")
    return DatabaseError(
        f"SQLite refused a statement on {path} ({error}): look for a constraint or trigger that refuses it"
    )


def out_of_ids(error: BaseException, path: str, connection: Connection) -> Unavailable | None:
    """Return the error for a table that has no higher id, which SQLite reports as a full disk."""
    if result_code(error) != _FULL:
        return None
    for (table,) in connection.execute(f"SELECT name FROM sqlite_sequence WHERE seq = {_LAST_ID}").fetchall():
        return Unavailable(
            f"{table} in {path} has a row with the id {_LAST_ID}, the highest there is, which a plain INSERT has "
            f"chosen: delete that row, and then UPDATE sqlite_sequence SET seq = (SELECT coalesce(max(id), 0) "
            f"FROM {table}) WHERE name = '{table}'"
        )
    return None


def own_lock() -> Busy:
    """Return the error for a call that would wait for the transaction of its own caller."""
    return Busy(
        "this call would wait for the transaction that its own caller holds open: "
        "pass tx= to make it part of that transaction, or make the call after it"
    )

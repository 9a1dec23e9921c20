"""A database file in this process: one `File` for all kits that have it open.

It holds what exists once per file and process: the watcher, the name of the SQLite library that has the file
open, and the callers in this process that hold a write transaction on it.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import quote
from weakref import WeakKeyDictionary

import apsw

from eventkit.errors import Closed, DatabaseReplaced, ForeignTransaction, Unavailable
from eventkit.fork import release_abandoned

from .address import Address
from .library import DAMAGE, Connection, Error, result_code, translate
from .watcher import Watcher

Identity = tuple[int, int]

_files: dict[Identity, "File"] = {}
_inherited: set[Identity] = set()
"""The files that the parent had open when it forked this process.

SQLite believes that it holds the locks which the parent holds.  A connection opened here would work without
them, and when the parent closes the file, the log is removed with all that this process has written.
"""
_mutex = threading.Lock()
threads: WeakKeyDictionary[apsw.Connection, int] = WeakKeyDictionary()
"""The thread that last used an apsw connection as ``tx=``."""

_CHECK_EVERY = 0.1
_LOOK_EVERY = 0.5


class Stored(NamedTuple):
    """The identity of a database and the last ids of its tables, as stored in the file without its log."""

    identity: str | None
    last_ids: dict[str, int]

    def continues(self, earlier: "Stored | None") -> bool:
        """Return whether the file can be a later state of *earlier*: ids are never reused."""
        if earlier is None or earlier.identity is None:
            return True
        return self.identity == earlier.identity and all(
            self.last_ids.get(table, 0) >= last for table, last in earlier.last_ids.items()
        )


class File:
    """One file, while any kit of this process has it open."""

    def __init__(self, address: Address, identity: Identity) -> None:
        self.path = address.path
        self.library = address.library
        self.identity = identity
        self.kits = 0
        self.transactions: list[object] = []
        """The threads and tasks inside ``kit.transaction()``."""
        self.check_at = 0.0
        """The time of the next check before a write: a stat for every write would be too slow."""
        self.watcher = Watcher(address, self)
        self._log: Identity | None = None
        self._stored: Stored | None = None
        self._look_at = 0.0
        self._looked_at: object = None
        self._doubtful: tuple[object, float] = None, 0.0
        self._is_overwritten = False

    def opened(self, connection: Connection) -> None:
        """Record the identity of the file's log, which is not removed before *connection* is closed."""
        connection.execute("SELECT 1 FROM sqlite_master").fetchall()
        if self._log is None:
            self._log = identify(f"{self.path}-wal")
            self._check_content(connection)

    def check_identity(self, connection: Connection | None) -> None:
        """Raise `DatabaseReplaced` if the file or its log is no longer the one that *connection* opened."""
        try:
            found, log = identify(self.path), identify(f"{self.path}-wal")
        except OSError as error:
            raise Unavailable(
                f"{self.path} cannot be reached ({error.strerror}): check that its folder exists and may be read"
            ) from error
        if found != self.identity:
            raise DatabaseReplaced(
                f"{self.path} was moved, deleted or replaced while it was open: close the kit and connect again; "
                f"if another file took its place, remove a {self.path}-wal and -shm left from the old one first"
            )
        if self._log is not None and log != self._log:
            raise DatabaseReplaced(
                f"{self.path}-wal was deleted or replaced while the database was open, and commits that are only in "
                f"it are lost if this process is killed: close every kit and connection of the database, the last of "
                f"which writes them back, and connect again"
            )
        if connection is not None:
            self._check_content(connection)

    def check_before_write(self, connection: Connection) -> None:
        """Check the identity, and set the time of the next check."""
        self.check_identity(connection)
        self.check_at = 0.0 if self._is_overwritten else monotonic() + _CHECK_EVERY

    def _check_content(self, connection: Connection) -> None:
        """Raise `DatabaseReplaced` if another program than SQLite has written the file since it was opened.

        The file may look damaged during a checkpoint, so it is checked twice.
        """
        if self._is_overwritten:
            raise self._overwritten()
        now = monotonic()
        status = os.stat(self.path)
        version = status.st_mtime_ns, status.st_size
        if now < self._look_at or version == self._looked_at:
            return
        content = self._read_stored()
        if content is None or content.continues(self._stored):
            self._stored, self._looked_at, self._look_at = content or self._stored, version, now + _LOOK_EVERY
        elif self._doubtful[0] != version:
            self._doubtful = version, now
        elif now - self._doubtful[1] >= _CHECK_EVERY / 2 and (not status.st_size or _has_tables(connection)):
            raise self._overwritten()

    def _read_stored(self) -> Stored | None:
        """Return what the file has stored; None if it cannot be read now.

        A second connection of the same library shares SQLite's locks, and closing it drops none.
        """
        address = f"file:{quote(self.path)}?immutable=1"
        try:
            if self.library == "apsw":
                opened: Any = apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
            else:
                opened = sqlite3.connect(address, uri=True)
            with closing(opened) as connection:
                [(identity,)] = connection.execute("SELECT id FROM eventkit_identity").fetchall()
                return Stored(identity, dict(connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall()))
        except Error as error:
            return Stored(None, {}) if result_code(error) in DAMAGE or "no such table" in str(error) else None

    def explain(self, error: BaseException, connection: Connection | None = None) -> BaseException:
        """Return *error*, SQLite's or the system's, as a new eventkit error; return any other error unchanged."""
        if isinstance(error, DatabaseReplaced | Unavailable):
            return type(error)(*error.args)
        if not isinstance(error, Error):
            return error
        if result_code(error) in DAMAGE and (content := self._read_stored()) and not content.continues(self._stored):
            return self._overwritten()
        known = translate(error, self.path, connection)
        known.__cause__ = error  # Another thread may raise it.
        return known

    def _overwritten(self) -> DatabaseReplaced:
        self._is_overwritten = True
        self.check_at = 0.0
        return DatabaseReplaced(
            f"{self.path} was truncated or overwritten while it was open: stop every process that has it open, "
            f"remove {self.path}-wal and -shm, put the right file there, and connect again"
        )

    def is_locked_by(self, caller: object) -> bool:
        """Return whether *caller*, a thread ident or a task, has a write transaction open on this file."""
        return caller in self.transactions or any(self._is_held(caller, other) for other in apsw.connections())

    def _is_held(self, caller: object, connection: Any) -> bool:
        if hasattr(connection, "holds_up"):  # An async connection of the dialect.
            return connection.holds_up(caller) and identify(connection.path) == self.identity
        # The owner is checked first: most connections belong to other threads, which may be using them.
        if caller not in (getattr(connection, "thread", None), threads.get(connection)):
            return False
        try:
            writing = connection.txn_state("main") == apsw.SQLITE_TXN_WRITE
            return writing and identify(connection.db_filename("main")) == self.identity
        except (apsw.ThreadingViolationError, apsw.ConnectionClosedError):
            return False  # Another thread uses it, or has just closed it.

    def release(self) -> None:
        """Release the file for one kit; the last one stops the watcher."""
        with _mutex:
            self.kits -= 1
            if not self.kits:
                _files.pop(self.identity, None)
                self.watcher.stop()


def _has_tables(connection: Connection) -> bool:
    # If SQL dropped the tables, the file was not overwritten.
    try:
        return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'eventkit_identity'").fetchall())
    except Error:
        return True


def identify(path: str) -> Identity | None:
    """Return the identity of the file at *path*, without opening it."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def acquire(address: Address) -> File:
    """Return the process's `File` for the address, which must exist."""
    identity = identify(address.path)
    if identity is None:
        raise DatabaseReplaced(f"{address.path} vanished while it was being opened: connect again")
    if identity in _inherited:
        raise Closed(
            f"{address.path} was open when this process was forked, and SQLite would lose what is written here: "
            f"connect only after the fork, in the parent too, or start the child with spawn"
        )
    release_abandoned()
    with _mutex:
        file = _files.get(identity)
        if file is None:
            file = _files[identity] = File(address, identity)
        elif file.library != address.library:
            raise two_libraries(address.path, file.library)
        file.kits += 1
        return file


@contextmanager
def reserved(address: Address) -> Iterator[None]:
    """Keep the other library away from the file, or raise if the other one has it open.

    Merely opening and closing a file that the other library has open would drop that library's locks.
    """
    file = acquire(address) if os.path.exists(address.path) else None
    try:
        yield
    finally:
        if file is not None:
            file.release()


def two_libraries(path: str, library: str, asyncio: bool = False) -> ForeignTransaction:
    """Return the error for reaching *path* through another SQLite library than *library*, which has it open."""
    if library == "adbc":
        return ForeignTransaction(
            f"this process reads {path} through ADBC, and a second SQLite library on the same file would lose "
            f"committed rows without an error: open the kit when that has ended, or in another process"
        )
    kit, engine = ("sqlite+apsw", "sqlite+apsw_async") if library == "apsw" else ("sqlite+pysqlite", "sqlite+aiosqlite")
    remedy = f"the async engine with {engine}:///{quote(path)} and the kit" if asyncio else "the engine and the kit"
    return ForeignTransaction(
        f"this process has {path} open through {library}, and a second SQLite library on the same file would lose "
        f"committed rows without an error: create {remedy} with {kit}:///{quote(path)}"
    )


def _forget_all_in_child() -> None:
    # The child keeps the parent's objects alive but must not use, close or unlock them.
    global _mutex
    _mutex = threading.Lock()
    _inherited.update(_files)
    _files.clear()


os.register_at_fork(after_in_child=_forget_all_in_child)

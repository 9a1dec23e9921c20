"""A database file, as this process knows it: one `File` for all kits that have it open.

It holds what must exist once for a file and process: the watcher, the knowledge which SQLite library has
the file open, and who in this process holds a write transaction on it.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from urllib.parse import quote

from eventkit.children import release_abandoned
from eventkit.errors import Closed, DatabaseReplaced, ForeignTransaction

from .address import Address
from .watcher import Watcher

Identity = tuple[int, int]

_files: dict[Identity, "File"] = {}
_inherited: set[Identity] = set()
"""What the parent had open when it forked this process.

SQLite believes that it holds the locks which the parent holds.  A connection opened here would go without
them, and when the parent closes the file, the log is removed with all that was written here since.
"""
_mutex = threading.Lock()
_CHECK_EVERY = 0.1


class File:
    """One file, while any kit of this process has it open."""

    def __init__(self, address: Address, identity: Identity) -> None:
        self.path = address.path
        self.library = address.library
        self.identity = identity
        self.kits = 0
        self.transactions: list[object] = []
        """The threads and tasks that are inside ``kit.transaction()``."""
        self.watcher = Watcher(address, self.check_identity)
        self._check_at = 0.0

    def check_identity(self) -> None:
        """Raise `DatabaseReplaced` if another file, or none, is at the path by now."""
        if identify(self.path) != self.identity:
            raise DatabaseReplaced(
                f"{self.path} was moved, deleted or replaced while it was open: close the kit and connect again; "
                f"if another file took its place, remove a {self.path}-wal and -shm left from the old one first"
            )

    def check_identity_sometimes(self) -> None:
        """The same, unless it was done a moment ago: a stat for every write would be felt."""
        now = monotonic()
        if now >= self._check_at:
            self.check_identity()
            self._check_at = now + _CHECK_EVERY

    def release(self) -> None:
        """A kit has closed; the last one stops the watcher."""
        with _mutex:
            self.kits -= 1
            if not self.kits:
                _files.pop(self.identity, None)
                self.watcher.stop()


def identify(path: str) -> Identity | None:
    """Which file is at *path*, without opening it."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def acquire(address: Address) -> File:
    """The process's `File` for the address, which must exist by now."""
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
    """Keep the other library away from the file, if there is one yet, or be kept away.

    Even to look into a file which the other one has open would drop that one's locks.
    """
    file = acquire(address) if os.path.exists(address.path) else None
    try:
        yield
    finally:
        if file is not None:
            file.release()


def two_libraries(path: str, library: str, asyncio: bool = False) -> ForeignTransaction:
    """The error for reaching *path* through another SQLite library than *library*, which has it open."""
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

"""Diagnostics, backup and compaction of a file, as `eventkit.protocols.Admin`."""

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import eventkit_migrations

from eventkit.errors import Unavailable
from eventkit.new_file import new_file
from eventkit.values import Diagnostic

from .address import Address, parse
from .file import reserved
from .library import OLDEST, Error, open_connection, translate

_LONG_LOG = 64_000_000
"""Bytes of a WAL beyond which a long transaction must have prevented checkpoints."""

_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p")
_PAGES_AT_ONCE = 500


def diagnose(url: str) -> list[Diagnostic]:
    """Return the diagnostics of the file."""
    with _connected(url) as (address, connection):
        return [*_library(address), *_file(address, connection), *_tables(connection), *_processes(address)]


def compact(url: str) -> tuple[int, int]:
    """Rebuild the file without its free pages; writers wait until it is done."""
    with _connected(url) as (address, connection):
        before = os.stat(address.path).st_size
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return before, os.stat(address.path).st_size


def backup(url: str, path: str, progress: Callable[[int, int], object]) -> None:
    """Copy the file page by page as of the start of the call; other connections may write meanwhile.

    The copy gets its name only when it is complete and flushed to the disk.
    """
    address = parse(url)
    try:
        with (
            new_file(path, address.mode) as part,
            reserved(address),
            closing(apsw.Connection(address.path, flags=apsw.SQLITE_OPEN_READWRITE)) as source,
            closing(apsw.Connection(part)) as target,
        ):
            # Without a transaction on the source, each write by another connection restarts the copy.
            source.execute("BEGIN; SELECT 1 FROM sqlite_master").fetchall()
            with target.backup("main", source, "main") as pages:
                while not pages.done:
                    pages.step(_PAGES_AT_ONCE)
                    progress(pages.page_count - pages.remaining, pages.page_count)
    except Error as error:
        raise translate(error, address.path) from error


@contextmanager
def _connected(url: str) -> Iterator[tuple[Address, Any]]:
    address = parse(url)
    with reserved(address):
        if not os.path.isfile(address.path):
            raise Unavailable(f"there is no {address.path}: run eventkit migrate --url {address.url}")
        try:
            opened = open_connection(address.library, address.path, address.synchronous, address.busy_timeout)
            with closing(opened) as connection:
                yield address, connection
        except Error as error:
            raise translate(error, address.path) from error


def _library(address: Address) -> Iterator[Diagnostic]:
    version = apsw.sqlite_lib_version() if address.library == "apsw" else sqlite3.sqlite_version
    if tuple(map(int, version.split("."))) >= OLDEST:
        yield Diagnostic("good", f"SQLite {version}, of {address.library}")
    else:
        yield Diagnostic(
            "bad",
            f"SQLite {version}, of {address.library}, is too old",
            "write the URL as sqlite:///… without +pysqlite, which brings a newer one",
        )


def _file(address: Address, connection: Any) -> Iterator[Diagnostic]:
    def pragma(name: str) -> Any:
        return connection.execute(f"PRAGMA {name}").fetchall()[0][0]

    if (mode := pragma("journal_mode")) == "wal":
        yield Diagnostic("good", "the file is in WAL mode: readers and the writer do not wait for each other")
    else:
        yield Diagnostic(
            "bad",
            f"the file is in {mode} mode, in which readers and the writer wait for each other",
            f"eventkit health --url {address.url} switches it to WAL; no other program may switch it back",
        )
    log = Path(f"{address.path}-wal")
    size = log.stat().st_size if log.exists() else 0
    if size > _LONG_LOG:
        yield Diagnostic(
            "doubtful",
            f"the log {log} has grown to {size:,} bytes: a long transaction prevents checkpoints",
            "find the processes that have it open (lsof), and end their transactions",
        )
    pages, free, page = pragma("page_count"), pragma("freelist_count"), pragma("page_size")
    if free * page > 16_000_000 and free * 4 > pages:
        yield Diagnostic(
            "doubtful",
            f"{free * page:,} of the file's {pages * page:,} bytes are free",
            "eventkit queue compact gives them back; writers wait until it is done",
        )
    if (system := _file_system(address.path)) in _NETWORK:
        yield Diagnostic(
            "bad",
            f"the file is on a network ({system}), where SQLite's locks do not hold between machines",
            "put it on a local disk, or use Postgres",
        )


def _tables(connection: Any) -> Iterator[Diagnostic]:
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master").fetchall()}
    missing = sorted(set(eventkit_migrations.objects("sqlite")) - there)
    if missing:
        yield Diagnostic(
            "bad",
            f"the database lacks {', '.join(missing)}",
            "execute their definitions from eventkit migrate --sql on an empty database",
        )
    else:
        yield Diagnostic("good", "all tables and indexes are there")


def _processes(address: Address) -> Iterator[Diagnostic]:
    """Yield a diagnostic for each process that has the file open in both SQLite libraries and can be inspected.

    eventkit loads both libraries, so loaded libraries prove nothing.  But a library opens the file's shared memory
    once for all of its connections.
    """
    for process in Path("/proc").glob("[0-9]*"):
        try:
            shared = sum(os.readlink(link) == f"{address.path}-shm" for link in (process / "fd").iterdir())
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
        except OSError:
            continue
        if shared > 1:
            yield Diagnostic(
                "bad",
                f"process {process.name} ({command[:60]}) has the file open through two SQLite libraries at once: "
                "committed rows can vanish",
                "create its engines with sqlite+apsw:///… (sqlite+apsw_async:///… for asyncio), and open the file with "
                "nothing else there",
            )


def _file_system(path: str) -> str | None:
    """Return the type of the file system that the file is on, or None if it is unknown."""
    if sys.platform != "linux":
        return None
    found: tuple[str, str | None] = ("", None)
    for line in Path("/proc/self/mounts").read_text("utf-8", "replace").splitlines():
        _, mount, kind, *_ = line.split(" ")
        if f"{path}/".startswith(f"{mount.rstrip('/')}/") and len(mount) >= len(found[0]):
            found = (mount, kind)
    return found[1]

"""Files that get their name only when they are complete: backups and exports.

A module of its own, because backends and the command line share it.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .errors import Busy


@contextmanager
def new_file(path: str, mode: int) -> Iterator[str]:
    """Yield the name of an empty file, which becomes *path* when the block ends and is removed when it raises.

    Its name is *path* with ``.part``; a file left by a killed process is replaced.  Raise `FileExistsError` if there is
    a file at *path*, and `Busy` while another process writes it.
    """
    part = f"{path}.part"
    _refuse_existing(path)
    descriptor = _claimed(part, mode)
    try:
        try:
            yield part
            os.fsync(descriptor)
        finally:
            # Closed while no other process knows it: closing drops SQLite's locks on the file in this process.
            os.close(descriptor)
        _refuse_existing(path)
        os.rename(part, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(part)
        raise
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _claimed(part: str, mode: int) -> int:
    """Return a descriptor of a new file, locked so that no other process removes it as left over."""
    try:
        with suppress(FileNotFoundError):
            left = os.open(part, os.O_RDONLY)
            try:
                _lock(left)
                os.unlink(part)
            finally:
                os.close(left)
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        _lock(descriptor)
    except (BlockingIOError, FileExistsError):
        raise Busy(f"another process is writing {part}: wait until it is done, or choose another file") from None
    return descriptor


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass  # The file system has no locks.


def _refuse_existing(path: str) -> None:
    if os.path.lexists(path):
        raise FileExistsError(f"{path} already exists: choose a new file")

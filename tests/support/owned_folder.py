"""A temporary folder whose owner is known to live."""

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

UNPRIVILEGED = "nobody"
"""The user that servers run as if the tests run as root, which servers refuse."""

PATIENCE = 60.0
"""Seconds that a keeper has to end the processes in the folder."""


class OwnedFolder:
    """A temporary folder, locked by the process that made it for as long as that lives.

    The kernel releases the lock however the process ends, so others can wait for the end without its help:
    see ``keeper.py``, which may be started for the folder and then removes it.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="eventkit-postgres-", dir=place()))
        if os.geteuid() == 0:
            shutil.chown(self.path, UNPRIVILEGED)
        self._lock = os.open(self.path / "owner", os.O_CREAT | os.O_RDWR)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        """Release the folder and return when it is removed, with the server that its keeper ended."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)  # for processes forked from this one as well
        os.close(self._lock)
        if not (self.path / "kept").exists():
            shutil.rmtree(self.path)
        deadline = time.monotonic() + PATIENCE
        while self.path.exists():
            if time.monotonic() > deadline:
                raise RuntimeError(f"the keeper of {self.path} did not remove it: stop what runs there by hand")
            time.sleep(0.01)


def wait_for_owner(folder: Path) -> None:
    """Return when the process that owns *folder* has released it or ended."""
    lock = os.open(folder / "owner", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.close(lock)


def open_to_all(path: Path) -> bool:
    """Return whether every user can reach *path*."""
    return all(step.stat().st_mode & 0o001 for step in (path, *path.parents))


def place() -> Path:
    """Return the folder for temporary folders: the system's, unless a server could not run there."""
    for place in (Path(tempfile.gettempdir()), Path("/tmp")):
        # A Unix socket's path has at most 103 bytes; the names of this module below the place take 43.
        if len(bytes(place)) <= 60 and (os.geteuid() != 0 or open_to_all(place.resolve())):
            return place
    raise RuntimeError("A server needs a temporary folder that every user can enter: set TMPDIR to one.")

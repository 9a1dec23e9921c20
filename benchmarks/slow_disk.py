"""A disk whose fsync takes a millisecond, whatever the real one does."""

import time
from typing import Any

import apsw

FSYNC = 0.001
_NATIVE = apsw.vfs_names()[0]


class _File(apsw.VFSFile):
    def xSync(self, flags: int) -> None:
        """Take the time, and leave the real disk alone."""
        time.sleep(FSYNC)


class SlowDisk(apsw.VFS):
    """From when it is made, the default for every connection of the process that apsw opens."""

    def __init__(self) -> None:
        super().__init__("slow", _NATIVE, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        """The file, with an fsync of its own."""
        return _File(_NATIVE, name, flags)

"""A disk whose fsync takes a millisecond, regardless of the real one."""

import time
from typing import Any

import apsw

FSYNC = 0.001
_NATIVE = apsw.vfs_names()[0]


class _File(apsw.VFSFile):
    def xSync(self, flags: int) -> None:
        """Sleep instead of syncing the real disk."""
        time.sleep(FSYNC)


class SlowDisk(apsw.VFS):
    """A VFS that becomes the default for every later connection of apsw in the process."""

    def __init__(self) -> None:
        super().__init__("slow", _NATIVE, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        """Return the file, with a slow fsync."""
        return _File(_NATIVE, name, flags)

"""A slow disk: an SQLite VFS of one process whose fsync of the write-ahead log sleeps."""

import time

import apsw


class SlowDisk(apsw.VFS):
    """A VFS that every apsw connection opened later in this process uses."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.syncs = 0
        self.real = apsw.vfs_names()[0]
        super().__init__("slow disk", self.real, makedefault=True)

    def xOpen(self, name, flags):
        return SlowFile(name, flags, self)


class SlowFile(apsw.VFSFile):
    """A file of the slow disk."""

    def __init__(self, name, flags, disk: SlowDisk) -> None:
        self.disk = disk
        self.is_log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)
        super().__init__(disk.real, name, flags)

    def xSync(self, flags: int) -> None:
        if self.is_log:
            self.disk.syncs += 1
            time.sleep(self.disk.seconds)
        super().xSync(flags)

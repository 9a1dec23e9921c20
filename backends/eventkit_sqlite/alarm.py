"""What tells the watcher that it may be time to look: inotify, or nothing but the clock.

An alarm is also poked, by a commit in this process or a waiter that has just come.
"""

import os
import select
import threading
import time
from typing import Protocol

from . import inotify


class Alarm(Protocol):
    """Something to wait on."""

    @property
    def longest(self) -> float | None:
        """The longest time between two looks; None where every commit rings."""
        ...

    def wait(self, timeout: float | None, *, parked: bool = False) -> bool:
        """Wait for a ring, or *timeout* seconds; whether it rang.  While *parked* only a poke rings."""
        ...

    def poke(self) -> None:
        """Ring."""
        ...

    def close(self) -> None:
        """Give back what the system lent."""
        ...


class InotifyAlarm:
    """Rings when the write-ahead log or the database file is written, moved or replaced.

    Both are watched by their paths; they are never opened, which would drop SQLite's locks.
    """

    longest = None

    def __init__(self, path: str) -> None:
        self._files = inotify.open_descriptor()
        self._pokes = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._files, select.POLLIN)
        self._poll.register(self._pokes, select.POLLIN)
        self._parked = select.poll()
        self._parked.register(self._pokes, select.POLLIN)
        for name in (path, path + "-wal"):
            inotify.watch(self._files, name, inotify.MODIFIED | inotify.MOVED_OR_UNLINKED)

    def wait(self, timeout: float | None, *, parked: bool = False) -> bool:
        """See `Alarm`.  Below a millisecond, which poll() cannot count, it sleeps and looks once."""
        milliseconds: float | None = None
        if timeout is not None and timeout < 0.001:
            time.sleep(timeout)
            milliseconds = 0
        elif timeout is not None:
            milliseconds = timeout * 1000
        ready = (self._parked if parked else self._poll).poll(milliseconds)
        for descriptor, _ in ready:
            if descriptor == self._files:
                inotify.drain(self._files)
            else:
                os.eventfd_read(self._pokes)
        return bool(ready)

    def poke(self) -> None:
        """See `Alarm`."""
        os.eventfd_write(self._pokes, 1)

    def close(self) -> None:
        """See `Alarm`."""
        os.close(self._files)
        os.close(self._pokes)


class ClockAlarm:
    """Never rings by itself: the watcher looks every so often, at most every 20 ms."""

    longest = 0.02

    def __init__(self) -> None:
        self._poked = threading.Event()

    def wait(self, timeout: float | None, *, parked: bool = False) -> bool:
        """See `Alarm`."""
        rang = self._poked.wait(timeout)
        self._poked.clear()
        return rang

    def poke(self) -> None:
        """See `Alarm`."""
        self._poked.set()

    def close(self) -> None:
        """See `Alarm`."""

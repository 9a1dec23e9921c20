"""Noticing commits: sleepers, and the thread that wakes them."""

import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from eventkit.operations import Probe
from eventkit.plans import Stop

from .file import File

_PAUSE = 0.01
"""Seconds between two looks at the version of the file, which take a few microseconds each."""


class Watcher:
    """A thread that, while any caller sleeps, reads the version of the file, which every commit changes.

    It wakes all sleepers at each change.  Its connection writes nothing, because its own commits would not count.
    """

    def __init__(self, file: File) -> None:
        self.closing = False
        self._poll = file.fallback_poll
        self._connection = file.open()
        self._mutex = threading.Lock()
        self._rings: list[Callable[[], object]] = []
        self._wanted = threading.Event()
        self._thread = threading.Thread(target=self._run, name="elsewhere-watcher", daemon=True)
        self._thread.start()

    def wake_all(self) -> None:
        """Make every sleeper look again."""
        for ring in self._rings.copy():
            ring()

    def close(self) -> None:
        """End all sleeps, and the thread."""
        self.closing = True
        self.wake_all()
        self._wanted.set()
        self._thread.join()

    @contextmanager
    def sleeping(self, ring: Callable[[], object]) -> Iterator[None]:
        """Call *ring* after each commit while the block runs."""
        with self._mutex:
            self._rings.append(ring)
            self._wanted.set()
        try:
            yield
        finally:
            with self._mutex:
                self._rings.remove(ring)
                if not self._rings and not self.closing:
                    self._wanted.clear()

    def looks(
        self, probe: Probe, ring: Callable[[], object], clear: Callable[[], object], timeout: float | None, stop: Stop
    ) -> Generator[Any, Any, bool]:
        """Yield the steps of a sleep: the probe to read, and the seconds to wait for a ring."""
        deadline = None if timeout is None else time.monotonic() + timeout
        stop.ring = ring
        while True:
            clear()  # Before the conditions are checked: a ring in between is not lost.
            if self.closing or stop.is_set:
                return False
            readiness = yield probe
            if readiness.ready:
                return True
            pauses = [self._poll]
            if readiness.delay is not None:
                pauses.append(readiness.delay)
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                pauses.append(left)
            yield min(pauses)

    def _run(self) -> None:
        known = None
        while True:
            self._wanted.wait()
            if self.closing:
                self._connection.close()
                return
            try:
                version = self._connection.execute("PRAGMA data_version").fetchone()
            except sqlite3.Error:
                version = None  # The sleepers look, and raise the error.
            if version != known:
                known = version
                self.wake_all()
            time.sleep(_PAUSE)

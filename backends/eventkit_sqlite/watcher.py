"""Detection of commits: one thread per file and process, woken by inotify or by the clock."""

import ctypes
import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from eventkit.errors import EventkitError, Unavailable
from eventkit.operations import Probe, Readiness
from eventkit.plans import run

from .address import Address
from .library import Connection, Error, open_connection
from .statements import fetch

if TYPE_CHECKING:
    from .file import File

MODIFIED = 0x2
MOVED_OR_UNLINKED = 0x4 | 0x400 | 0x800
"""Attributes changed (including the link count), deleted, moved."""

_libc = ctypes.CDLL(None, use_errno=True)


def open_descriptor() -> int:
    """Return a descriptor that becomes readable when a watched event happens."""
    return _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify_init1")


def watch(descriptor: int, path: str, mask: int) -> None:
    """Make *descriptor* report the events in *mask* for the file at *path*."""
    _checked(_libc.inotify_add_watch(descriptor, os.fsencode(path), mask), f"inotify_add_watch({path})")


def drain(descriptor: int) -> None:
    """Read and discard the events so far."""
    with suppress(BlockingIOError):
        while len(os.read(descriptor, 65536)) == 65536:
            pass


def _checked(answer: int, call: str) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return answer


class ClockAlarm:
    """A source of wake-ups for the watcher: it never rings by itself, so the watcher polls, at most every 20 ms."""

    longest: float | None = 0.02
    """The longest pause between two polls; None where every commit rings."""

    def __init__(self) -> None:
        self._poked = threading.Event()

    def wait(self, timeout: float | None, *, parked: bool = False) -> bool:
        """Wait for a ring or *timeout* seconds, and return whether it rang.  While *parked*, only `poke` rings."""
        rang = self._poked.wait(timeout)
        self._poked.clear()
        return rang

    def poke(self) -> None:
        """Ring."""
        self._poked.set()

    def close(self) -> None:
        """Release the system's resources."""


class InotifyAlarm(ClockAlarm):
    """An alarm that rings when the write-ahead log or the database file is written, moved or replaced.

    Both are watched by path and never opened, which would drop SQLite's locks.
    """

    longest = None

    def __init__(self, path: str) -> None:
        self._files = open_descriptor()
        self._pokes = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._files, select.POLLIN)
        self._poll.register(self._pokes, select.POLLIN)
        self._parked = select.poll()
        self._parked.register(self._pokes, select.POLLIN)
        for name in (path, path + "-wal"):
            watch(self._files, name, MODIFIED | MOVED_OR_UNLINKED)

    def wait(self, timeout: float | None, *, parked: bool = False) -> bool:
        """See `ClockAlarm`.  A wait below a millisecond, which poll() cannot express, sleeps and polls once."""
        milliseconds = timeout and timeout * 1000
        if timeout is not None and timeout < 0.001:
            time.sleep(timeout)
            milliseconds = 0
        ready = (self._parked if parked else self._poll).poll(milliseconds)
        for descriptor, _ in ready:
            if descriptor == self._files:
                drain(self._files)
            else:
                os.eventfd_read(self._pokes)
        return bool(ready)

    def poke(self) -> None:
        os.eventfd_write(self._pokes, 1)

    def close(self) -> None:
        os.close(self._files)
        os.close(self._pokes)


_FIRST_LOOK = 0.00005
_SLOWEST_LOOK = 0.1
_LOOKS_FOR = 5.0
_IDENTITY_EVERY = 0.25
_STOPPING_TAKES = 5.0


class Waiter(msgspec.Struct, eq=False):
    """A call that sleeps until the result of *probe* differs from the one it has seen.

    *answer* is the result that the watcher woke it with, if any; *error* is the error that ended the watcher.
    """

    probe: Probe
    wake: Callable[[], object]
    seen: Readiness | None = None
    answer: Readiness | None = None
    error: EventkitError | None = None


class Watcher:
    """The thread that wakes the waiters of one file."""

    def __init__(self, address: Address, file: "File") -> None:
        self._address = address
        self._file = file
        self._mutex = threading.Lock()
        self.waiters: dict[Probe, set[Waiter]] = {}
        """The waiters of each probe."""
        self._alarm: ClockAlarm | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._commits = 0

    def count_commits(self, connection: Connection) -> None:
        """Let SQL on *connection* call ``eventkit_commits()``, the number of times that commits were noticed, as text.

        Commits are noticed while there is a waiter, and the next waiter makes up for those before.
        """
        if self._address.library == "apsw":
            connection.create_scalar_function("eventkit_commits", lambda: str(self._commits), 0)
        else:
            connection.create_function("eventkit_commits", 0, lambda: str(self._commits))

    def add(self, waiter: Waiter) -> None:
        """Add *waiter*: from now on no change to the result of its probe is missed."""
        with self._mutex:
            was_parked = not self.waiters
            self.waiters.setdefault(waiter.probe, set()).add(waiter)
            if self._alarm is not None:
                if was_parked:
                    self._alarm.poke()
                return
            try:
                self._start()
            except Exception as error:
                self._forget(waiter)
                raise self._known(error) from error

    def remove(self, waiter: Waiter) -> None:
        with self._mutex:
            self._forget(waiter)

    def committed(self) -> None:
        """Poll at once after a commit of this process."""
        with self._mutex:
            if self._alarm is not None:
                self._alarm.poke()

    def wake_all(self) -> None:
        """Wake all waiters, to check again or to find that their kit is closed."""
        with self._mutex:
            for waiter in chain(*self.waiters.values()):
                waiter.wake()

    def stop(self) -> None:
        """End the thread and close its connection, so that another library may open the file."""
        self._stopped = True
        with self._mutex:
            thread = self._thread
            if self._alarm is not None:
                self._alarm.poke()
        if thread is not None and thread.is_alive():  # A signal may have interrupted its start.
            thread.join(_STOPPING_TAKES)

    def _start(self) -> None:
        address = self._address
        # SQLite would create the file again if it is gone.
        self._file.check_identity(None)
        connection = open_connection(address.library, address.path, address.synchronous, address.busy_timeout)
        version, alarm = _data_version(connection), ClockAlarm()
        if address.watch == "inotify":
            # The number of watches is limited by the system; without one, polling still works.
            with suppress(OSError):
                alarm = InotifyAlarm(address.path)
        self.count_commits(connection)
        self._commits += 1  # Commits since the last thread ended were not noticed.
        arguments = connection, version, alarm
        self._thread = threading.Thread(target=self._run, args=arguments, name="eventkit-watcher", daemon=True)
        self._thread.start()
        self._alarm = alarm

    def _run(self, connection: Connection, version: int, alarm: ClockAlarm) -> None:
        failure: Exception | None = None
        try:
            self._watch(connection, version, alarm)
        except Exception as error:
            failure = error
        with self._mutex:
            # Later waiters start a new thread.
            self._alarm = None
            alarm.close()
            if failure is not None:
                for waiter in chain(*self.waiters.values()):
                    waiter.error = self._known(failure)
                    waiter.wake()
        connection.close()

    def _forget(self, waiter: Waiter) -> None:
        waiters = self.waiters.get(waiter.probe, set())
        waiters.discard(waiter)
        if not waiters:
            self.waiters.pop(waiter.probe, None)

    def _known(self, error: Exception) -> EventkitError:
        """Return a new error for one waiter: an error raised in several threads would collect all tracebacks."""
        known = self._file.explain(error)
        if isinstance(known, EventkitError):
            return known
        return Unavailable(f"watching {self._address.path} failed ({type(error).__name__}: {error}): try again")

    def _watch(self, connection: Connection, version: int, alarm: ClockAlarm) -> None:
        interval, look_until, check_at = _FIRST_LOOK, monotonic() + _LOOKS_FOR, 0.0
        poll_at = monotonic() + self._address.fallback_poll
        while not self._stopped:
            now = monotonic()
            if not self.waiters:
                alarm.wait(None, parked=True)
                rang = True
            else:
                pause = interval if now < look_until else alarm.longest
                left = max(0.0, poll_at - now)
                rang = alarm.wait(left if pause is None else min(pause, left))
            now = monotonic()
            if rang:
                interval, look_until, check_at = _FIRST_LOOK, now + _LOOKS_FOR, 0.0
            else:
                interval = min(2 * interval, alarm.longest or _SLOWEST_LOOK)
            if now >= check_at:
                self._file.check_identity(connection)
                check_at = now + _IDENTITY_EVERY
            latest = _data_version(connection)
            if latest != version or now >= poll_at:
                self._commits += latest != version
                version = latest
                poll_at = now + self._address.fallback_poll
                self._ask_probes(connection)

    def _ask_probes(self, connection: Connection) -> None:
        with self._mutex:
            probes = list(self.waiters)
        try:
            connection.execute("BEGIN")
            # The latest waiter has been active most recently; it is woken before the other probes are evaluated.
            for probe in reversed(probes):
                self._wake_changed(probe, run(probe.plan(), lambda step: fetch(connection, step)))
            connection.execute("COMMIT")
        except Error:
            # The waiters will meet the error of the file themselves.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self.wake_all()

    def _wake_changed(self, probe: Probe, answer: Readiness) -> None:
        with self._mutex:
            for waiter in self.waiters.get(probe, ()):
                if waiter.seen != answer:
                    waiter.answer = answer
                    waiter.wake()


def _data_version(connection: Connection) -> int:
    return int(connection.execute("PRAGMA data_version").fetchall()[0][0])

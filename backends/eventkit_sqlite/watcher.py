"""Noticing commits: one thread for a file and a process, however many wait.

A waiter sleeps until the answer to its probe is no longer the one it has seen.  The watcher asks each
distinct probe once after a commit, on a connection of its own, so a hundred waiters for one queue cost one
query, and commits that concern nobody wake nobody.

A commit is noticed by ``PRAGMA data_version``, which changes for every connection but the one that
committed.  The log is written a moment before the commit becomes visible, with an fsync in between that may
take its time, and one ring may stand for two commits; so after every ring the watcher goes on looking, at
intervals that double from 0.05 to 100 ms, for five seconds.  While nobody waits it is parked, and whoever
comes then makes it look as if the alarm had rung.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

from eventkit.errors import EventkitError, Unavailable
from eventkit.execute import run
from eventkit.operations import Outlook, Probe

from .address import Address
from .alarm import Alarm, ClockAlarm, InotifyAlarm
from .library import Connection, Error, open_connection
from .statements import fetch

_FIRST_LOOK = 0.00005
_SLOWEST_LOOK = 0.1
_LOOKS_FOR = 5.0
_IDENTITY_EVERY = 0.25
_STOPPING_TAKES = 5.0


class Waiter:
    """Somebody who sleeps until *probe* answers something else than what they have seen.

    *answer* is what the watcher woke them with, if that is why they were woken; *error* is what the watcher
    has ended with.
    """

    __slots__ = ("answer", "error", "probe", "seen", "wake")

    def __init__(self, probe: Probe, wake: Callable[[], object]) -> None:
        self.probe = probe
        self.wake = wake
        self.seen: Outlook | None = None
        self.answer: Outlook | None = None
        self.error: EventkitError | None = None

    @property
    def may_look(self) -> bool:
        """Whether what woke them is worth a look at once, without asking the probe again."""
        return self.answer is not None and self.answer.ready


class Watcher:
    """Wakes the waiters of one file."""

    def __init__(
        self,
        address: Address,
        check_identity: Callable[[Connection | None], None],
        explain: Callable[[BaseException], BaseException],
    ) -> None:
        self._address = address
        self._check_identity = check_identity
        self._explain = explain
        self._mutex = threading.Lock()
        self._waiters: dict[Probe, set[Waiter]] = {}
        self._alarm: Alarm | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False

    def add(self, waiter: Waiter) -> None:
        """From now on no change to the answer of the waiter's probe goes unnoticed."""
        with self._mutex:
            was_parked = not self._waiters
            self._waiters.setdefault(waiter.probe, set()).add(waiter)
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
        """The waiter is no longer interested."""
        with self._mutex:
            self._forget(waiter)

    def committed(self) -> None:
        """This process has committed something: look at once if anybody waits."""
        if self._waiters:
            with self._mutex:
                if self._alarm is not None:
                    self._alarm.poke()

    def wake_all(self) -> None:
        """Let everybody look, or find that their kit is closed."""
        with self._mutex:
            for waiters in self._waiters.values():
                for waiter in waiters:
                    waiter.wake()

    def stop(self) -> None:
        """End the thread, and return when its connection is closed: another library may be about to open the file."""
        self._stopped = True
        with self._mutex:
            thread = self._thread
            if self._alarm is not None:
                self._alarm.poke()
        if thread is not None:
            thread.join(_STOPPING_TAKES)

    def _start(self) -> None:
        address = self._address
        # SQLite would make a new file where there is none any more.
        self._check_identity(None)
        connection = open_connection(address.library, address.path, address.synchronous, address.busy_timeout)
        version, alarm = _data_version(connection), _alarm(address)
        self._thread = threading.Thread(
            target=self._run, args=(connection, version, alarm), name="eventkit-watcher", daemon=True
        )
        self._thread.start()
        self._alarm = alarm

    def _run(self, connection: Connection, version: int, alarm: Alarm) -> None:
        failure: Exception | None = None
        try:
            self._watch(connection, version, alarm)
        except Exception as error:
            failure = error
        with self._mutex:
            # Who comes from now on has a thread of its own, which may do better.
            self._alarm = None
            alarm.close()
            if failure is not None:
                for waiter in [waiter for waiters in self._waiters.values() for waiter in waiters]:
                    waiter.error = self._known(failure)
                    waiter.wake()
        connection.close()

    def _forget(self, waiter: Waiter) -> None:
        waiters = self._waiters.get(waiter.probe, set())
        waiters.discard(waiter)
        if not waiters:
            self._waiters.pop(waiter.probe, None)

    def _known(self, error: Exception) -> EventkitError:
        """A new error for one waiter: what several threads raise has the traceback of all."""
        known = self._explain(error)
        if isinstance(known, EventkitError):
            return known
        return Unavailable(f"watching {self._address.path} failed ({type(error).__name__}: {error}): try again")

    def _watch(self, connection: Connection, version: int, alarm: Alarm) -> None:
        interval, look_until, check_at = _FIRST_LOOK, monotonic() + _LOOKS_FOR, 0.0
        poll_at = monotonic() + self._address.fallback_poll
        while not self._stopped:
            now = monotonic()
            if not self._waiters:
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
                self._check_identity(connection)
                check_at = now + _IDENTITY_EVERY
            latest = _data_version(connection)
            if latest != version or now >= poll_at:
                version = latest
                poll_at = now + self._address.fallback_poll
                self._ask_probes(connection)

    def _ask_probes(self, connection: Connection) -> None:
        with self._mutex:
            probes = list(self._waiters)
        try:
            connection.execute("BEGIN")
            # Who has come last was at work until then, and is told first, before the others are even asked for.
            for probe in reversed(probes):
                self._tell(probe, run(probe.plan(), lambda step: fetch(connection, step)))
            connection.execute("COMMIT")
        except Error:
            # Whatever is wrong with the file, those who wait will meet it themselves, and say so.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            self.wake_all()

    def _tell(self, probe: Probe, answer: Outlook) -> None:
        with self._mutex:
            for waiter in self._waiters.get(probe, ()):
                if waiter.seen != answer:
                    waiter.answer = answer
                    waiter.wake()


def _alarm(address: Address) -> Alarm:
    if address.watch == "inotify":
        # The system lends out a limited number of watches; without one, looking every so often still works.
        with suppress(OSError):
            return InotifyAlarm(address.path)
    return ClockAlarm()


def _data_version(connection: Connection) -> int:
    version: Any = connection.execute("PRAGMA data_version").fetchall()[0][0]
    return int(version)

"""Waking: a connection that listens, the waiters of a process, and how a waiter sleeps without missing a commit.

One file, although a long one: the order of the steps of waiter, listener and publisher is the proof that none is lost.
"""

import random
import select
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from itertools import count
from time import monotonic
from typing import Any, NamedTuple

from psycopg import Connection, Error, Notify

from eventkit.errors import PASSING, EventkitError, Unavailable
from eventkit.operations import Probe, Readiness
from eventkit.plans import Stop, run

from . import address as addresses
from .address import Address, shown
from .errors import translated
from .session import OwnConnection, adapt, options
from .statements import fetch, statements

KEPT = 0.1
"""Seconds that a subject stays registered after the last sleeper, and at least a second in total, because each
registration leaves a dead row that publishers scan while any old transaction is open."""

_ASLEEP = 0.005
"""Seconds without a notification that count as sleep.  A waiter that would be woken sooner should poll instead,
which also spares the process that would wake it."""


class Waiter:
    """A call that waits for *probe*; *ring* wakes it, and *notified* marks the wake-up as a notification."""

    __slots__ = ("asleep_since", "notified", "probe", "ring", "seen")

    def __init__(self, probe: Probe, ring: Callable[[], object]) -> None:
        self.probe = probe
        self.ring = ring
        self.asleep_since = 0.0
        self.begin()

    def begin(self) -> None:
        """Reset the notification before the probe is evaluated."""
        self.seen: Readiness | None = None
        self.notified = False

    def notify(self) -> None:
        """Wake the waiter with a notification."""
        self.notified = True
        self.ring()


class Place:
    """The waiters of this process for one subject, and its registration."""

    def __init__(self) -> None:
        self.waiters: set[Waiter] = set()
        self.asleep: set[Waiter] = set()
        """Those waiters that will not poll."""
        self.slept_at = 0.0
        self.registration: int | None = None
        self.forgotten = 0
        """Registrations with a lower number than this are no longer in the table."""
        self.registered_at = 0.0
        self.under_way: set[str] = set()


class Waiters:
    """The waiters of one kit, whose subjects are registered in ``eventkit_sleeper`` while a waiter sleeps on them."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._places: dict[str, Place] = {}
        self._registrations = count(1)
        self._valid_from = 0

    def add(self, waiter: Waiter) -> None:
        """Add *waiter*, which is rung from now on."""
        with self._mutex:
            for subject in waiter.probe.subjects:
                self._places.setdefault(subject, Place()).waiters.add(waiter)

    def remove(self, waiter: Waiter) -> None:
        """Remove *waiter*."""
        with self._mutex:
            for subject in waiter.probe.subjects:
                place = self._places[subject]
                place.waiters.discard(waiter)
                _rouse(place, waiter)
                if not place.waiters and place.registration is None:
                    del self._places[subject]

    def next_registration(self) -> int:
        """Return a new, unique registration number."""
        return next(self._registrations)

    def missing(self, waiter: Waiter) -> list[str]:
        """Return the subjects that are not registered, in order."""
        with self._mutex:
            return sorted({s for s in waiter.probe.subjects if self._places[s].registration is None})

    def registrations(self, waiter: Waiter) -> list[int | None]:
        """Return the registration of each subject in the table."""
        with self._mutex:
            return [self._places[subject].registration for subject in waiter.probe.subjects]

    def fall_asleep(self, waiter: Waiter, known: list[int | None]) -> bool:
        """Keep the subjects registered until `wake_up`.  Return False if their registrations differ from *known*."""
        with self._mutex:
            places = [self._places[subject] for subject in waiter.probe.subjects]
            if [place.registration for place in places] != known:
                return False
            waiter.asleep_since = monotonic()
            for place in places:
                place.asleep.add(waiter)
            return True

    def wake_up(self, waiter: Waiter) -> None:
        """Mark *waiter* as awake."""
        with self._mutex:
            for subject in waiter.probe.subjects:
                _rouse(self._places[subject], waiter)

    def register(self, subjects: list[str], registration: int, under_way: set[str]) -> None:
        """Record the registration of *subjects*, which the transactions *under_way* may not have seen."""
        with self._mutex:
            if registration < self._valid_from:
                return  # A notification may have been missed since.
            for subject in subjects:
                place = self._places[subject]
                if registration < place.forgotten:
                    continue  # It is being deleted from the table.
                place.registration = registration
                place.registered_at = place.slept_at = monotonic()
                place.under_way = under_way

    def under_way(self, waiter: Waiter) -> bool:
        """Return whether transactions may be in progress that will not notify the waiter."""
        with self._mutex:
            return any(self._places[subject].under_way for subject in waiter.probe.subjects)

    def patience(self, waiter: Waiter, still_under_way: set[str]) -> float | None:
        """Return how long to wait before polling again: a tenth of the time that they have been in progress."""
        with self._mutex:
            pauses = []
            for subject in waiter.probe.subjects:
                place = self._places[subject]
                place.under_way &= still_under_way
                if place.under_way:
                    pauses.append(min(1.0, max(0.002, (monotonic() - place.registered_at) / 10)))
            # Those that have just ended may have committed after the last poll.
            return min(pauses, default=0.0)

    def notify(self, subject: str) -> None:
        """Notify the waiters for *subject*."""
        with self._mutex:
            place = self._places.get(subject)
            for waiter in place.waiters if place is not None else ():
                waiter.notify()

    def ring_all(self) -> None:
        """Wake all waiters, to poll or to find that their kit is closed."""
        with self._mutex:
            for place in self._places.values():
                for waiter in place.waiters:
                    waiter.ring()

    def invalidate(self) -> None:
        """Discard all registrations, including one in progress."""
        with self._mutex:
            self._valid_from = self.next_registration()
            for place in self._places.values():
                place.registration = None

    def retain(self, registered: set[str]) -> bool:
        """Discard the registrations other than *registered*, and return whether there were any."""
        with self._mutex:
            lost = [
                place for subject, place in self._places.items() if place.registration and subject not in registered
            ]
            for place in lost:
                place.registration = None
            return bool(lost)

    def forget(self) -> tuple[list[str], int, bool]:
        """Return unused subjects, the last registration to delete for them, and whether more will follow."""
        now = monotonic()
        left: list[str] = []
        with self._mutex:
            # A registration may be in progress; later ones have a higher number.
            last = self.next_registration()
            watched = [(subject, place) for subject, place in self._places.items() if not place.asleep]
            idle = [(subject, place) for subject, place in watched if place.registration or not place.waiters]
            for subject, place in idle:
                if now - place.slept_at >= KEPT and now - place.registered_at >= 1.0:
                    left.append(subject)
                    place.registration, place.forgotten = None, last
                    if not place.waiters:
                        del self._places[subject]
        return left, last, len(idle) > len(left)

    def by_probe(self) -> dict[Probe, list[Waiter]]:
        """Return the waiters, grouped by probe."""
        with self._mutex:
            waiters: dict[Probe, list[Waiter]] = {}
            for waiter in {waiter for place in self._places.values() for waiter in place.waiters}:
                waiters.setdefault(waiter.probe, []).append(waiter)
            return waiters


def _rouse(place: Place, waiter: Waiter) -> None:
    if waiter in place.asleep:
        place.asleep.remove(waiter)
        now = monotonic()
        if now - waiter.asleep_since >= _ASLEEP:
            place.slept_at = now


_ALIVE = "clock_timestamp() + interval '60 s'"


class SleepingSQL:
    """The statements for the tables of *schema*."""

    def __init__(self, schema: str) -> None:
        def qualified(sql: str) -> bytes:
            return addresses.qualified(sql, schema).encode()

        self.bell = qualified("SELECT eventkit_notify_channel()")
        self.call = qualified("SELECT pg_notify(eventkit_notify_channel(), %s)")
        self.register = qualified(
            f"INSERT INTO eventkit_sleeper (name, listener, registration, until) "
            f"SELECT name, %s, %s, {_ALIVE} FROM unnest(%s::text[]) AS name ORDER BY name "
            f"ON CONFLICT (name, listener) DO UPDATE SET registration = excluded.registration, until = excluded.until "
            f"RETURNING name",
        )
        self.under_way = qualified("SELECT eventkit_under_way(%s::text[])")
        # Expired rows may be skipped by publishers already.
        self.refresh = qualified(
            f"UPDATE eventkit_sleeper SET until = {_ALIVE} "
            f"WHERE listener = %s AND until > clock_timestamp() + interval '10 s' RETURNING name"
        )
        self.expire = qualified(
            "DELETE FROM eventkit_sleeper WHERE (name, listener) IN ("
            "SELECT name, listener FROM eventkit_sleeper WHERE until < clock_timestamp() LIMIT 1000 "
            "FOR UPDATE SKIP LOCKED)",
        )
        self.unregister = qualified(
            "DELETE FROM eventkit_sleeper WHERE name = %s AND listener = %s AND registration <= %s"
        )
        self.leave = qualified("DELETE FROM eventkit_sleeper WHERE listener = %s")


_REFRESH = 20.0
_ANSWER = 5.0
"""Seconds between two notifications to itself, and to wait for one or for any answer."""

_LONGEST_PAUSE = 1.0
"""The longest pause in seconds between attempts to connect."""


class Listener:
    """A thread that listens and rings the waiters of one kit."""

    def __init__(self, address: Address) -> None:
        self.id = random.getrandbits(62)
        self.sql = SleepingSQL(address.schema)
        self.hearing = False
        self.closing = False
        self.fallback_poll = address.fallback_poll
        self.error: EventkitError | None = None
        self.waiters = Waiters()
        self._address = address
        self._statements = statements(address.schema)
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._heard_at = 0.0

    def add(self, waiter: Waiter) -> None:
        """Add *waiter*, which is rung from now on, and start the thread for the first one."""
        self.waiters.add(waiter)
        with self._starting:
            if self._thread is None and not self.closing:
                self._wake_receiver, self._wake_sender = socket.socketpair()
                self._thread = threading.Thread(target=self._run, name="eventkit-listener", daemon=True)
                self._thread.start()

    def end_sleep(self) -> None:
        """End every current and future wait."""
        self.closing = True
        self.waiters.ring_all()

    def stop(self) -> None:
        """End every wait, the thread and its connection."""
        self.end_sleep()
        with self._starting:
            thread, self._thread = self._thread, None
        if thread is not None:
            with suppress(OSError):  # The thread may have ended.
                self._wake_sender.send(b"x")
            if thread.is_alive():  # A signal may have interrupted its start.
                thread.join(2 * _ANSWER)

    def forked(self) -> None:
        """Mark the listener as closed in a forked child, which has no such thread."""
        self.closing = True

    def _run(self) -> None:
        with self._wake_receiver, self._wake_sender:
            pause = 0.05
            while not self.closing:
                try:
                    with closing(self._connect()) as driver:
                        driver.add_notify_handler(self._heard)
                        self._listen(driver)
                        pause = 0.05
                        self._watch(driver)
                except (Error, OSError, EventkitError) as error:
                    self._lost(error)
                self.hearing = False
                self.waiters.ring_all()
                if not self.closing:
                    select.select([self._wake_receiver], [], [], pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)

    def _connect(self) -> Connection[Any]:
        conninfo = self._address.listen_conninfo
        driver = OwnConnection.connect(conninfo, autocommit=True, **options(self._address, conninfo))
        driver.patience = _ANSWER
        adapt(driver)
        return driver

    def _lost(self, error: Exception) -> None:
        """Store the error that prevents notifications, unless it is temporary."""
        known = error if isinstance(error, EventkitError) else translated(error, self._address)
        if known is None and not self.hearing:
            known = Unavailable(f"listening on {shown(self._address.url)} failed: {error}")
        if known is not None and not isinstance(known, PASSING):
            self.error = known

    def _listen(self, driver: Connection[Any]) -> None:
        """Start to listen, and wake the waiters, which may have missed notifications."""
        if self._address.pooled and self._address.listen_conninfo == self._address.conninfo:
            raise self._not_notified()
        [(bell,)] = driver.execute(self.sql.bell).fetchall()
        driver.execute(f'LISTEN "{bell}"'.encode())
        if self._address.pooled:
            # A pooler that shares the server's sessions delivers only notifications of the session itself.
            with closing(self._connect()) as other:
                self._call_oneself(other)
        else:
            self._call_oneself(driver)
        if not self._wait_for_the_call(driver) and not self.closing:
            raise self._not_notified()
        # The rows of the old id belong to no listener, and expire.
        self.id = random.getrandbits(62)
        self.waiters.invalidate()
        self.hearing, self.error = True, None
        self.waiters.ring_all()

    def _not_notified(self) -> Unavailable:
        return Unavailable(
            f"notifications do not arrive on {shown(self._address.url)}: behind a pooler in transaction mode, "
            f"name the server itself in ?listen_url="
        )

    def _watch(self, driver: Connection[Any]) -> None:
        refresh_at = monotonic() + _REFRESH
        poll_at = monotonic() + self.fallback_poll
        while not self.closing:
            now = monotonic()
            if now >= refresh_at:
                self._refresh(driver)
                refresh_at = monotonic() + _REFRESH
            if now >= poll_at:
                self._ask_probes(driver)
                poll_at = monotonic() + self.fallback_poll
            kept = self._forget(driver)
            timeout = max(0.0, min(refresh_at, poll_at, now + KEPT if kept else refresh_at) - monotonic())
            readable, _, _ = select.select([driver.fileno(), self._wake_receiver.fileno()], [], [], timeout)
            if driver.fileno() in readable:
                self._pump(driver)
        with suppress(Error):
            driver.execute(self.sql.leave, (self.id,))

    def _pump(self, driver: Connection[Any]) -> None:
        driver.pgconn.consume_input()
        while notification := driver.pgconn.notifies():
            self._heard(Notify("", notification.extra.decode(), 0))

    def _heard(self, notification: Notify) -> None:
        if notification.payload == f"listener:{self.id}":
            self._heard_at = monotonic()
            return
        self.waiters.notify(notification.payload)

    def _call_oneself(self, driver: Connection[Any]) -> None:
        self._heard_at = 0.0
        driver.execute(self.sql.call, (f"listener:{self.id}",))

    def _wait_for_the_call(self, driver: Connection[Any]) -> bool:
        give_up_at = monotonic() + _ANSWER
        while not self._heard_at and not self.closing and monotonic() < give_up_at:
            if select.select([driver.fileno(), self._wake_receiver.fileno()], [], [], give_up_at - monotonic())[0]:
                self._pump(driver)
        return bool(self._heard_at)

    def _refresh(self, driver: Connection[Any]) -> None:
        """Renew the registrations, delete expired ones of other listeners, and check that notifications arrive."""
        self._call_oneself(driver)
        there = {name for (name,) in driver.execute(self.sql.refresh, (self.id,)).fetchall()}
        driver.execute(self.sql.expire)
        if self.waiters.retain(there):
            self.waiters.ring_all()
        if not self._wait_for_the_call(driver) and not self.closing:
            raise OSError("a notification to oneself did not arrive")

    def _forget(self, driver: Connection[Any]) -> bool:
        """Unregister unused subjects, and return whether more will follow."""
        left, last, more = self.waiters.forget()
        for subject in left:
            driver.execute(self.sql.unregister, (subject, self.id, last))
        return more

    def _ask_probes(self, driver: Connection[Any]) -> None:
        """Poll once per distinct probe."""
        for probe, waiters in self.waiters.by_probe().items():
            answer = run(probe.plan(), lambda step: fetch(driver, self._statements, step))
            for waiter in waiters:
                if waiter.seen is not None and waiter.seen != answer:
                    waiter.notify()


_BUSY = 0.01
"""The pause before polling a subject on which no waiter has slept lately: on a busy subject, one poll finds what
many wake-ups would have found, and publishers need not notify."""

_AFTER_AN_ERROR = 0.1


class Pause(NamedTuple):
    """Wait for the waiter's bell, for *seconds* at most, and return whether it rang."""

    seconds: float | None


class Query(NamedTuple):
    """Execute a statement in a transaction of its own, and return its rows."""

    sql: bytes
    parameters: tuple[Any, ...]


Step = Probe | Pause | Query
Sleep = Generator[Step, Any, bool]


def sleep(listener: Listener, waiter: Waiter, timeout: float | None, stop: Stop) -> Sleep:
    """Sleep until the caller should poll, and return True; return False after *timeout* or when the listener closes."""
    waiters = listener.waiters
    deadline = None if timeout is None else monotonic() + timeout
    if waiters.missing(waiter) and (yield Pause(_BUSY if timeout is None else min(_BUSY, timeout))):
        waiter.ring()  # The loop below handles the cause.
    while not (listener.closing or stop.is_set):
        waiter.begin()
        pause: float | None = _AFTER_AN_ERROR
        due = None
        known = waiters.registrations(waiter)
        missing, doubtful = waiters.missing(waiter), waiters.under_way(waiter)
        try:
            readiness: Readiness = yield waiter.probe
            waiter.seen = readiness
            if readiness.ready:
                return True
            due = readiness.delay
            if not listener.hearing:
                pause = listener.fallback_poll  # It rings when it hears.
            elif missing:
                registration = waiters.next_registration()
                yield Query(listener.sql.register, (listener.id, registration, missing))
                under_way = yield Query(listener.sql.under_way, (missing,))
                waiters.register(missing, registration, {id for (id,) in under_way})
                continue
            elif not waiters.fall_asleep(waiter, known):
                continue
            elif doubtful:
                under_way = yield Query(listener.sql.under_way, (list(waiter.probe.subjects),))
                pause = waiters.patience(waiter, {id for (id,) in under_way})
            else:
                pause = None
        except PASSING:
            pass  # The server is unavailable for a moment.
        left = None if deadline is None else deadline - monotonic()
        if left is not None and left <= 0:
            return False
        seconds = min((each for each in (pause, due, left) if each is not None), default=None)
        rang = yield Pause(seconds)
        waiters.wake_up(waiter)
        if listener.error is not None:
            raise listener.error
        if listener.closing or stop.is_set:
            return False
        if waiter.notified if rang else seconds == due is not None:
            return True
    return False

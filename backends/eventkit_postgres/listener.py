"""Hearing commits: one connection and one thread for a kit, however many wait.

Notifications carry the name of what changed, and ring those who wait for it.  A name that somebody waits for
stands in ``eventkit_sleeper``, or nobody would notify; it is taken out when nobody has slept on it for a second,
so that consumers with work to do, who never get further than looking again, cost their publishers nothing.

A connection that is healthy by every statement may hear nothing all the same (a pooler in between, a blackholed
socket).  So the listener sends itself a notification when it begins and every so often, and a connection on which
it does not arrive is replaced.  Whoever waits then looks again, because what was notified meanwhile is lost.
"""

import random
import select
import socket
import threading
from collections.abc import Iterable
from contextlib import closing, suppress
from itertools import count
from time import monotonic
from typing import Any

from psycopg import Connection, Error, Notify

from eventkit.errors import PASSING, EventkitError, Unavailable
from eventkit.execute import run
from eventkit.operations import Probe

from .address import Address, shown
from .errors import translated
from .session import ImpatientConnection, adapt, options
from .sleeping_sql import SleepingSQL
from .statements import fetch, statements
from .waiters import Place, Waiter

_KEPT = 1.0
"""Seconds that a name stays registered when nobody sleeps on it any more."""

_REFRESH = 20.0
_ANSWER = 5.0
"""Seconds between two notifications to oneself, and for one to arrive, or any other answer."""

_LONGEST_PAUSE = 1.0
"""Seconds between two attempts to connect, when there have been some."""


class Listener:
    """Rings the waiters of one kit."""

    def __init__(self, address: Address) -> None:
        self.id = random.getrandbits(62)
        self.sql = SleepingSQL(address.schema)
        self.hearing = False
        self.closing = False
        self.fallback_poll = address.fallback_poll
        self.error: EventkitError | None = None
        self._address = address
        self._statements = statements(address.schema)
        self._registrations = count(1)
        self._hearing_since = 0
        self._mutex = threading.Lock()
        self._places: dict[str, Place] = {}
        self._thread: threading.Thread | None = None
        self._heard_at = 0.0

    def add(self, waiter: Waiter) -> None:
        """From now on *waiter* is rung; the thread is started for the first one."""
        with self._mutex:
            for subject in waiter.probe.subjects:
                self._places.setdefault(subject, Place()).waiters.add(waiter)
            if self._thread is None and not self.closing:
                self._ear, self._mouth = socket.socketpair()
                self._thread = threading.Thread(target=self._run, name="eventkit-listener", daemon=True)
                self._thread.start()

    def remove(self, waiter: Waiter) -> None:
        """The waiter has found something to do, or waits no more."""
        with self._mutex:
            for subject in waiter.probe.subjects:
                place = self._places[subject]
                place.waiters.discard(waiter)
                _rouse(place, waiter)
                if not place.waiters and place.registration is None:
                    del self._places[subject]

    def next_registration(self) -> int:
        """A number that no other registration of this listener has."""
        return next(self._registrations)

    def missing(self, waiter: Waiter) -> list[str]:
        """The subjects that are not registered, in order."""
        with self._mutex:
            return sorted({s for s in waiter.probe.subjects if self._places[s].registration is None})

    def registrations(self, waiter: Waiter) -> list[int | None]:
        """By which registration each subject stands in the table."""
        with self._mutex:
            return [self._places[subject].registration for subject in waiter.probe.subjects]

    def fall_asleep(self, waiter: Waiter, known: list[int | None]) -> bool:
        """Keep the subjects in the table until `wake_up`; False if they no longer stand there as they did before."""
        with self._mutex:
            places = [self._places[subject] for subject in waiter.probe.subjects]
            if [place.registration for place in places] != known:
                return False
            for place in places:
                place.asleep.add(waiter)
            return True

    def wake_up(self, waiter: Waiter) -> None:
        """The waiter is about to look."""
        with self._mutex:
            for subject in waiter.probe.subjects:
                _rouse(self._places[subject], waiter)

    def register(self, subjects: list[str], registration: int, under_way: set[str]) -> None:
        """The subjects stand in the table now, and these transactions may not have seen them there."""
        with self._mutex:
            if registration < self._hearing_since:
                return  # What was notified since may not have been heard.
            for subject in subjects:
                place = self._places[subject]
                if registration < place.forgotten:
                    continue  # It is being taken out of the table, or has been.
                place.registration = registration
                place.registered_at = place.slept_at = monotonic()
                place.under_way = under_way

    def under_way(self, waiter: Waiter) -> bool:
        """Whether transactions may be under way that will not notify us."""
        with self._mutex:
            return any(self._places[subject].under_way for subject in waiter.probe.subjects)

    def patience(self, waiter: Waiter, still_under_way: set[str]) -> float | None:
        """How long to wait before looking again: a tenth of how long they have been under way already."""
        with self._mutex:
            pauses = []
            for subject in waiter.probe.subjects:
                place = self._places[subject]
                place.under_way &= still_under_way
                if place.under_way:
                    pauses.append(min(1.0, max(0.002, (monotonic() - place.registered_at) / 10)))
            # Those that have just ended may have committed after we looked.
            return min(pauses, default=0.0)

    def ring_all(self) -> None:
        """Let everybody look, or find that their kit is closed."""
        with self._mutex:
            for place in self._places.values():
                for waiter in place.waiters:
                    waiter.ring()

    def end_sleep(self) -> None:
        """Let everybody go, now and from now on."""
        self.closing = True
        self.ring_all()

    def stop(self) -> None:
        """Let everybody go, and end the thread and its connection."""
        self.end_sleep()
        with self._mutex:
            thread, self._thread = self._thread, None
        if thread is not None:
            with suppress(OSError):  # It may have ended by itself.
                self._mouth.send(b"x")
            thread.join(2 * _ANSWER)

    def forked(self) -> None:
        """This is a child process, which has no such thread."""
        self.closing = True

    def _run(self) -> None:
        with self._ear, self._mouth:
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
                self.ring_all()
                if not self.closing:
                    select.select([self._ear], [], [], pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)

    def _connect(self) -> Connection[Any]:
        conninfo = self._address.listen_conninfo
        driver = ImpatientConnection.connect(conninfo, autocommit=True, **options(self._address, conninfo))
        driver.patience = _ANSWER
        adapt(driver)
        return driver

    def _lost(self, error: Exception) -> None:
        """Tell everybody why nothing will be heard, unless that passes by itself."""
        known = error if isinstance(error, EventkitError) else translated(error, self._address)
        if known is None and not self.hearing:
            known = Unavailable(f"listening on {shown(self._address.url)} failed: {error}")
        if known is not None and not isinstance(known, PASSING):
            self.error = known

    def _listen(self, driver: Connection[Any]) -> None:
        """Begin to hear, and let everybody look at what was not heard."""
        if self._address.pooled and self._address.listen_conninfo == self._address.conninfo:
            raise self._deaf()
        [(bell,)] = driver.execute(self.sql.bell).fetchall()
        driver.execute(f'LISTEN "{bell}"'.encode())
        if self._address.pooled:
            # A pooler that shares out the server's sessions lets us hear ourselves, and nobody else.
            with closing(self._connect()) as somebody_else:
                self._call_oneself(somebody_else)
        else:
            self._call_oneself(driver)
        if not self._wait_for_the_call(driver) and not self.closing:
            raise self._deaf()
        with self._mutex:
            # What is registered under the old one is nobody's, and expires.
            self.id = random.getrandbits(62)
            self._hearing_since = self.next_registration()
            for place in self._places.values():
                place.registration = None
        self.hearing, self.error = True, None
        self.ring_all()

    def _deaf(self) -> Unavailable:
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
            timeout = max(0.0, min(refresh_at, poll_at, now + _KEPT if kept else refresh_at) - monotonic())
            readable, _, _ = select.select([driver.fileno(), self._ear.fileno()], [], [], timeout)
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
        with self._mutex:
            place = self._places.get(notification.payload)
            for waiter in place.waiters if place is not None else ():
                waiter.tell()

    def _call_oneself(self, driver: Connection[Any]) -> None:
        self._heard_at = 0.0
        driver.execute(self.sql.call, (f"listener:{self.id}",))

    def _wait_for_the_call(self, driver: Connection[Any]) -> bool:
        give_up_at = monotonic() + _ANSWER
        while not self._heard_at and not self.closing and monotonic() < give_up_at:
            if select.select([driver.fileno(), self._ear.fileno()], [], [], give_up_at - monotonic())[0]:
                self._pump(driver)
        return bool(self._heard_at)

    def _refresh(self, driver: Connection[Any]) -> None:
        """Stay registered, let go of who has died, and see that we still hear."""
        self._call_oneself(driver)
        there = {name for (name,) in driver.execute(self.sql.refresh, (self.id,)).fetchall()}
        driver.execute(self.sql.bury)
        with self._mutex:
            lost = [place for subject, place in self._places.items() if place.registration and subject not in there]
            for place in lost:
                place.registration = None
        if lost:
            self.ring_all()
        if not self._wait_for_the_call(driver) and not self.closing:
            raise OSError("a notification to oneself did not arrive")

    def _forget(self, driver: Connection[Any]) -> bool:
        """Unregister what nobody has slept on lately; whether there will be more to unregister."""
        now = monotonic()
        left: list[str] = []
        with self._mutex:
            # Somebody may just be registering; whoever begins to from now on does so with a higher number.
            last = self.next_registration()
            watched = [(subject, place) for subject, place in self._places.items() if not place.asleep]
            idle = [(subject, place) for subject, place in watched if place.registration or not place.waiters]
            for subject, place in idle:
                if now - place.slept_at >= _KEPT:
                    left.append(subject)
                    place.registration, place.forgotten = None, last
                    if not place.waiters:
                        del self._places[subject]
        for subject in left:
            driver.execute(self.sql.unregister, (subject, self.id, last))
        return len(idle) > len(left)

    def _ask_probes(self, driver: Connection[Any]) -> None:
        """The look on no occasion, once for all who ask the same."""
        with self._mutex:
            waiters: dict[Probe, list[Waiter]] = {}
            for waiter in _distinct(self._places.values()):
                waiters.setdefault(waiter.probe, []).append(waiter)
        for probe, who in waiters.items():
            answer = run(probe.plan(), lambda step: fetch(driver, self._statements, step))
            for waiter in who:
                if waiter.seen is not None and waiter.seen != answer:
                    waiter.tell()


def _rouse(place: Place, waiter: Waiter) -> None:
    if waiter in place.asleep:
        place.asleep.remove(waiter)
        place.slept_at = monotonic()


def _distinct(places: Iterable[Place]) -> set[Waiter]:
    return {waiter for place in places for waiter in place.waiters}

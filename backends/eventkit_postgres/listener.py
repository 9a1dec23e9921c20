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
from contextlib import closing, suppress
from time import monotonic
from typing import Any

from psycopg import Connection, Error, Notify

from eventkit.errors import PASSING, EventkitError, Unavailable
from eventkit.execute import run

from .address import Address, shown
from .errors import translated
from .session import OwnConnection, adapt, options
from .sleeping_sql import SleepingSQL
from .statements import fetch, statements
from .waiters import KEPT, Waiter, Waiters

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
        self.waiters = Waiters()
        self._address = address
        self._statements = statements(address.schema)
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._heard_at = 0.0

    def add(self, waiter: Waiter) -> None:
        """From now on *waiter* is rung; the thread is started for the first one."""
        self.waiters.add(waiter)
        with self._starting:
            if self._thread is None and not self.closing:
                self._ear, self._mouth = socket.socketpair()
                self._thread = threading.Thread(target=self._run, name="eventkit-listener", daemon=True)
                self._thread.start()

    def end_sleep(self) -> None:
        """Let everybody go, now and from now on."""
        self.closing = True
        self.waiters.ring_all()

    def stop(self) -> None:
        """Let everybody go, and end the thread and its connection."""
        self.end_sleep()
        with self._starting:
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
                self.waiters.ring_all()
                if not self.closing:
                    select.select([self._ear], [], [], pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)

    def _connect(self) -> Connection[Any]:
        conninfo = self._address.listen_conninfo
        driver = OwnConnection.connect(conninfo, autocommit=True, **options(self._address, conninfo))
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
        # What is registered under the old one is nobody's, and expires.
        self.id = random.getrandbits(62)
        self.waiters.invalidate()
        self.hearing, self.error = True, None
        self.waiters.ring_all()

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
            timeout = max(0.0, min(refresh_at, poll_at, now + KEPT if kept else refresh_at) - monotonic())
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
        self.waiters.tell(notification.payload)

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
        if self.waiters.retain(there):
            self.waiters.ring_all()
        if not self._wait_for_the_call(driver) and not self.closing:
            raise OSError("a notification to oneself did not arrive")

    def _forget(self, driver: Connection[Any]) -> bool:
        """Unregister what nobody has slept on lately; whether there will be more to unregister."""
        left, last, more = self.waiters.forget()
        for subject in left:
            driver.execute(self.sql.unregister, (subject, self.id, last))
        return more

    def _ask_probes(self, driver: Connection[Any]) -> None:
        """The look on no occasion, once for all who ask the same."""
        for probe, who in self.waiters.by_probe().items():
            answer = run(probe.plan(), lambda step: fetch(driver, self._statements, step))
            for waiter in who:
                if waiter.seen is not None and waiter.seen != answer:
                    waiter.tell()

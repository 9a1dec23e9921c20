"""Both sides of a wake, one step at a time: a call that is held inside the database, and a waiter that falls asleep.

`Held` runs a call whose transaction stops between any two statements of the schema's own functions, at halts that
`install_halts` adds to them.  `Sleeper` carries out the plan of `eventkit_postgres.waking` step by
step, over a real listener.  A test can therefore choose every order of the two.
"""

import re
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Semaphore
from typing import Any

import psycopg
from eventkit_postgres.connection import Connection
from eventkit_postgres.waking import Listener, Pause, Query, Step, Waiter, sleep
from psycopg.sql import SQL, Identifier

from eventkit.operations import Probe
from eventkit.plans import Stop, drive

SOON = 5.0
"""Seconds within which a waiter wakes if it ever does; no fallback poll helps it."""

_FUNCTIONS = (
    "mark",
    "wake",
    "notify_waiters",
    "next",
    "publish",
    "notify",
    "add",
    "settled",
    "events_after",
    "notifications_after",
)


def install_halts(driver: psycopg.Connection[Any], schema: str) -> int:
    """Make the functions of *schema* halt after each statement in sessions that ask for it; return how many halts."""
    halt = Identifier(schema, "halt")
    driver.execute(
        SQL(
            "CREATE FUNCTION {}(place bigint) RETURNS void LANGUAGE plpgsql AS $$BEGIN "
            "IF current_setting('test.held', true) <> '' THEN place := place + current_setting('test.held')::bigint; "
            "PERFORM pg_advisory_lock_shared(place); PERFORM pg_advisory_unlock_shared(place); END IF; END$$"
        ).format(halt)
    )
    places = 0

    def with_halt(statement: re.Match[str]) -> str:
        nonlocal places
        places += 1
        return f'{statement[0]} PERFORM "{schema}".halt({places});'

    for name in _FUNCTIONS:
        found = driver.execute(
            "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = %s::regnamespace AND proname = %s",
            (schema, f"eventkit_{name}"),
        ).fetchall()
        [(definition,)] = found
        head, begin, body = definition.partition("\nBEGIN\n")
        assert begin
        driver.execute((head + re.sub(r"^BEGIN$|;$", with_halt, f"{begin}{body}", flags=re.MULTILINE)).encode())
    return places


class Held:
    """A transaction with one call in it, made by *call*, that continues on command.

    Several at once have different *numbers*.  Its steps: begin and take a snapshot; begin the call, and continue from
    halt to halt until it returns; end.
    """

    def __init__(self, url: str, places: int, number: int = 0) -> None:
        self._places = range(1000 * number + 1, 1000 * number + places + 1)
        self._driver = psycopg.connect(url)
        self._driver.execute("SELECT set_config('test.held', %s, false)", (str(1000 * number),))
        self._driver.commit()
        self._holder = psycopg.connect(url, autocommit=True)
        self._thread = ThreadPoolExecutor(1)
        self._plan: Any = iter(())
        self.returned = self.done = True

    def prepare(self, call: Callable[[Any], object], isolation: psycopg.IsolationLevel, commit: bool) -> None:
        """Prepare for the first step."""
        self._driver.isolation_level = isolation
        self._plan = self._steps(call, commit)
        self.returned = self.done = False

    def step(self) -> None:
        """Take the next step."""
        self.done = next(self._plan, "done") == "done"

    def close(self) -> None:
        """End the open transaction."""
        self._holder.close()
        self._thread.shutdown()
        self._driver.close()

    def _steps(self, call: Callable[[Any], object], commit: bool) -> Any:
        self._holder.execute("SELECT pg_advisory_lock(n) FROM unnest(%s::bigint[]) AS n", ([*self._places],))
        self._driver.execute("SELECT 1")
        yield
        calling = self._thread.submit(call, self._driver)
        while (place := self._place(calling)) is not None:
            yield
            self._holder.execute("SELECT pg_advisory_unlock(%s::bigint)", (place,))
        calling.result()
        self.returned = True
        self._holder.execute("SELECT pg_advisory_unlock_all()")
        yield
        if commit:
            self._driver.commit()
        else:
            self._driver.rollback()

    def _place(self, calling: "Future[object]") -> int | None:
        """Return where the call is held; None when it has returned."""
        while not calling.done():
            waiting = self._holder.execute(
                "SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND NOT granted AND pid = %s",
                (self._driver.info.backend_pid,),
            ).fetchone()
            if waiting is not None:
                return int(waiting[0])
            time.sleep(0.0002)
        return None


class Sleeper:
    """A waiter that polls, and sleeps until the next poll is due, until it finds something."""

    def __init__(self, connection: Connection, listener: Listener, probe: Probe) -> None:
        self._connection = connection
        self._listener = listener
        self._bell = Semaphore(0)
        self._waiter = Waiter(probe, self._bell.release)
        self._listener.add(self._waiter)
        self._plan = sleep(listener, self._waiter, None, Stop())
        self._next: Step = next(self._plan)
        self._answers: list[Any] = []
        self.awake = False

    @property
    def asleep(self) -> bool:
        """Return whether only a notification can wake the waiter."""
        return _for_ever(self._next) and not self._bell._value

    def step(self) -> None:
        """Run one query of the plan, or process its answer; a timed pause ends at once."""
        match self._next:
            case _ if self._answers:
                self._go_on(self._answers.pop())
            case Pause():
                self._go_on(self._bell.acquire(blocking=False))
            case Query(sql, parameters):
                self._answers.append(drive(self._connection._query(sql, parameters)))
            case probe:
                self._answers.append(self._connection.execute(probe))

    def wake(self) -> None:
        """Return when the waiter has found something."""
        deadline = time.monotonic() + SOON
        while not self.awake:
            assert time.monotonic() < deadline, "awake again and again, and nothing there"
            if not isinstance(self._next, Pause):
                self.step()
            elif _for_ever(self._next):
                rang = self._bell.acquire(timeout=SOON)
                assert rang, "no notification arrived"
                self._go_on(rang)
            else:
                self._go_on(self._bell.acquire(timeout=self._next.seconds))

    def fall_asleep(self) -> None:
        """Return when only a notification can wake the waiter."""
        for _ in range(1000):
            if self.asleep:
                return
            self.step()
            assert not self.awake
        raise AssertionError("awake for nothing, again and again")

    def close(self) -> None:
        """Stop waiting."""
        self._listener.waiters.remove(self._waiter)

    def _go_on(self, answer: Any) -> None:
        try:
            self._next = self._plan.send(answer)
        except StopIteration:
            self.awake = self._connection.execute(self._waiter.probe).ready
            if not self.awake:
                self._plan = sleep(self._listener, self._waiter, None, Stop())
                self._next = next(self._plan)


def _for_ever(step: Step) -> bool:
    return isinstance(step, Pause) and (step.seconds is None or step.seconds > SOON)

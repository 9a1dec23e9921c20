"""Falling asleep without missing a commit, as a plan that threads and asyncio carry out alike.

Whoever changes something looks, after leaving a mark, whether anybody sleeps (see ``eventkit_stir`` in the
migrations).  So the order here is: register as a sleeper and commit; take the marks of those who may have
looked before that; look once more in a new snapshot.  Whoever had left a mark by then may commit without a
word, so while one of them is under way we look again and again; everybody else will notify us.

Several may wait for the same subject, and register for each other.  So what was known before a look decides what
the look is worth.
"""

from collections.abc import Generator
from time import monotonic
from typing import Any, NamedTuple

from eventkit.errors import PASSING
from eventkit.operations import Outlook, Probe
from eventkit.stopping import Stop

from .listener import Listener
from .waiters import Waiter

_BUSY = 0.01
"""The pause before the first look at a subject on which nobody has slept lately: where much is going on, one look
finds what many would have found, and publishers need not wake anybody."""

_AFTER_AN_ERROR = 0.1


class Pause(NamedTuple):
    """Wait for the waiter's bell, for so many seconds at most; whether it rang."""

    seconds: float | None


class Query(NamedTuple):
    """Execute a statement in a transaction of its own; its rows."""

    sql: bytes
    parameters: tuple[Any, ...]


Step = Probe | Pause | Query
Nap = Generator[Step, Any, bool]


def nap(listener: Listener, waiter: Waiter, timeout: float | None, stop: Stop) -> Nap:
    """Sleep until it is worth looking: True; or until *timeout* has passed or sleeping has ended: False."""
    waiters = listener.waiters
    deadline = None if timeout is None else monotonic() + timeout
    if waiters.missing(waiter) and (yield Pause(_BUSY if timeout is None else min(_BUSY, timeout))):
        waiter.ring()  # What it rang for is seen to below.
    while not (listener.closing or stop.is_set):
        waiter.begin()
        pause: float | None = _AFTER_AN_ERROR
        due = None
        known = waiters.registrations(waiter)
        missing, doubtful = waiters.missing(waiter), waiters.under_way(waiter)
        try:
            outlook: Outlook = yield waiter.probe
            waiter.seen = outlook
            if outlook.ready:
                return True
            due = outlook.delay
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
            pass  # The server is away for a moment.
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
        if waiter.told if rang else seconds == due is not None:
            return True
    return False

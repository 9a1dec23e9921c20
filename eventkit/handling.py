"""The outcome of a task, by how the work on it ends.

`Retry`, `Snooze` and `Permanent` choose an outcome; any other `Exception` means another attempt, and a `BaseException`
(a shutdown, a cancellation) releases the task without counting the attempt.
"""

import logging
import traceback
from datetime import timedelta

from . import checks
from .operations import Operation, finish
from .values import Task

logger = logging.getLogger("eventkit")


class Retry(Exception):
    """Raised in `handling`: retry after *delay* seconds, or by the queue's policy."""

    def __init__(self, delay: float | timedelta | None = None, error: str | None = None) -> None:
        super().__init__(error or "another attempt was requested")
        self.delay = delay


class Snooze(Exception):
    """Raised in `handling`: put the task back for *delay* seconds, without counting the attempt."""

    def __init__(self, delay: float | timedelta) -> None:
        super().__init__("another time was requested")
        self.delay = delay


class Permanent(Exception):
    """Raised in `handling`: no further attempt can succeed; the task is a dead letter now."""


def outcome(task: Task[object], error: BaseException | None, done: Operation[bool] | None = None) -> Operation[bool]:
    """Return the operation for *task*, whose work has ended with *error*, or successfully: then *done*, or an ack."""
    if error is None:
        return done or finish.Ack(task.id, task.token)
    if not isinstance(error, Exception):
        return finish.Release(task.id, task.token)
    if isinstance(error, Permanent):
        return finish.Fail(task.id, task.token, checks.text(str(error)))
    if isinstance(error, Snooze):
        return finish.Snooze(task.id, task.token, checks.milliseconds("delay", error.delay))
    text = str(error) if isinstance(error, Retry) else trace(error)
    delay = None
    if isinstance(error, Retry) and error.delay is not None:
        delay = checks.milliseconds("delay", error.delay)
    return finish.Retry(task.id, task.token, delay, checks.text(text))


def trace(error: BaseException) -> str:
    """Return the traceback of *error* from where it leaves this library, whose own frames are of no use."""
    step = error.__traceback__
    while step is not None and step.tb_frame.f_globals.get("__name__", "").startswith("eventkit."):
        step = step.tb_next
    return "".join(traceback.format_exception(type(error), error, step or error.__traceback__))


def report(task: Task[object], error: BaseException | None, still_ours: bool) -> None:
    """Log failures and lost leases, for the operator of the worker."""
    if isinstance(error, Exception) and not isinstance(error, Retry | Permanent | Snooze):
        logger.warning("task %s of queue %r failed in attempt %s", task.id, task.queue, task.attempt, exc_info=error)
    if not still_ours:
        logger.warning("the lease of task %s of queue %r had run out when its work ended", task.id, task.queue)


def first_beat(task: Task[object], now: float) -> float:
    """Return the seconds until the lease of *task* should be extended, at *now* seconds since 1970.

    The local clock only chooses the time; the database decides whether the lease is still held.
    """
    left = task.lease_expires_ms / 1000 - now
    return max(0.0, min(left, task.lease_ms / 1000)) / 3

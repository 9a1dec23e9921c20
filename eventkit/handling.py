"""The outcome of a task, by how the work on it ends.

`Retry`, `Snooze` and `Permanent` choose an outcome; any other `Exception` means another attempt, and a `BaseException`
(a shutdown, a cancellation) releases the task without counting the attempt.
"""

import logging
import traceback
from datetime import timedelta
from typing import Any

from . import checks
from .operations import Operation, finish
from .retry import Policy, delay_after, encode
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

    reason = "failed"
    """The reason of the dead letter."""


def outcome(task: Task[object], error: BaseException | None, done: Operation[bool] | None = None) -> Operation[bool]:
    """Return the operation for *task*, whose work has ended with *error*, or successfully: then *done*, or an ack."""
    if error is None:
        return done or finish.Ack(task.id, task.token)
    if not isinstance(error, Exception):
        return finish.Release(task.id, task.token)
    return failure(task, error)


def failure(
    task: Task[object], error: BaseException, retries: int | None = None, backoff: Policy | None = None
) -> Operation[bool]:
    """Return the operation for *task*, whose run failed with *error*; a declaration may limit *retries* and pauses."""
    if isinstance(error, Snooze):
        return finish.Snooze(task.id, task.token, _milliseconds(error.delay))
    text = explained(error)
    if isinstance(error, Permanent):
        return finish.Fail(task.id, task.token, text, error.reason)
    if retries is not None and task.attempt > retries:
        # The row of a task that was enqueued without its declaration may allow more attempts.
        return finish.Fail(task.id, task.token, text, "exhausted")
    return finish.Retry(task.id, task.token, pause(error, task.attempt, backoff), text)


def pause(error: BaseException, attempt: int, backoff: Policy | None) -> int | None:
    """Return the milliseconds between *attempt*, which failed with *error*, and the next; None for the queue's."""
    if isinstance(error, Retry) and error.delay is not None:
        return _milliseconds(error.delay)
    return None if backoff is None else delay_after(attempt, encode(backoff))


def explained(error: BaseException) -> str:
    """Return the text of *error* to store: with a traceback, unless it was raised to choose an outcome."""
    return checks.text(str(error) if isinstance(error, Retry | Permanent) else trace(error))


def _milliseconds(delay: Any) -> int:
    """Return *delay* within the limits, and 0 for one that is no number, so that every task can be put back."""
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if not isinstance(seconds, int | float) or seconds != seconds:
        return 0
    return round(min(max(seconds * 1000, 0), checks.FOREVER))


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

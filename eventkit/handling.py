"""What becomes of a task when the work on it ends.

An exception is a message to the queue: `Retry`, `Snooze` and `Permanent` say what to do, any other `Exception` means
another attempt, and what is no `Exception` (a shutdown, a cancellation) costs the task nothing.
"""

import logging
import traceback
from datetime import timedelta

from . import arguments
from .operations import Operation, finish
from .records import Task

logger = logging.getLogger("eventkit")


class Retry(Exception):
    """Raised in `handling`: try again after *delay* seconds, or when the queue's policy says."""

    def __init__(self, delay: float | timedelta | None = None, error: str | None = None) -> None:
        super().__init__(error or "another attempt was asked for")
        self.delay = delay


class Snooze(Exception):
    """Raised in `handling`: not now, but after *delay* seconds; the attempt is given back."""

    def __init__(self, delay: float | timedelta) -> None:
        super().__init__("another time was asked for")
        self.delay = delay


class Permanent(Exception):
    """Raised in `handling`: no further attempt can succeed; the task is a dead letter now."""


def outcome(task: Task[object], error: BaseException | None, done: Operation[bool] | None = None) -> Operation[bool]:
    """What to tell the database of *task*, whose work has ended with *error*, or well: then *done*, or an ack."""
    if error is None:
        return done or finish.Ack(task.id, task.token)
    if not isinstance(error, Exception):
        return finish.Release(task.id, task.token)
    if isinstance(error, Permanent):
        return finish.Fail(task.id, task.token, arguments.text(str(error)))
    if isinstance(error, Snooze):
        return finish.Snooze(task.id, task.token, arguments.milliseconds("delay", error.delay))
    text = str(error) if isinstance(error, Retry) else trace(error)
    delay = None
    if isinstance(error, Retry) and error.delay is not None:
        delay = arguments.milliseconds("delay", error.delay)
    return finish.Retry(task.id, task.token, delay, arguments.text(text))


def trace(error: BaseException) -> str:
    """The traceback of *error* from where it leaves this library, whose own steps tell nobody what to mend."""
    step = error.__traceback__
    while step is not None and step.tb_frame.f_globals.get("__name__", "").startswith("eventkit."):
        step = step.tb_next
    return "".join(traceback.format_exception(type(error), error, step or error.__traceback__))


def report(task: Task[object], error: BaseException | None, still_ours: bool) -> None:
    """Log what whoever runs the worker should know."""
    if isinstance(error, Exception) and not isinstance(error, Retry | Permanent | Snooze):
        logger.warning("task %s of queue %r failed in attempt %s", task.id, task.queue, task.attempt, exc_info=error)
    if not still_ours:
        logger.warning("task %s of queue %r was no longer ours when its work ended", task.id, task.queue)


def first_beat(task: Task[object], now: float) -> float:
    """Seconds until the lease of *task* should be extended, at *now* seconds since 1970.

    Our clock only chooses the moment; whether the lease still stands is for the database to say.
    """
    left = task.lease_expires_ms / 1000 - now
    return max(0.0, min(left, task.lease_ms / 1000)) / 3

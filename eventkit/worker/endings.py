"""What becomes of tasks when their run ends: it is counted, logged, and the database is told."""

import asyncio
import logging
from collections.abc import Callable
from time import monotonic
from typing import Any

from .. import arguments
from ..app.running import NO_RESULT, Again, Dead, Done, Outcome, Refused, Snoozed, failed, succeeded
from ..codec import encode_json
from ..operations import finish
from ..operations.result import SaveTaskResult
from ..records import Task
from .acks import Acks
from .failures import CRASHED, Crashed, Timeout
from .hooks import Hooks
from .leases import Leases
from .metrics import Metrics
from .routines import Routine
from .run import CANCELLED, SHUTDOWN, TIMEOUT, Run, fields

logger = logging.getLogger("eventkit.worker")


class Endings:
    """The end of each run of a worker.  *leave* is called when a function wants the program to end."""

    def __init__(
        self,
        acks: Acks,
        leases: Leases,
        hooks: Hooks,
        metrics: Metrics,
        largest: int,
        leave: Callable[[], None],
    ) -> None:
        self._acks = acks
        self._leases = leases
        self._hooks = hooks
        self._ended = metrics.ended
        self._largest = largest
        self._leave = leave

    def returned(self, run: Run, result: Any) -> None:
        """The function has returned."""
        routine = run.routine
        if run.span is not None:
            run.span.end(None)
        routine.seconds.observe(monotonic() - run.began)
        if run.stopped == CANCELLED:
            routine.ended(CANCELLED).value += 1
            return
        quiet = (result is None and routine.silent) or routine.batch > 1
        for task in run.tasks:
            text = None
            if not quiet:
                outcome = succeeded(routine.declaration, result, self._largest)
                if not isinstance(outcome, Done):
                    self._tell(run, task, outcome, None)
                    continue
                if outcome.result is not NO_RESULT:
                    text = encode_json(outcome.result)
            if not run.settled:
                self._acks.done(task, text)
            elif text is None:
                self._leases.drop(task)
            else:
                self._acks.tell(task, SaveTaskResult(encode_json(task.id), text, task.queue))
            routine.succeeded.value += 1
            if self._hooks.any_success or routine.declaration.on_success:
                self._hooks.succeeded(run, task, result)

    def raised(self, run: Run, error: BaseException) -> None:
        """The function has ended with *error*."""
        routine = run.routine
        if run.span is not None:
            run.span.end(error)
        routine.seconds.observe(monotonic() - run.began)
        if isinstance(error, KeyboardInterrupt | SystemExit):
            self._leave()
        # An async function may fail of something else while it is being stopped, and that is then what it failed of.
        by_us = not routine.inline or isinstance(error, asyncio.CancelledError)
        if run.stopped == TIMEOUT and by_us and routine.timeout is not None:
            error = Timeout(routine.timeout)
        for task in run.tasks:
            if run.stopped == CANCELLED:
                routine.ended(CANCELLED).value += 1
            elif run.settled:
                logger.error(
                    "%s failed after its task %s was done",
                    routine.name,
                    task.id,
                    exc_info=error,
                    extra=fields(task, routine),
                )
                self._leases.drop(task)
                routine.succeeded.value += 1
            elif run.stopped == SHUTDOWN and by_us:
                self.give_back(task, routine)
            else:
                self._failed(run, task, error)

    def refused(self, task: Task[Any], routine: Routine | None, error: Refused) -> None:
        """The task cannot be run at all."""
        self._ended.of(task.queue, routine.name if routine else "", "dead").value += 1
        logger.error("task %s of queue %r is dead: %s", task.id, task.queue, error, extra=fields(task, routine))
        self._acks.tell(task, finish.Fail(task.id, task.token, arguments.text(str(error)), error.reason))

    def give_back(self, task: Task[Any], routine: Routine) -> None:
        """The task was not run, or not to its end, and that is not its fault."""
        routine.ended("released").value += 1
        self._acks.tell(task, finish.Release(task.id, task.token))

    def _failed(self, run: Run, task: Task[Any], error: BaseException) -> None:
        declaration = run.routine.declaration
        if isinstance(error, Crashed) and declaration.on_crash == "fail":
            error = Refused(f"{CRASHED}: {error}")
        self._tell(run, task, failed(declaration, task, error), error)

    def _tell(self, run: Run, task: Task[Any], outcome: Outcome, error: BaseException | None) -> None:
        routine = run.routine
        name, operation = _told(task, outcome)
        text = outcome.error if isinstance(outcome, Dead | Again) else ""
        if name == "dead":
            logger.error("%s: task %s is dead: %s", routine.name, task.id, text, extra=fields(task, routine))
        elif name == "retried":
            logger.warning(
                "%s: task %s failed in attempt %s: %s",
                routine.name,
                task.id,
                task.attempt,
                text,
                extra=fields(task, routine),
            )
        routine.ended(name).value += 1
        self._acks.tell(task, operation)
        if name != "snoozed" and (self._hooks.any_failure or routine.declaration.on_failure):
            self._hooks.failed(run, task, error if error is not None else Refused(text))


def _told(task: Task[Any], outcome: Outcome) -> tuple[str, Any]:
    """How metrics call *outcome*, and how the database is told."""
    match outcome:
        case Snoozed(delay):
            return "snoozed", finish.Snooze(task.id, task.token, _pause(delay))
        case Dead(error, reason):
            return "dead", finish.Fail(task.id, task.token, error, reason)
        case Again(delay, error):
            pause = None if delay is None else _pause(delay)
            return ("dead" if task.attempt >= task.max_attempts else "retried"), finish.Retry(
                task.id, task.token, pause, error
            )
        case _:
            raise AssertionError(f"{outcome} is no failure")


def _pause(delay: float) -> int:
    """*delay* in milliseconds; what is no delay at all must not keep the task from being put back."""
    return round(min(max(delay, 0.0), arguments.FOREVER / 1000) * 1000) if delay == delay else 0

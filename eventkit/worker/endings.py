"""The end of a run: metrics, logs, hooks of the application, and the outcome that the database stores."""

import asyncio
import inspect
import logging
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

from .. import checks
from ..app.outcome import NO_RESULT, Again, Dead, Done, Outcome, Refused, Snoozed, failed, succeeded
from ..app.registry import Hook, Registry
from ..codec import encode_json
from ..operations import finish
from ..operations.coordination import SaveTaskResult
from ..values import Task
from .leases import Acks, Leases
from .metrics import Metrics
from .pools import Threads
from .run import CANCELLED, CRASHED, SHUTDOWN, TIMEOUT, Crashed, Kits, Routine, Run, Timeout, fields

logger = logging.getLogger("eventkit.worker")


class Hooks:
    """The calls of hooks, once each, concurrently with all other work.

    A hook that fails is logged, and has no other effect.
    """

    def __init__(self, app: Registry, kits: Kits, threads: Threads) -> None:
        self._success = app.success_hooks
        self._failure = app.failure_hooks
        self._kits = kits
        self._threads = threads
        self._calls: set[asyncio.Task[None]] = set()
        self.any_success = bool(self._success)
        self.any_failure = bool(self._failure)

    def succeeded(self, run: Run, task: Task[Any], result: Any) -> None:
        """Call the hooks of a *task* that succeeded."""
        self._begin((*run.routine.declaration.on_success, *self._success), run, task, result)

    def failed(self, run: Run, task: Task[Any], error: BaseException) -> None:
        """Call the hooks of a *task* whose run failed."""
        self._begin((*run.routine.declaration.on_failure, *self._failure), run, task, error)

    async def ended(self) -> None:
        """Wait until no hook is running."""
        while self._calls:
            await asyncio.wait(self._calls)

    def _begin(self, hooks: tuple[Hook, ...], run: Run, task: Task[Any], outcome: Any) -> None:
        context = run.context or self._kits.context(task, run.routine.inline)
        call = asyncio.ensure_future(self._call(hooks, run, context, outcome))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _call(self, hooks: tuple[Hook, ...], run: Run, context: Any, outcome: Any) -> None:
        for hook in hooks:
            try:
                if inspect.iscoroutinefunction(hook):
                    await hook(context, outcome)
                else:
                    await self._threads.call(partial(hook, context, outcome))
            except Exception:
                more = fields(context.task, run.routine)
                logger.exception("a hook of %s failed: %r", run.routine.name, hook, extra=more)


class Endings:
    """The end of each run of a worker.  *leave* is called when a function raises an exit."""

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
        """Process the return of a function."""
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
                    self._record(run, task, outcome, None)
                    continue
                if outcome.result is not NO_RESULT:
                    text = encode_json(outcome.result)
            if not run.settled:
                self._acks.done(task, text)
            elif text is None:
                self._leases.drop(task)
            else:
                self._acks.record(task, SaveTaskResult(encode_json(task.id), text, task.queue))
            routine.succeeded.value += 1
            if self._hooks.any_success or routine.declaration.on_success:
                self._hooks.succeeded(run, task, result)

    def raised(self, run: Run, error: BaseException) -> None:
        """Process the *error* that a function has raised."""
        routine = run.routine
        if run.span is not None:
            run.span.end(error)
        routine.seconds.observe(monotonic() - run.began)
        if isinstance(error, KeyboardInterrupt | SystemExit):
            self._leave()
        # An async function that raises another error while it is being stopped has failed with that error.
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
        """Mark a task dead that cannot be run."""
        self._ended.of(task.queue, routine.name if routine else "", "dead").value += 1
        logger.error("task %s of queue %r is dead: %s", task.id, task.queue, error, extra=fields(task, routine))
        self._acks.record(task, finish.Fail(task.id, task.token, checks.text(str(error)), error.reason))

    def give_back(self, task: Task[Any], routine: Routine) -> None:
        """Release a task that did not run to its end for a reason that is not its fault."""
        routine.ended("released").value += 1
        self._acks.record(task, finish.Release(task.id, task.token))

    def _failed(self, run: Run, task: Task[Any], error: BaseException) -> None:
        declaration = run.routine.declaration
        if isinstance(error, Crashed) and declaration.on_crash == "fail":
            error = Refused(f"{CRASHED}: {error}")
        self._record(run, task, failed(declaration, task, error), error)

    def _record(self, run: Run, task: Task[Any], outcome: Outcome, error: BaseException | None) -> None:
        routine = run.routine
        name, operation = _operation_of(task, outcome)
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
        self._acks.record(task, operation)
        if name != "snoozed" and (self._hooks.any_failure or routine.declaration.on_failure):
            self._hooks.failed(run, task, error if error is not None else Refused(text))


def _operation_of(task: Task[Any], outcome: Outcome) -> tuple[str, Any]:
    """Return the outcome's name in metrics, and the operation that stores it."""
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
    """Return *delay* in milliseconds; 0 for NaN, so that the task can be put back."""
    return round(min(max(delay, 0.0), checks.FOREVER / 1000) * 1000) if delay == delay else 0

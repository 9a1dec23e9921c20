"""The end of a run: what the database stores, metrics, logs, and hooks of the application."""

import asyncio
import logging
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..app.declarations import Hook, Refused
from ..codec import encode_json
from ..handling import Retry, failure
from ..operations import Operation, finish
from ..operations.claim import AckMany
from ..operations.coordination import FinishMany, SaveTaskResult, TaskResult
from ..operations.finish import ReleaseMany
from ..values import Task
from .claims import Leases
from .lifecycle import Shared
from .metrics import end_span
from .pools import Crashed

if TYPE_CHECKING:
    from .executor import Routine, Run

logger = logging.getLogger("eventkit.worker")

CRASHED = "CRASHED"
"""The beginning of the error of a task that has crashed its process, and is not to run again."""

CANCELLED, TIMEOUT, SHUTDOWN = "cancelled", "timeout", "shutdown"
"""The reasons to stop a run: its task was deleted or lost; it takes too long; the worker ends."""


class Timeout(Retry):
    """The run took longer than its declaration allows."""

    code = "TIMEOUT"


def fields(task: Task[Any], routine: "Routine | None") -> dict[str, Any]:
    """Return the fields of log records about *task*; the name is empty if it has no declaration."""
    name = "" if routine is None else routine.name
    return {"task_id": task.id, "task_name": name, "queue": task.queue, "attempt": task.attempt}


def log(level: int, task: Task[Any], routine: "Routine", text: str, *args: Any, **more: Any) -> None:
    """Log a sentence about *task*, which begins with its name and its id."""
    logger.log(level, f"%s: task %s {text}", routine.name, task.id, *args, extra=fields(task, routine), **more)


_AT_ONCE = 1000
"""The maximum number of tasks that are acked in one transaction."""


class Acks:
    """Outcomes on their way to the database.

    One call is in progress at a time; outcomes that arrive meanwhile go into the next.  So a task that ends alone is
    acked at once, and batches grow with the load.  Unsaved outcomes are saved when the database is available again; if
    the process dies before, their tasks run again.
    """

    def __init__(self, shared: Shared, leases: Leases) -> None:
        self._connection = shared.connection
        self._recovery = shared.recovery
        self._leases = leases
        self._done: list[Task[Any]] = []
        self._results: dict[int, TaskResult] = {}
        self._others: list[tuple[Operation[Any], Sequence[Task[Any]]]] = []
        self._saving: asyncio.Task[None] | None = None
        self._batches = shared.metrics.acks.of()
        self._unsaid = shared.metrics.unsaid.of()

    def __len__(self) -> int:
        return len(self._done) + len(self._others)

    def done(self, task: Task[Any], result: str | None = None, ttl: int | None = None) -> None:
        """Ack *task*, with a *result* as JSON text, to be kept for *ttl* milliseconds, or without one."""
        self._done.append(task)
        if result is not None:
            self._results[task.id] = (task.id, result, task.queue, ttl)
        self._begin()

    def record(self, operation: Operation[Any], *tasks: Task[Any]) -> None:
        """Execute *operation*, which is another outcome of *tasks*."""
        self._others.append((operation, tasks))
        self._begin()

    def release(self, tasks: list[Task[Any]]) -> None:
        """Release tasks that were not started, all of them at once."""
        if tasks:
            self.record(ReleaseMany(sorted((task.id, task.token) for task in tasks)), *tasks)

    async def settled(self) -> None:
        """Wait until all outcomes are saved."""
        while self._saving is not None:
            await asyncio.wait({self._saving})

    def abandon(self) -> None:
        """Save nothing more: the leases of the remaining tasks will lapse."""
        if self._saving is not None:
            self._saving.cancel()

    def _begin(self) -> None:
        if self._saving is None:
            self._saving = asyncio.ensure_future(self._save())

    async def _save(self) -> None:
        try:
            while self._done or self._others:
                done, self._done = self._done[:_AT_ONCE], self._done[_AT_ONCE:]
                others, self._others = self._others, []
                self._unsaid.value = len(done) + len(others) + len(self._done)
                if not others:
                    await self._ack(done)
                else:
                    acks = [self._ack(done)] if done else []
                    await asyncio.gather(*acks, *(self._execute(*one) for one in others))
            self._unsaid.value = 0
        finally:
            self._saving = None

    async def _ack(self, tasks: list[Task[Any]]) -> None:
        held = sorted([(task.id, task.token) for task in tasks])
        results = [row for task in tasks if (row := self._results.pop(task.id, None))] if self._results else []
        careful = any([task.key is not None for task in tasks])
        operation = FinishMany(held, sorted(results), careful) if careful or results else AckMany(held)
        await self._execute(operation, tasks)
        self._batches.value += 1

    async def _execute(self, operation: Operation[Any], tasks: Sequence[Task[Any]]) -> None:
        """Execute *operation*; if the database refuses it, the leases will lapse."""
        try:
            answer = await self._recovery.through(self._connection.execute, operation)
        except Exception:
            ids = ", ".join(str(task.id) for task in tasks)
            logger.exception("the outcome of tasks %s could not be saved: they will run again", ids)
        else:
            if answer is False or (isinstance(answer, list) and len(answer) < len(tasks)):
                ours = set(answer or ())
                for task in tasks:
                    if task.id not in ours:
                        text = "the lease of task %s of queue %r had run out when its run ended"
                        logger.warning(text, task.id, task.queue)
        for task in tasks:
            self._leases.drop(task)


class Endings:
    """The end of each run of a worker.

    Hooks are called once for each outcome, concurrently with all other work; one that fails is only logged.
    """

    def __init__(self, shared: Shared, acks: Acks, leases: Leases) -> None:
        self._shared = shared
        self._acks = acks
        self._leases = leases
        self._largest = shared.connection.max_payload
        self.calls: set[asyncio.Task[None]] = set()
        """The calls of hooks in progress."""

    def returned(self, run: "Run", result: Any) -> None:
        """Process the return of a function."""
        routine = run.routine
        if run.span is not None:
            end_span(run.span, None)
        routine.seconds.observe(monotonic() - run.began)
        if run.stopped == CANCELLED:
            routine.ended[CANCELLED].value += 1
            return
        try:
            text = routine.declaration.result(result, self._largest)
        except Refused as error:
            self._failed(run, error, False)
            return
        for task in run.tasks:
            if not run.settled:
                self._acks.done(task, text, routine.declaration.result_ttl)
            elif text is None:
                self._leases.drop(task)
            else:
                ttl = routine.declaration.result_ttl
                self._acks.record(SaveTaskResult(encode_json(task.id), text, task.queue, ttl), task)
            routine.succeeded.value += 1
            if routine.on_success:
                self._call(routine.on_success, run, task, result)

    def raised(self, run: "Run", error: BaseException) -> None:
        """Process the *error* that a function has raised."""
        routine = run.routine
        if isinstance(error, KeyboardInterrupt | SystemExit):
            self._shared.stop()
        # An async function that raises another error while it is being stopped has failed with that error.
        by_us = not routine.inline or isinstance(error, asyncio.CancelledError)
        if run.stopped == TIMEOUT and by_us and routine.timeout is not None:
            error = Timeout(error=f"timed out after {routine.timeout:g} s")
        if run.span is not None:
            end_span(run.span, error)
        routine.seconds.observe(monotonic() - run.began)
        self._failed(run, error, by_us)

    def refused(self, task: Task[Any], routine: "Routine | None", error: Refused) -> None:
        """Mark a task dead that cannot be run."""
        self._shared.metrics.ended.of(task.queue, routine.name if routine else "", "dead").value += 1
        logger.error("task %s of queue %r is dead: %s", task.id, task.queue, error, extra=fields(task, routine))
        self._acks.record(failure(task, error), task)

    def give_back(self, task: Task[Any], routine: "Routine") -> None:
        """Release a task that did not run to its end for a reason that is not its fault."""
        routine.ended["released"].value += 1
        self._acks.record(finish.Release(task.id, task.token), task)

    async def hooks_ended(self) -> None:
        """Wait until no hook is running."""
        while self.calls:
            await asyncio.wait(self.calls)

    def _failed(self, run: "Run", error: BaseException, by_us: bool) -> None:
        """Process the failure of a run; *by_us* says that it is how a stopped run ends."""
        routine = run.routine
        for task in run.tasks:
            if run.stopped == CANCELLED:
                routine.ended[CANCELLED].value += 1
            elif run.settled:
                log(logging.ERROR, task, routine, "was done before its function failed", exc_info=error)
                self._leases.drop(task)
                routine.succeeded.value += 1
            elif run.stopped == SHUTDOWN and by_us:
                self.give_back(task, routine)
            else:
                self._record(run, task, error)

    def _record(self, run: "Run", task: Task[Any], error: BaseException) -> None:
        routine, declaration = run.routine, run.routine.declaration
        if isinstance(error, Crashed) and declaration.on_crash == "fail":
            error = Refused(f"{CRASHED}: {error}")
        final = declaration.is_final(error)
        operation = failure(task, error, declaration.max_attempts, declaration.backoff, final)
        outcome = "snoozed"
        if isinstance(operation, finish.Retry) and task.attempt < task.max_attempts:
            outcome = "retried"
            log(logging.WARNING, task, routine, "failed in attempt %s: %s", task.attempt, operation.error)
        elif isinstance(operation, finish.Retry | finish.Fail):
            outcome = "dead"
            log(logging.ERROR, task, routine, "is dead: %s", operation.error)
        routine.ended[outcome].value += 1
        self._acks.record(operation, task)
        if routine.on_failure and outcome != "snoozed":
            self._call(routine.on_failure, run, task, error)

    def _call(self, hooks: tuple[Hook, ...], run: "Run", task: Task[Any], outcome: Any) -> None:
        context = run.context or run.routine.context_of(task)
        call = asyncio.ensure_future(self._call_all(hooks, run.routine, context, outcome))
        self.calls.add(call)
        call.add_done_callback(self.calls.discard)

    async def _call_all(self, hooks: tuple[Hook, ...], routine: "Routine", context: Any, outcome: Any) -> None:
        for hook in hooks:
            try:
                await self._shared.threads.call(hook, context, outcome)
            except Exception:
                logger.exception("a hook of %s failed: %r", routine.name, hook, extra=fields(context.task, routine))

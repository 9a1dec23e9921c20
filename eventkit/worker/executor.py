"""Running tasks: from a claimed task to a call, in as many slots as the worker has."""

import asyncio
import contextvars
import logging
import sys
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any

from ..app.declarations import OutboxDeclaration, Refused, TaskDeclaration
from ..app.task import AsyncTaskContext, TaskContext
from ..outbox import called
from ..values import Task
from .claims import Leases
from .endings import CANCELLED, CRASHED, SHUTDOWN, TIMEOUT, Acks, Endings, fields, log
from .lifecycle import Shared
from .metrics import OUTCOMES, begin_span

logger = logging.getLogger("eventkit.worker")

_SLICE = 0.005
"""Seconds after which functions that do not wait yield to the event loop."""

GRACE = 2.0
"""Seconds that stopped runs have to end."""

_ENDED = object()
"""The value of the first step of an async function that ended in it."""


class Routine:
    """The code, the settings and the counters of the tasks with one name."""

    def __init__(self, declaration: TaskDeclaration, shared: Shared) -> None:
        app, metrics, labels = shared.app, shared.metrics, (declaration.queue, declaration.name)
        self.declaration = declaration
        self.name = declaration.name
        self.function: Callable[..., Any] = declaration.function
        self.batch = declaration.batch
        self.timeout = declaration.timeout
        self.apart = declaration.isolation == "process"
        self.inline = declaration.is_async
        self.context = declaration.signature.context
        self.on_success = (*declaration.on_success, *app.success_hooks)
        self.on_failure = (*declaration.on_failure, *app.failure_hooks)
        if isinstance(declaration, OutboxDeclaration):
            deliver = declaration.function if self.inline else partial(called, declaration.function)
            self.function = lambda message: deliver(message)  # Its parameter may have any name.
            self.on_success = self.on_failure = ()  # The hooks of an app are for its tasks.
        self.ended = {outcome: metrics.ended.of(*labels, outcome) for outcome in OUTCOMES}
        self.succeeded = self.ended["succeeded"]
        self.seconds = metrics.seconds.of(*labels)
        self._kit: Any = shared.kit if declaration.is_async else shared.blocking

    def context_of(self, task: Task[Any]) -> Any:
        """Return a context for *task*."""
        return AsyncTaskContext(task, self._kit) if self.inline else TaskContext(task, self._kit)


@dataclass(slots=True, eq=False)
class Run:
    """One call of a task's function, for one task or a batch of them, from the claim, *got* at a time, to its end."""

    tasks: list[Task[Any]]
    routine: Routine
    got: float
    context: Any = None
    runner: "asyncio.Task[None] | None" = None
    timer: asyncio.TimerHandle | None = None
    span: Any = None
    stopped: str | None = None
    over: bool = False
    """True if the end was reported already, although the function still runs."""
    stuck: bool = False
    """True if the function still runs although it was stopped, and keeps its slot."""
    settled_apart: bool = False
    began: float = 0.0
    arguments: dict[str, Any] = field(init=False)
    coroutine: Coroutine[Any, Any, Any] = field(init=False)
    variables: contextvars.Context = field(init=False)

    @property
    def settled(self) -> bool:
        """True if the function has acked its task itself, in a transaction of its own."""
        return self.settled_apart or (self.context is not None and self.context.settled)

    def expired(self, task: Task[Any]) -> bool:
        """Return whether *task* has expired: by the database's clock at the claim, plus the time since then."""
        if task.expires_ms is None:
            return False
        claimed_ms = task.lease_expires_ms - task.lease_ms
        return claimed_ms + (monotonic() - self.got) * 1000 >= task.expires_ms


@types.coroutine
def go_on(
    coroutine: Coroutine[Any, Any, Any], variables: contextvars.Context, yielded: Any
) -> Generator[Any, Any, Any]:
    """Run the rest of *coroutine*, whose first step has *yielded* a future, in the same asyncio task.

    Each step has the context variables of the first one.
    """
    while True:
        try:
            answer = yield yielded
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:
            step: Callable[[Any], Any] = coroutine.throw
            answer = error
        else:
            step = coroutine.send
        try:
            yielded = variables.run(step, answer)
        except StopIteration as end:
            return end.value


class Executor:
    """The execution of tasks in a limited number of slots.

    A runner, which is an asyncio task, starts async functions one after another.  Most runners start many, because a
    function that does not wait ends in its first step.  Once a function waits, its runner is its own, and another
    runner starts the remaining ones; so each function seems to have had an asyncio task to itself from the start.
    """

    def __init__(self, shared: Shared) -> None:
        metrics, most = shared.metrics, shared.settings.concurrency
        self._shared = shared
        self._routines = {name: Routine(task, shared) for name, task in shared.app.tasks.items()}
        self._outboxes = {one.queue: Routine(one, shared) for one in shared.app.outboxes}
        self.batches: dict[str, int] = {}
        """For each queue, how many of its tasks are sure to fit into one call."""
        for routine in self._routines.values():
            queue = routine.declaration.queue
            self.batches[queue] = min(routine.batch, self.batches.get(queue, routine.batch))
        self.leases = Leases(shared.connection, self.lose)
        self.acks = Acks(shared, self.leases)
        self.endings = Endings(shared, self.acks, self.leases)
        self._most = most
        self._waiting: deque[Run] = deque()
        self._held_up: deque[Run] = deque()
        self._running: set[Run] = set()
        self._active = 0
        self._driving = False
        self._runners: set[asyncio.Task[None]] = set()
        self._variables = contextvars.copy_context()
        self._running_gauge, self._waiting_gauge = metrics.running.of(), metrics.waiting.of()
        self._stuck_gauge = metrics.stuck.of()
        metrics.slots.of().value = most
        self.changed = asyncio.Event()
        """Set whenever there may be more room than before."""

    @property
    def in_hand(self) -> int:
        """The number of runs that have not ended."""
        return self._active + len(self._waiting) + len(self._held_up)

    @property
    def stuck(self) -> list[Run]:
        """The runs of async functions that have not ended."""
        return [run for run in self._running if run.runner is not None]

    def take(self, tasks: list[Task[Any]], asked_at: float) -> None:
        """Run *tasks*, which one claim, begun at *asked_at*, has returned."""
        self.leases.add(tasks, asked_at)
        self._waiting.extend(self._runs_of(tasks))
        self._drive()

    def cancel(self, id: int, token: int | None = None) -> None:
        """Stop the run of task *id*, which was deleted, or claimed again after our claim with *token*.

        A batch continues for its other tasks; the outcome of this one is discarded.
        """
        for run in [*self._running, *self._waiting, *self._held_up]:
            for task in [task for task in run.tasks if task.id == id and token in (None, task.token)]:
                logger.info("task %s was cancelled", id, extra=fields(task, run.routine))
                self.leases.drop(task)
                if len(run.tasks) == 1:
                    self._stop(run, CANCELLED)
                else:
                    run.tasks.remove(task)

    def lose(self, task: Task[Any]) -> None:
        """Stop the run of *task*: its lease is over, and another worker may have it."""
        logger.warning("the lease of task %s of queue %r was lost", task.id, task.queue)
        self.cancel(task.id, task.token)

    async def finish(self, seconds: float) -> None:
        """Start no more runs: release waiting tasks, and wait *seconds* for the running ones.

        Then stop and release the rest.  A thread cannot be stopped: its task runs again when the lease has run out.
        """
        self._most = 0
        unbegun = [task for run in (*self._waiting, *self._held_up) if not run.stopped for task in run.tasks]
        self._waiting.clear()
        self._held_up.clear()
        self.acks.release(unbegun)
        if not await self._emptied(seconds):
            logger.warning("%s runs have not ended within %g s and are stopped", self._active, seconds)
            for run in list(self._running):
                self._stop(run, SHUTDOWN)
            await self._emptied(GRACE)
            for run in self._running:
                for task in run.tasks:
                    self.leases.drop(task)

    async def _emptied(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                while self._active:
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            pass
        return not self._active

    def _runs_of(self, tasks: list[Task[Any]]) -> list[Run]:
        got = monotonic()
        if (delivery := self._outboxes.get(tasks[0].queue)) is not None:
            return [Run([task], delivery, got) for task in tasks]
        runs: list[Run] = []
        batches: dict[Routine, list[Task[Any]]] = {}
        for task in tasks:
            try:
                routine = self._routines[task.payload["task"]]
            except (KeyError, TypeError):
                try:
                    self._shared.app.resolve(task.payload)  # It raises the reason.
                except Refused as error:
                    self.endings.refused(task, None, error)
                continue
            if routine.batch == 1:
                runs.append(Run([task], routine, got))
            else:
                batches.setdefault(routine, []).append(task)
        for routine, company in batches.items():
            for begin in range(0, len(company), routine.batch):
                runs.append(Run(company[begin : begin + routine.batch], routine, got))
        return runs

    def _prepare(self, run: Run) -> bool:
        """Prepare the arguments and the context of a run; return False if it has ended already."""
        if run.stopped:
            return False
        routine, declaration = run.routine, run.routine.declaration
        every: list[dict[str, Any]] = []
        good: list[Task[Any]] = []
        for task in run.tasks:
            if run.expired(task):
                # The database's clock decides: the task dies, or is claimed again.
                self.endings.give_back(task, routine)
                continue
            try:
                if task.lapsed and declaration.on_crash == "fail":
                    raise Refused(f"{CRASHED}: an earlier run of {routine.name} did not end")
                every.append(declaration.arguments(task))
            except Refused as error:
                self.endings.refused(task, routine, error)
            else:
                good.append(task)
        if not good:
            return False
        run.tasks = good
        run.arguments = every[0] if routine.batch == 1 else declaration.of_batch(every)
        if routine.context is not None and not routine.apart:
            run.context = routine.context_of(good[0])
            run.arguments[routine.context] = run.context
        return True

    def _drive(self) -> None:
        if self._waiting and not self._driving and self._active < self._most:
            self._driving = True
            runner = asyncio.ensure_future(self._begin_all())
            self._runners.add(runner)
            runner.add_done_callback(self._runners.discard)

    async def _begin_all(self) -> None:
        """Start waiting runs, one after another, until one waits for something."""
        me = asyncio.current_task()
        assert me is not None
        rest_at = monotonic() + _SLICE
        waiting = self._waiting
        # After a function has cancelled its own asyncio task, this runner may start no other.
        while waiting and self._active < self._most and not me.cancelling():
            run = waiting[0]
            for task in [task for task in run.tasks if not self.leases.stands(task)]:
                self.lose(task)  # This process was suspended, and another worker may have started it.
            waiting.popleft()
            if not self._prepare(run):
                continue
            if not run.routine.inline:
                self._send(run)
                continue
            self._active += 1
            yielded = self._begin(run)
            if yielded is not _ENDED:
                self._driving = False
                self._drive()
                await self._continue(run, me, yielded)
                return
            if run.began > rest_at:
                self._report_room()
                await asyncio.sleep(0)
                rest_at = monotonic() + _SLICE
        self._driving = False
        self._report_room()
        self._drive()

    def _begin(self, run: Run) -> Any:
        """Run the first step of an async function; return the future that it waits for, or `_ENDED`."""
        run.began = monotonic()
        variables = run.variables = self._variables.copy()
        if "opentelemetry.trace" in sys.modules:
            run.span = variables.run(begin_span, run.tasks, run.routine.name)
        try:
            run.coroutine = run.routine.function(**run.arguments)
            return variables.run(run.coroutine.send, None)
        except StopIteration as end:
            self.endings.returned(run, end.value)
        except BaseException as error:
            self.endings.raised(run, error)
        self._active -= 1
        return _ENDED

    async def _continue(self, run: Run, runner: "asyncio.Task[None]", yielded: Any) -> None:
        run.runner = runner
        self._started(run)
        try:
            result = await go_on(run.coroutine, run.variables, yielded)
        except GeneratorExit:
            raise
        except BaseException as error:
            if not run.over:
                self.endings.raised(run, error)
        else:
            if not run.over:
                self.endings.returned(run, result)
        finally:
            self._left(run)

    def _send(self, run: Run) -> None:
        routine = run.routine
        if routine.apart and not self._shared.processes.free:
            self._held_up.append(run)
            return
        self._active += 1
        run.began = monotonic()
        variables = self._variables.copy()
        if "opentelemetry.trace" in sys.modules:
            run.span = variables.run(begin_span, run.tasks, routine.name)
        function: Callable[[], Any] = partial(routine.function, **run.arguments)
        call = self._shared.processes.begin(run) if routine.apart else partial(variables.run, function)
        self._started(run)
        self._shared.threads.run(call, partial(self._returned, run))

    def _returned(self, run: Run, result: Any, error: BaseException | None) -> None:
        if run.routine.apart:
            self._shared.processes.end(run)
            if self._held_up:
                self._waiting.appendleft(self._held_up.popleft())
        if not run.over:
            if error is None:
                self.endings.returned(run, result)
            else:
                self.endings.raised(run, error)
        self._left(run)

    def _started(self, run: Run) -> None:
        self._running.add(run)
        if run.routine.timeout is not None:
            left = max(0.0, run.began + run.routine.timeout - monotonic())
            run.timer = asyncio.get_running_loop().call_later(left, self._stop, run, TIMEOUT)

    def _left(self, run: Run) -> None:
        if run.timer is not None:
            run.timer.cancel()
        self._running.discard(run)
        self._active -= 1
        if run.stuck:
            self._count_stuck(-1)
        self._drive()
        self._report_room()

    def _report_room(self) -> None:
        self._running_gauge.value = self._active
        self._waiting_gauge.value = len(self._waiting) + len(self._held_up)
        self.changed.set()

    def _stop(self, run: Run, why: str) -> None:
        if run.stopped or run.over:
            return
        run.stopped = why
        asyncio.get_running_loop().call_later(GRACE, self._outlasted, run)
        if run.context is not None:
            run.context.cancel()
        if run.runner is not None:
            run.runner.cancel()
        elif run.routine.apart:
            self._shared.processes.kill(run)
        elif why == TIMEOUT:
            self._report_timeout(run)

    def _outlasted(self, run: Run) -> None:
        """Count *run* as stuck if it still runs after it was stopped: it keeps its slot until it ends."""
        if run not in self._running or run.stopped == SHUTDOWN:
            return
        run.stuck = True
        for task in run.tasks:
            text = "still runs although it was stopped (%s), and keeps its slot until it ends"
            log(logging.ERROR, task, run.routine, text, run.stopped)
        self._count_stuck(1)
        if run.stopped == TIMEOUT and not run.over:
            self._report_timeout(run)

    def _report_timeout(self, run: Run) -> None:
        """Report *run* as failed while its function still runs; the result is ignored."""
        self.endings.raised(run, asyncio.CancelledError())
        run.over = True

    def _count_stuck(self, change: int) -> None:
        self._stuck_gauge.value += change
        self._shared.readiness.stuck(int(self._stuck_gauge.value), self._shared.settings.concurrency)

"""Doing tasks: those of a worker, as many at once as it has slots."""

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

from ..records import Task
from .acks import Acks
from .endings import Endings
from .failures import Timeout
from .lanes import go_on
from .leases import Leases
from .metrics import Metrics
from .preparation import Preparation
from .processes import Processes
from .readiness import Readiness
from .run import CANCELLED, SHUTDOWN, TIMEOUT, Run, fields
from .spans import begin_span
from .threads import Threads

logger = logging.getLogger("eventkit.worker")

_STINT = 0.005
"""Seconds after which functions that wait for nothing let others have the event loop."""

GRACE = 2.0
"""Seconds for what was stopped to end."""

_ENDED = object()
"""What the first step of an async function comes to if it was the last one."""


class Crew:
    """Does tasks.

    An async function is begun by a lane, an asyncio task that begins one after another.  Most lanes begin many, because
    what waits for nothing ends in its first step.  Once a function does wait, its lane is its own, and another lane
    goes on with the rest; so to the function it looks as if it had had a task to itself from the start.
    """

    def __init__(
        self,
        preparation: Preparation,
        acks: Acks,
        leases: Leases,
        endings: Endings,
        threads: Threads,
        processes: Processes,
        metrics: Metrics,
        readiness: Readiness,
        most: int,
    ) -> None:
        self._preparation = preparation
        self._acks = acks
        self._leases = leases
        self._endings = endings
        self._threads = threads
        self._processes = processes
        self._readiness = readiness
        self._most = self._slots = most
        self._waiting: deque[Run] = deque()
        self._held_up: deque[Run] = deque()
        self._running: set[Run] = set()
        self._active = 0
        self._driving = False
        self._lanes: set[asyncio.Task[None]] = set()
        self._variables = contextvars.copy_context()
        self._running_gauge, self._waiting_gauge = metrics.running.of(), metrics.waiting.of()
        self._stuck_gauge = metrics.stuck.of()
        metrics.slots.of().value = most
        self.changed = asyncio.Event()
        """Set whenever there may be more room than before."""

    @property
    def in_hand(self) -> int:
        """How many runs there are that have not ended."""
        return self._active + len(self._waiting) + len(self._held_up)

    @property
    def stuck(self) -> list[Run]:
        """The runs of async functions that have not ended."""
        return [run for run in self._running if run.lane is not None]

    def take(self, tasks: list[Task[Any]]) -> None:
        """Do *tasks*, which were claimed a moment ago."""
        self._leases.add(tasks)
        self._waiting.extend(self._preparation.runs_of(tasks))
        self._drive()

    def cancel(self, id: int, token: int | None = None) -> None:
        """The task *id* was deleted, or claimed anew since we had it with *token*: end the work on it.

        A batch goes on, because the others of it are still wanted; what became of this one is nobody's any more.
        """
        for run in [*self._running, *self._waiting, *self._held_up]:
            for task in [task for task in run.tasks if task.id == id and token in (None, task.token)]:
                logger.info("task %s was cancelled", id, extra=fields(task, run.routine))
                self._leases.drop(task)
                if len(run.tasks) == 1:
                    self._stop(run, CANCELLED)
                else:
                    run.tasks.remove(task)

    def lose(self, task: Task[Any]) -> None:
        """The lease of *task* is over, and another worker may have it."""
        logger.warning("the lease of task %s of queue %r was lost", task.id, task.queue)
        self.cancel(task.id, task.token)

    async def finish(self, seconds: float) -> None:
        """Begin nothing more: give back what was not begun, and wait for the rest so long.

        What still runs then is stopped and given back.  A thread cannot be stopped: what runs in one is done again when
        its lease has run out.
        """
        self._most = 0
        unbegun = [task for run in (*self._waiting, *self._held_up) if not run.stopped for task in run.tasks]
        self._waiting.clear()
        self._held_up.clear()
        self._acks.release(unbegun)
        if not await self._emptied(seconds):
            logger.warning("%s runs have not ended within %g s and are stopped", self._active, seconds)
            for run in list(self._running):
                self._stop(run, SHUTDOWN)
            await self._emptied(GRACE)
            for run in self._running:
                for task in run.tasks:
                    self._leases.drop(task)

    async def _emptied(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                while self._active:
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            pass
        return not self._active

    def _drive(self) -> None:
        if self._waiting and not self._driving and self._active < self._most:
            self._driving = True
            lane = asyncio.ensure_future(self._begin_all())
            self._lanes.add(lane)
            lane.add_done_callback(self._lanes.discard)

    async def _begin_all(self) -> None:
        """A lane: begin what waits, one after another, until one has to wait itself."""
        me = asyncio.current_task()
        assert me is not None
        rest_at = monotonic() + _STINT
        waiting = self._waiting
        # A function that has cancelled the task it ran in leaves it to nobody else.
        while waiting and self._active < self._most and not me.cancelling():
            run = waiting[0]
            for task in [task for task in run.tasks if not self._leases.stands(task)]:
                self.lose(task)  # This process stood still, and another worker may have begun it.
            waiting.popleft()
            if not self._preparation.prepare(run):
                continue
            if not run.routine.inline:
                self._send(run)
                continue
            self._active += 1
            yielded = self._begin(run)
            if yielded is not _ENDED:
                self._driving = False
                self._drive()
                await self._see_through(run, me, yielded)
                return
            if run.began > rest_at:
                self._note_room()
                await asyncio.sleep(0)
                rest_at = monotonic() + _STINT
        self._driving = False
        self._note_room()
        self._drive()

    def _begin(self, run: Run) -> Any:
        """The first step of an async function: what it waits for, or `_ENDED`."""
        run.began = monotonic()
        variables = run.variables = self._variables.copy()
        run.span = begin_span(run.tasks, run.routine.name, variables)
        try:
            run.coroutine = run.routine.function(**run.arguments)
            return variables.run(run.coroutine.send, None)
        except StopIteration as end:
            self._endings.returned(run, end.value)
        except BaseException as error:
            self._endings.raised(run, error)
        self._active -= 1
        return _ENDED

    async def _see_through(self, run: Run, lane: "asyncio.Task[None]", yielded: Any) -> None:
        """The other steps, in a lane that is the function's own."""
        run.lane = lane
        self._started(run)
        try:
            result = await go_on(run.coroutine, run.variables, yielded)
        except GeneratorExit:
            raise
        except BaseException as error:
            if not run.over:
                self._endings.raised(run, error)
        else:
            if not run.over:
                self._endings.returned(run, result)
        finally:
            self._left(run)

    def _send(self, run: Run) -> None:
        """Have a function that blocks called in a thread, or in a process of its own."""
        routine = run.routine
        if routine.apart and not self._processes.free:
            self._held_up.append(run)
            return
        self._active += 1
        run.began = monotonic()
        variables = self._variables.copy()
        run.span = begin_span(run.tasks, routine.name, variables)
        function: Callable[[], Any] = partial(routine.function, **run.arguments)
        call = self._processes.begin(run) if routine.apart else partial(variables.run, function)
        self._started(run)
        self._threads.run(call, partial(self._came_back, run))

    def _came_back(self, run: Run, result: Any, error: BaseException | None) -> None:
        if run.routine.apart:
            self._processes.end(run)
            if self._held_up:
                self._waiting.appendleft(self._held_up.popleft())
        if not run.over:
            if error is None:
                self._endings.returned(run, result)
            else:
                self._endings.raised(run, error)
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
        self._note_room()

    def _note_room(self) -> None:
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
        if run.lane is not None:
            run.lane.cancel()
        elif run.routine.apart:
            self._processes.kill(run)
        elif why == TIMEOUT:
            self._report_timeout(run)

    def _outlasted(self, run: Run) -> None:
        """Count *run*, which was stopped a while ago, as stuck if it still goes on: it keeps its slot until it ends."""
        if run not in self._running or run.stopped == SHUTDOWN:
            return
        run.stuck = True
        for task in run.tasks:
            logger.error(
                "%s: task %s goes on although it was stopped (%s), and keeps its slot until it ends",
                run.routine.name,
                task.id,
                run.stopped,
                extra=fields(task, run.routine),
            )
        self._count_stuck(1)
        if run.stopped == TIMEOUT and not run.over:
            self._report_timeout(run)

    def _report_timeout(self, run: Run) -> None:
        """Report *run* as failed, although its function goes on: the result of that is ignored."""
        if run.routine.timeout is not None:
            self._endings.raised(run, Timeout(run.routine.timeout))
            run.over = True

    def _count_stuck(self, change: int) -> None:
        self._stuck_gauge.value += change
        self._readiness.stuck(int(self._stuck_gauge.value), self._slots)

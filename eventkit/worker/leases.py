"""The leases of a worker's tasks, and the acks that end them, each in one statement for many tasks."""

import asyncio
import logging
from collections.abc import Callable
from time import monotonic
from typing import Any, NamedTuple

from ..errors import EventkitError, Unavailable
from ..operations import Operation
from ..operations.coordination import AckManyWithResults
from ..operations.finish import AckMany, ExtendMany, FinishMany, ReleaseMany
from ..protocols import AsyncConnection
from ..values import Task
from .lifecycle import Recovery
from .metrics import Metrics

logger = logging.getLogger("eventkit.worker")

_INTERVAL = 0.25
"""The minimum number of seconds between two heartbeats."""


class _Held(NamedTuple):
    """A task; when to extend its lease; and until when it is certainly leased, by the monotonic clock."""

    task: Task[Any]
    due: float
    until: float


class Leases:
    """The leases of a worker's tasks, from the claim until the database has stored their outcomes."""

    def __init__(self, connection: AsyncConnection, lost: Callable[[Task[Any]], None]) -> None:
        self._connection = connection
        self._lost = lost
        self._held: dict[int, _Held] = {}
        self._shortest = 3600.0
        self._shorter = asyncio.Event()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, tasks: list[Task[Any]], asked_at: float) -> None:
        """Keep the leases of *tasks*, which one claim, begun at *asked_at*, has returned."""
        third = tasks[0].lease_ms / 3000
        due, until = asked_at + third, asked_at + 3 * third
        held = self._held
        for task in tasks:
            if task.id in held:
                # This worker has claimed a task again that it had: the earlier lease is over.
                self._lost(held[task.id].task)
            held[task.id] = _Held(task, due, until)
        if third < self._shortest:
            self._shortest = third
            self._shorter.set()

    def drop(self, task: Task[Any]) -> None:
        """Stop extending the lease of *task*."""
        entry = self._held.get(task.id)
        if entry is not None and entry.task.token == task.token:
            del self._held[task.id]

    def stands(self, task: Task[Any]) -> bool:
        """Return whether *task* is certainly still leased, and may be started."""
        entry = self._held.get(task.id)
        return entry is not None and entry.task.token == task.token and monotonic() < entry.until

    async def run(self) -> None:
        """Extend each lease when a third of its time has passed."""
        while True:
            self._shorter.clear()
            try:
                async with asyncio.timeout(max(_INTERVAL, self._shortest / 2)):
                    await self._shorter.wait()
                continue
            except TimeoutError:
                pass
            now = monotonic()
            due: dict[int, list[Task[Any]]] = {}
            for held in self._held.values():
                if held.due <= now:
                    due.setdefault(held.task.lease_ms, []).append(held.task)
            for lease, tasks in due.items():
                await self._extend(lease, tasks)

    async def _extend(self, lease: int, tasks: list[Task[Any]]) -> None:
        held = sorted((task.id, task.token) for task in tasks)
        began = monotonic()
        try:
            ours = set(await self._connection.execute(ExtendMany(held, lease)))
        except Unavailable:
            return  # The next heartbeat tries again.
        except EventkitError:
            return
        due = monotonic() + lease / 3000
        for task in tasks:
            entry = self._held.get(task.id)
            if entry is None or entry.task.token != task.token:
                continue
            if task.id in ours:
                self._held[task.id] = _Held(task, due, began + lease / 1000)
            else:
                del self._held[task.id]
                self._lost(task)


_AT_ONCE = 1000
"""The maximum number of tasks that are acked in one transaction."""


class Acks:
    """Outcomes on their way to the database.

    One call is in progress at a time; outcomes that arrive meanwhile go into the next.  So a task that ends alone is
    acked at once, and batches grow with the load.  Unsaved outcomes are saved when the database is available again; if
    the process dies before, their tasks run again.
    """

    def __init__(self, connection: AsyncConnection, recovery: Recovery, leases: Leases, metrics: Metrics) -> None:
        self._connection = connection
        self._recovery = recovery
        self._leases = leases
        self._done: list[Task[Any]] = []
        self._results: dict[int, tuple[int, str, str]] = {}
        self._others: list[tuple[Task[Any], Operation[Any]]] = []
        self._saving: asyncio.Task[None] | None = None
        self._releasing: set[asyncio.Task[None]] = set()
        self._batches = metrics.acks.of()
        self._unsaid = metrics.unsaid.of()

    def __len__(self) -> int:
        return len(self._done) + len(self._others)

    def done(self, task: Task[Any], result: str | None = None) -> None:
        """Ack *task*, with a *result* as JSON text or without one."""
        self._done.append(task)
        if result is not None:
            self._results[task.id] = (task.id, result, task.queue)
        if self._saving is None:
            self._begin()

    def record(self, task: Task[Any], operation: Operation[Any]) -> None:
        """Execute *operation*, which is another outcome of *task*."""
        self._others.append((task, operation))
        if self._saving is None:
            self._begin()

    async def settled(self) -> None:
        """Wait until all outcomes are saved."""
        while saving := self._releasing | ({self._saving} if self._saving is not None else set()):
            await asyncio.wait(saving)

    def release(self, tasks: list[Task[Any]]) -> None:
        """Release tasks that were not started, all of them at once."""
        if tasks:
            releasing = asyncio.ensure_future(self._release(tasks))
            self._releasing.add(releasing)
            releasing.add_done_callback(self._releasing.discard)

    def abandon(self) -> None:
        """Save nothing more: the leases of the remaining tasks will lapse."""
        for saving in (*self._releasing, *([self._saving] if self._saving is not None else [])):
            saving.cancel()

    def _begin(self) -> None:
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
                    await asyncio.gather(
                        *([self._ack(done)] if done else []),
                        *(self._execute(*one) for one in others),
                    )
            self._unsaid.value = 0
        finally:
            self._saving = None

    async def _ack(self, tasks: list[Task[Any]]) -> None:
        held = sorted([(task.id, task.token) for task in tasks])
        results = [row for task in tasks if (row := self._results.pop(task.id, None))] if self._results else []
        careful = any([task.key is not None for task in tasks])
        operation: Operation[list[int]]
        if results:
            operation = AckManyWithResults(held, sorted(results), careful)
        else:
            operation = FinishMany(held) if careful else AckMany(held)
        finished = await self._through(operation, tasks)
        self._batches.value += 1
        if finished is not None and len(finished) < len(tasks):
            ours = set(finished)
            for task in tasks:
                if task.id not in ours:
                    _report_lost(task)
        for task in tasks:
            self._leases.drop(task)

    async def _release(self, tasks: list[Task[Any]]) -> None:
        held = sorted((task.id, task.token) for task in tasks)
        await self._through(ReleaseMany(held), tasks)
        for task in tasks:
            self._leases.drop(task)

    async def _execute(self, task: Task[Any], operation: Operation[Any]) -> None:
        held = await self._through(operation, [task])
        if held is False:
            _report_lost(task)
        self._leases.drop(task)

    async def _through(self, operation: Operation[Any], tasks: list[Task[Any]]) -> Any:
        """Return the answer to *operation*; None if the database refuses it, so that the leases will lapse."""
        try:
            return await self._recovery.through(lambda: self._connection.execute(operation))
        except asyncio.CancelledError:
            raise
        except Exception:
            ids = ", ".join(str(task.id) for task in tasks)
            logger.exception("the outcome of tasks %s could not be saved: they will run again", ids)
            return None


def _report_lost(task: Task[Any]) -> None:
    logger.warning("the lease of task %s of queue %r had run out when its run ended", task.id, task.queue)

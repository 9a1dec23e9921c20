"""Claiming tasks, from queues in their order and as many as there is room for, and keeping their leases."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from ..codec import Codec
from ..errors import EventkitError
from ..operations.claim import Claim, QueueOrder, TasksAheadInQueues, fresh_token
from ..operations.finish import ExtendMany
from ..operations.queue import ReadStats
from ..protocols import AsyncConnection
from ..values import Task
from .lifecycle import Shared

if TYPE_CHECKING:
    from .executor import Executor

logger = logging.getLogger("eventkit.worker")

_MOST_UNSAVED = 5000
"""The number of unsaved outcomes above which nothing more is claimed: a crash would only repeat more tasks."""

_INTERVAL = 0.25
"""The minimum number of seconds between two heartbeats, and between two checks whether the queues are empty."""


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
        except EventkitError:
            return  # The next heartbeat tries again.
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


class Intake:
    """The loop that claims tasks for an executor, until it is cancelled."""

    def __init__(self, shared: Shared, executor: "Executor") -> None:
        self._shared = shared
        self._connection = shared.connection
        self._recovery = shared.recovery
        self._executor = executor
        self._most = shared.settings.concurrency + shared.settings.prefetch
        self._poll = shared.settings.notify_poll_interval_ms / 1000
        self._until_empty = shared.settings.until_empty
        if self._until_empty:  # The end of another worker's task wakes no worker.
            self._poll = _INTERVAL
        self._lease = shared.lease_ms
        self._room = 0
        self._asked_at = 0.0
        largest = shared.connection.max_payload
        self._codecs = dict.fromkeys(shared.weights, Codec(None, largest))
        for outbox in shared.app.outboxes:
            self._codecs[outbox.queue] = Codec(outbox.type, largest)
        self._order = QueueOrder(shared.weights, self._claim)
        self._probe = TasksAheadInQueues(tuple(shared.weights))
        counted = (shared.metrics.claims, shared.metrics.claimed, shared.metrics.lateness)
        self._cells: dict[str, Any] = {queue: [metric.of(queue) for metric in counted] for queue in shared.weights}

    async def run(self, listening: Iterable[asyncio.Event]) -> None:
        """Be ready once all *listening* are set; then claim whenever there is room, and sleep if there is no task.

        A claim that is cancelled while it executes releases its tasks.
        """
        # Cancellations and notifications sent before all listeners are attached would be lost.
        for attached in listening:
            await attached.wait()
        self._shared.readiness.ready()
        queues = ", ".join(self._shared.weights) or "none"
        logger.info("worker %s has begun: queues %s", self._shared.name, queues)
        if not self._probe.queues and not self._until_empty:
            await asyncio.Event().wait()
        while not self._connection.closing:
            self._room = self._most - self._executor.in_hand
            if self._room <= 0 or len(self._executor.acks) > _MOST_UNSAVED:
                self._executor.changed.clear()
                await self._executor.changed.wait()
                continue
            tasks = await self._recovery.through(self._claim_in_order)
            if tasks:
                self._executor.take(tasks, self._asked_at)
                # Let finished tasks be processed before the next claim.
                await asyncio.sleep(0)
            elif self._until_empty and await self._recovery.through(self._is_empty):
                logger.info("the queues are empty")
                return
            else:
                await self._recovery.through(self._connection.sleep, self._probe, self._poll)

    async def _is_empty(self) -> bool:
        """Return whether no task is ready, due or running; those that wait in a paused queue do not count."""
        if self._executor.in_hand or self._executor.endings.calls:  # A hook may enqueue tasks.
            return False
        await self._executor.acks.settled()
        for queue in self._shared.weights:
            stats = await self._connection.execute(ReadStats(queue))
            if stats.running or (stats.ready and not stats.paused):
                return False
        return True

    async def _claim_in_order(self) -> list[Task[Any]]:
        for claim in self._order:
            self._asked_at = monotonic()
            tasks = await self._connection.execute(claim)
            self._order.record(claim, len(tasks))
            if tasks:
                claims, claimed, lateness = self._cells[claim.queue]
                claims.value += 1
                claimed.value += len(tasks)
                first = tasks[0]
                lateness.observe(max(0.0, (first.lease_expires_ms - first.lease_ms - first.run_ms) / 1000))
                return tasks
        return []

    def _claim(self, queue: str) -> Claim:
        limit = min(self._shared.settings.max_claim, self._room * self._executor.batches.get(queue, 1))
        return Claim(queue, self._shared.name, limit, self._lease, fresh_token(), self._codecs[queue])

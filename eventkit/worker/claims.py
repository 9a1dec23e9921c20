"""Claiming tasks: as many as there is room for, from queues in turn."""

import asyncio
import logging
from collections.abc import Mapping
from time import monotonic
from typing import Any

from ..codec import Codec
from ..handling import Rota
from ..operations.claim import Claim, ReadOutlooks, fresh_token
from ..protocols import AsyncConnection
from ..values import Task
from .executor import Executor
from .leases import Acks
from .lifecycle import Recovery
from .metrics import Metrics

logger = logging.getLogger("eventkit.worker")

_AT_ONCE = 1000
"""The maximum number of tasks in one claim."""

_MOST_UNSAVED = 5000
"""The number of unsaved outcomes above which nothing more is claimed: a crash would only repeat more tasks."""


class Intake:
    """The loop that claims tasks for an executor, until it is cancelled.

    *batches* has the number of tasks per call for each queue.
    """

    def __init__(
        self,
        connection: AsyncConnection,
        executor: Executor,
        acks: Acks,
        recovery: Recovery,
        metrics: Metrics,
        *,
        weights: Mapping[str, float],
        batches: Mapping[str, int],
        worker: str,
        lease: int | None,
        most: int,
        poll: float,
    ) -> None:
        self._connection = connection
        self._executor = executor
        self._acks = acks
        self._recovery = recovery
        self._metrics = metrics
        self._worker = worker
        self._batches = batches
        self._lease = lease
        self._most = most
        self._poll = poll
        self._room = 0
        self._asked_at = 0.0
        self._codec = Codec(None, connection.max_payload)
        self._rota = Rota(weights, self._claim)
        self._probe = ReadOutlooks(tuple(weights))

    async def run(self) -> None:
        """Claim whenever there is room, and sleep when there is nothing to claim.

        A claim that is cancelled while it executes releases its tasks.
        """
        if not self._probe.queues:
            await asyncio.Event().wait()
        while not self._connection.closing:
            self._room = self._most - self._executor.in_hand
            if self._room <= 0 or len(self._acks) > _MOST_UNSAVED:
                self._executor.changed.clear()
                await self._executor.changed.wait()
                continue
            tasks = await self._recovery.through(self._claim_in_turn)
            if tasks:
                self._executor.take(tasks, self._asked_at)
                # Let finished tasks be processed before the next claim.
                await asyncio.sleep(0)
            else:
                await self._recovery.through(lambda: self._connection.sleep(self._probe, self._poll))

    async def _claim_in_turn(self) -> list[Task[Any]]:
        for claim in self._rota:
            self._asked_at = monotonic()
            tasks = await self._connection.execute(claim)
            self._rota.note(claim, len(tasks))
            if tasks:
                self._metrics.claims.of(claim.queue).value += 1
                self._metrics.claimed.of(claim.queue).value += len(tasks)
                first = tasks[0]
                late = (first.lease_expires_ms - first.lease_ms - first.run_ms) / 1000
                self._metrics.lateness.of(claim.queue).observe(max(0.0, late))
                return tasks
        return []

    def _claim(self, queue: str) -> Claim:
        limit = min(_AT_ONCE, self._room * self._batches.get(queue, 1))
        return Claim(queue, self._worker, limit, self._lease, fresh_token(), self._codec)

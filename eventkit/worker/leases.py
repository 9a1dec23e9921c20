"""Keeping the leases of all tasks that a worker has: one heartbeat, in one statement."""

import asyncio
import logging
from collections.abc import Callable
from time import monotonic
from typing import Any, NamedTuple

from ..errors import EventkitError, Unavailable
from ..operations.finish import ExtendMany
from ..protocols import AsyncConnection
from ..records import Task

logger = logging.getLogger("eventkit.worker")

_LOOKS = 0.25
"""The least number of seconds between two heartbeats."""


class _Held(NamedTuple):
    """A task; when its lease is to be extended; and until when it is ours for certain, by the monotonic clock."""

    task: Task[Any]
    due: float
    until: float


class Leases:
    """The tasks that are ours, from the claim until the database knows what became of them."""

    def __init__(self, connection: AsyncConnection, lost: Callable[[Task[Any]], None]) -> None:
        self._connection = connection
        self._lost = lost
        self._held: dict[int, _Held] = {}
        self._shortest = 3600.0
        self._shorter = asyncio.Event()

    def __len__(self) -> int:
        return len(self._held)

    def add(self, tasks: list[Task[Any]]) -> None:
        """Keep the leases of *tasks*, which were claimed together a moment ago."""
        now, third = monotonic(), tasks[0].lease_ms / 3000
        due, until = now + third, now + 3 * third
        held = self._held
        for task in tasks:
            if task.id in held:
                # We have claimed again what we had: the lease that it ran under is over.
                self._lost(held[task.id].task)
            held[task.id] = _Held(task, due, until)
        if third < self._shortest:
            self._shortest = third
            self._shorter.set()

    def drop(self, task: Task[Any]) -> None:
        """The lease of *task* is of no interest any more."""
        entry = self._held.get(task.id)
        if entry is not None and entry.task.token == task.token:
            del self._held[task.id]

    def stands(self, task: Task[Any]) -> bool:
        """Whether *task* is still ours for certain, and may be begun."""
        entry = self._held.get(task.id)
        return entry is not None and entry.task.token == task.token and monotonic() < entry.until

    async def run(self) -> None:
        """Extend leases whenever a third of their time is over."""
        while True:
            self._shorter.clear()
            try:
                async with asyncio.timeout(max(_LOOKS, self._shortest / 2)):
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
            return  # The next look, which is soon, asks again.
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

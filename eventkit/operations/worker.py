"""What is asked of a database about who works on it."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from ..looks import WorkerInfo
from . import Operation, Plan, Rows

EVERY = 10.0
"""Seconds after which a worker is heard of again."""

ALIVE = 30_000
"""Milliseconds without a word from it up to which a worker is taken to be alive."""

FORGOTTEN = 3_600_000
"""Milliseconds without a word from it after which nothing is said of a worker any more."""

MOST_LEASED = 10_000
"""How many leased tasks are looked at."""


class Beat(Operation[None], frozen=True):
    """Have it known that a worker works on *queues*, with so many *slots*, of which so many are *running* a task.

    One that was not heard of for long, and whose row would stay for ever, is forgotten by whoever comes by.
    """

    name: str
    queues: list[str]
    slots: int
    running: int

    def plan(self) -> Plan[None]:
        """The row of the worker, and those that say nothing any more."""
        yield SaveWorker(self.name, msgspec.json.encode(self.queues).decode(), self.slots, self.running)
        yield DropWorkers(FORGOTTEN)


class SaveWorker(Operation[None], frozen=True):
    """Write the worker's row."""

    name: str
    queues: str
    slots: int
    running: int


class DropWorkers(Operation[None], frozen=True):
    """Delete workers that were not heard of for so many milliseconds."""

    older_than: int


class SignOff(Operation[None], frozen=True):
    """Forget a worker that has ended."""

    name: str

    def decode(self, rows: Rows) -> None:
        """Nothing to say."""


class ListWorkers(Operation[list[WorkerInfo]], frozen=True):
    """Whoever works, by name: those that say so, and those that have tasks leased."""

    writes: ClassVar[bool] = False
    alive: int = ALIVE
    limit: int = MOST_LEASED

    def decode(self, rows: Rows) -> list[WorkerInfo]:
        """Rows of what workers say of themselves, and rows of what is leased to them in a queue, together by name."""
        said: dict[str, WorkerInfo] = {}
        for name, queues, slots, running, leased, started, seen, oldest, alive in sorted(rows, key=lambda row: row[0]):
            known = said.get(name) or WorkerInfo(name, [], None, None, 0, None, None, None, False)
            oldest_claims = [moment for moment in (known.oldest_claim_ms, oldest) if moment is not None]
            said[name] = WorkerInfo(
                name,
                sorted({*known.queues, *msgspec.json.decode(queues, type=list[str])}),
                known.slots if slots is None else slots,
                known.running if running is None else running,
                known.leased + leased,
                known.started_ms or started,
                known.seen_ms or seen,
                min(oldest_claims, default=None),
                known.alive or bool(alive),
            )
        return list(said.values())

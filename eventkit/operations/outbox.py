"""Operations on outboxes and inboxes."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

from ..values import OutboxStats, Task
from . import Operation, Outlook, Plan, Probe, Rows, flag, nothing
from .claim import Claim, ReadOutlook
from .finish import finish, unblock


class See(Operation[bool], frozen=True):
    """Record that the consumer has seen the message; return whether it is the first time."""

    consumer: str
    message_id: str
    decode = flag


class PruneInbox(Operation[int], frozen=True):
    """Forget messages that the consumer saw longer ago; return their number."""

    consumer: str
    older_than: int

    def decode(self, rows: Rows) -> int:
        return len(rows)


_HELD_BACK_AT_ONCE = 1000
_DRAWS = 10


class AddMessage(Operation[str], frozen=True):
    """Add a message, which is due now; its own id is among the headers."""

    queue: str
    payload: str
    headers: str | None
    lane: str | None
    message_id: str

    def decode(self, rows: Rows) -> str:
        """Return the message's id, which the caller chose."""
        return self.message_id


class OpenOutbox(Operation[None], frozen=True):
    """Store the default retry policy of deliveries, unless the queue is configured."""

    queue: str
    max_attempts: int
    retry: str
    decode = nothing


class DrawTickets(Operation[None], frozen=True):
    """Draw the first ready tasks: their ids and lanes, and whether this transaction has the lane."""

    queue: str
    limit: int


class LeaseFirst(Operation[None], frozen=True):
    """Lease the first task of each lane to a worker, unless one of it is running, and the tasks with these ids."""

    queue: str
    worker: str
    ids: list[int]
    lanes: list[str]
    lease: int
    token: int
    max_attempts: int


class HoldBack(Operation[None], frozen=True):
    """Hold back the ready tasks of these lanes until an earlier one has ended."""

    queue: str
    lanes: list[str]
    limit: int


class PutOff(Operation[None], frozen=True):
    """Postpone tasks for a moment, because another transaction has their lanes."""

    ids: list[int]


class ClaimInOrder(Claim, frozen=True):
    """`Claim`, with one task of a lane at a time, and none before those that were enqueued earlier."""

    first_alone: ClassVar[bool] = False

    def plan(self) -> Plan[list[Task[Any]]]:
        return (yield from self._through_the_gate())

    def _lease(self, wanted: int, lease: int, max_attempts: int) -> Plan[Rows]:
        """Draw tickets until enough tasks are leased.  Each is leased or set aside, so that no claim draws it again."""
        leased: Rows = []
        for _ in range(_DRAWS):
            tickets = yield DrawTickets(self.queue, wanted - len(leased))
            if not tickets:
                break
            loose = [id for id, lane, _ in tickets if lane is None]
            lanes = sorted({lane for _, lane, ours in tickets if lane is not None and ours})
            leased += yield LeaseFirst(self.queue, self.worker, loose, lanes, lease, self.token, max_attempts)
            if lanes:
                yield HoldBack(self.queue, lanes, _HELD_BACK_AT_ONCE)
            if busy := [id for id, _, ours in tickets if not ours]:
                yield PutOff(busy)
            if len(leased) >= wanted:
                break
        return leased


class AckInLane(Operation[bool], frozen=True):
    """Finish a task of a lane and unblock the next one."""

    id: int
    token: int
    queue: str
    lane: str

    def plan(self) -> Plan[bool]:
        """Delete the task, or finish it in a queue that keeps done tasks; then unblock the next one."""
        done = bool((yield self)) or bool((yield from finish([(self.id, self.token, None)])))
        if done:
            yield from unblock(self.queue, [self.lane])
        return done


class Lookout(Probe, frozen=True):
    """`ReadOutlook` for a worker that may be stopped, and then has to check as well."""

    queue: str
    stopped: threading.Event

    @property
    def subjects(self) -> tuple[str, ...]:
        return (f"task:{self.queue}",)

    def plan(self) -> Plan[Outlook]:
        """Return the queue's outlook, or ready after a stop."""
        rows = yield ReadOutlook(self.queue)
        return Outlook(True) if self.stopped.is_set() else ReadOutlook(self.queue).decode(rows)


class ReadOutbox(Operation[OutboxStats], frozen=True):
    """Read the outbox's numbers, besides those that this process counts: deliveries, failures, mean latency."""

    writes: ClassVar[bool] = False
    queue: str
    counted: tuple[int, int, float | None]

    def decode(self, rows: Rows) -> OutboxStats:
        pending, delivering, dead, age = rows[0]
        return OutboxStats(pending, delivering, dead, None if age is None else max(0, age) / 1000, *self.counted)

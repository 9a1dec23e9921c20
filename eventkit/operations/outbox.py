"""What is asked of a database to deliver the messages of an outbox, and who is next where order matters.

An outbox is a queue.  A message with a key is a task of a *lane*, and claims that respect lanes hand out one task of
each at a time: a task waits while an earlier one of its lane is there, whatever that waits for.

A ready task of a lane is a ticket: it is worth a look, and whoever takes it gets the first of the lane.  Those that
have to wait are held back where claims do not meet them, and the end of the one before lets the next one go.  So a
lane in which much waits costs the others nothing.
"""

from __future__ import annotations

import threading
from typing import Any, ClassVar

from ..records import Task
from ..stats import OutboxStats
from . import Operation, Outlook, Plan, Probe, Rows
from .claim import Claim, ReadOutlook
from .finish import finish, unblock

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
        """The message's id, which was given."""
        return self.message_id


class OpenOutbox(Operation[None], frozen=True):
    """Settle how often and when a delivery is tried, where nobody has configured it otherwise."""

    queue: str
    max_attempts: int
    retry: str

    def decode(self, rows: Rows) -> None:
        """Nothing to say."""


class DrawTickets(Operation[None], frozen=True):
    """The best ready tasks: their ids and lanes, and whether nobody else is looking at the lane."""

    queue: str
    limit: int


class LeaseFirst(Operation[None], frozen=True):
    """Give a worker the first task of each lane, unless one of the lane is under way, and the tasks with these ids."""

    queue: str
    worker: str
    ids: list[int]
    lanes: list[str]
    lease: int
    token: int
    max_attempts: int


class HoldBack(Operation[None], frozen=True):
    """Put the ready tasks of these lanes aside until one before them has ended."""

    queue: str
    lanes: list[str]
    limit: int


class PutOff(Operation[None], frozen=True):
    """Put tasks aside for a moment, because somebody else is looking at their lanes."""

    ids: list[int]


class ClaimInOrder(Claim, frozen=True):
    """`Claim`, with one task of a lane at a time, and none before those that were enqueued earlier."""

    first_alone: ClassVar[bool] = False

    def plan(self) -> Plan[list[Task[Any]]]:
        """Always through the gate."""
        return (yield from self._through_the_gate())

    def _lease(self, wanted: int, lease: int, max_attempts: int) -> Plan[Rows]:
        """Tickets are drawn until enough has come of them.  Each is leased or put aside, so nobody draws it again."""
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
    """Finish a task of a lane and let the next one go."""

    id: int
    token: int
    queue: str
    lane: str

    def plan(self) -> Plan[bool]:
        """The deletion, or the longer way of a queue that keeps what is done; then the next one."""
        done = bool((yield self)) or bool((yield from finish([(self.id, self.token, None)])))
        if done:
            yield from unblock(self.queue, [self.lane])
        return done


class Lookout(Probe, frozen=True):
    """`ReadOutlook` for somebody who may be told to stop, and then has to look as well."""

    queue: str
    stopped: threading.Event

    @property
    def subjects(self) -> tuple[str, ...]:
        """The queue."""
        return (f"task:{self.queue}",)

    def plan(self) -> Plan[Outlook]:
        """The queue's outlook, unless it does not matter any more."""
        rows = yield ReadOutlook(self.queue)
        return Outlook(True) if self.stopped.is_set() else ReadOutlook(self.queue).decode(rows)


class ReadOutbox(Operation[OutboxStats], frozen=True):
    """The outbox in numbers, beside what this process has counted of late: deliveries, failures, mean latency."""

    writes: ClassVar[bool] = False
    queue: str
    counted: tuple[int, int, float | None]

    def decode(self, rows: Rows) -> OutboxStats:
        """The numbers of the one row, and those counted."""
        pending, delivering, dead, age = rows[0]
        return OutboxStats(pending, delivering, dead, None if age is None else max(0, age) / 1000, *self.counted)

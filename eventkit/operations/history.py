"""What is asked of a database to keep the history of tasks: each step of a task of some queues as an event.

The events are written by triggers on the table of tasks, which are the one place that every step passes, whoever takes
it and in whichever way.  They cost all queues something, so they are there only while some queue keeps its history.
"""

from __future__ import annotations

from ..errors import Unavailable
from . import Operation, Plan, Rows


class HoldHistory(Operation[None], frozen=True):
    """Let nobody else change which queues keep their history until the transaction ends.

    The row says whether triggers are *needed* once *queue* does so, or not; whether they *are* there; and where they
    would have to be changed by a role that may not, what it takes.
    """

    queue: str
    history: bool


class Abandon(Operation[None], frozen=True):
    """Until the transaction ends, a claimed task of the queue that is deleted was cancelled and not finished."""

    queue: str


class RecordEnqueued(Operation[None], frozen=True):
    """Have each new task recorded."""


class RecordMoved(Operation[None], frozen=True):
    """Have each task recorded that goes from one state to another."""


class RecordGone(Operation[None], frozen=True):
    """Have each task recorded that is deleted, finished or not."""


class ForgetEnqueued(Operation[None], frozen=True):
    """Undo `RecordEnqueued`."""


class ForgetMoved(Operation[None], frozen=True):
    """Undo `RecordMoved`."""


class ForgetGone(Operation[None], frozen=True):
    """Undo `RecordGone`."""


class SettleHistory(Operation[None], frozen=True):
    """Have the triggers that are needed once *queue* keeps its history, or does so no more."""

    queue: str
    history: bool

    def plan(self) -> Plan[None]:
        """A look, and what follows from it."""
        yield from settle((yield HoldHistory(self.queue, self.history)))


class StopHistory(Operation[None], frozen=True):
    """Have nothing recorded, whatever queues are configured to, until `KeepHistory`."""

    def plan(self) -> Plan[None]:
        """A look, and what follows from it."""
        for _, there, obstacle in (yield HoldHistory("", False)):
            yield from settle([(False, there, obstacle)])


class KeepHistory(Operation[None], frozen=True):
    """Have recorded what queues are configured to."""

    def plan(self) -> Plan[None]:
        """A look, and what follows from it."""
        yield from settle((yield HoldHistory("", False)))


def settle(held: Rows) -> Plan[None]:
    """Make or drop the triggers, as `HoldHistory` has found; nobody is kept from going without them."""
    [(needed, there, obstacle)] = held
    if needed and not there:
        if obstacle is not None:
            raise Unavailable(obstacle)
        yield RecordEnqueued()
        yield RecordMoved()
        yield RecordGone()
    if there and not needed and obstacle is None:
        yield ForgetEnqueued()
        yield ForgetMoved()
        yield ForgetGone()

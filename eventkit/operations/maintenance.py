"""What is asked of a database to put it in order: moving what is due, deleting what says nothing any more.

Each chore takes a bounded number of rows, so that it is a short transaction, and answers how many it has found.
"""

from __future__ import annotations

from typing import ClassVar

from . import Operation, Plan, Rows
from .claim import MOVED_AT_ONCE, promote
from .finish import ForgetKeys


class FindDueQueues(Operation[list[str]], frozen=True):
    """The queues in which tasks are due, have lapsed or have expired and were not moved yet."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> list[str]:
        """One name a row."""
        return [name for (name,) in rows]


class _Chore(Operation[int], frozen=True):
    """Some of the work; how many rows it came to, which are fewer than `limit` when the work is done."""

    kind: ClassVar[str]
    limit: int = MOVED_AT_ONCE

    def decode(self, rows: Rows) -> int:
        """As many as rows."""
        return len(rows)


class MoveDue(_Chore, frozen=True, kw_only=True):
    """Move what is due in the queue."""

    kind: ClassVar[str] = "moved"
    queue: str

    def plan(self) -> Plan[int]:
        """One step of a sweep."""
        return (yield from promote(self.queue, self.limit))


class DropDone(_Chore, frozen=True):
    """Delete tasks that were kept when they were done, for as long as their queue says."""

    kind: ClassVar[str] = "done"


class DropResults(_Chore, frozen=True):
    """Delete results that have expired."""

    kind: ClassVar[str] = "results"


class DropRates(_Chore, frozen=True):
    """Delete windows that are over, and buckets that are full again."""

    kind: ClassVar[str] = "limits"


class DropKeys(_Chore, frozen=True):
    """Delete reservations of keys that have ended."""

    kind: ClassVar[str] = "keys"

    def plan(self) -> Plan[int]:
        """The oldest of them."""
        return len((yield ForgetKeys(self.limit)))


WITHOUT_QUEUE = (DropDone(), DropResults(), DropRates(), DropKeys())
"""The chores that need not know a queue."""

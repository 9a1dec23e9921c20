"""What is asked of a database by whoever looks around in it: pages of tasks and events, each by its beginning.

Each page is found by an index and is of bounded cost, however much there is; what it takes for that is said of each.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from ..codec import decode_headers
from ..looks import EventLook, LimitInfo, TaskLook
from . import Operation, Plan, Rows
from .claim import Sweep
from .finish import Remove, unblock
from .queue import Requeue

CLIP = 400
"""How many characters of a payload or an error a page has."""


class _Tasks(Operation[list[TaskLook]], frozen=True):
    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> list[TaskLook]:
        """One task a row."""
        return [TaskLook(*row) for row in rows]


class BrowseTasks(_Tasks, frozen=True):
    """The queue's tasks in one state, those first that are of interest first.

    What is ready in the order of claims, and then what fell due and was not moved yet; what is scheduled by when it is
    due; what is leased by when the lease ends; what is dead or done by when it ended, the latest first.
    """

    queue: str
    state: str
    limit: int
    skip: int
    clip: int = CLIP


class BrowseDead(_Tasks, frozen=True):
    """The queue's dead letters of one reason and error, the latest first."""

    queue: str
    reason: str
    error: str | None
    limit: int
    skip: int
    clip: int = CLIP


class FindTask(_Tasks, frozen=True):
    """The queue's task of an id, in whatever state; none if there is none."""

    queue: str
    id: int
    clip: int = CLIP


class FindTasksOfKey(_Tasks, frozen=True):
    """The queue's tasks of a key that are not done: the one it is unique for, or those of a lane, the latest first."""

    queue: str
    key: str
    limit: int
    clip: int = CLIP


class BrowseEvents(Operation[list[EventLook]], frozen=True):
    """The events of the topic below *before*, the latest first; with a *key* those of it, down to *least*.

    No index has the keys of events, so whoever looks for one looks through as many offsets as that says.
    """

    writes: ClassVar[bool] = False
    topic: str
    key: str | None
    before: int
    least: int
    limit: int
    clip: int = CLIP

    def decode(self, rows: Rows) -> list[EventLook]:
        """One event a row."""
        return [
            EventLook(offset, key, payload, length, decode_headers(headers) if headers else {}, created)
            for offset, key, payload, length, headers, created in rows
        ]


class ListLimits(Operation[list[LimitInfo]], frozen=True):
    """The windows and buckets that have something to say, by name."""

    writes: ClassVar[bool] = False
    limit: int

    def decode(self, rows: Rows) -> list[LimitInfo]:
        """One window or bucket a row."""
        return [LimitInfo(name, per / 1000 if per else None, *rest) for name, per, *rest in rows]


class Deaths(NamedTuple):
    """How many tasks of a queue have died for a reason."""

    queue: str
    reason: str
    number: int


class CountDeaths(Operation[tuple[int, list[Deaths]]], frozen=True):
    """How many tasks have died of what since a moment, up to *settling* milliseconds ago; and when that was.

    What died a moment ago may not be committed yet, and would be missed by whoever goes on from there.
    """

    writes: ClassVar[bool] = False
    since: int | None
    settling: int

    def decode(self, rows: Rows) -> tuple[int, list[Deaths]]:
        """The first row is the moment."""
        (_, _, moment), *deaths = rows
        return moment, [Deaths(*row) for row in deaths]


class FindDead(Operation[list[int]], frozen=True):
    """The ids of dead letters of one reason and error."""

    writes: ClassVar[bool] = False
    queue: str
    reason: str
    error: str | None
    limit: int

    def decode(self, rows: Rows) -> list[int]:
        """One id a row."""
        return [id for (id,) in rows]


class PurgeLetters(Operation[int], frozen=True):
    """Delete those of the tasks that are dead; how many."""

    queue: str
    ids: list[int]

    def plan(self) -> Plan[int]:
        """A look which of them are dead, which holds them, and their removal."""
        yield from Sweep(self.queue).plan()
        found = yield self
        yield from Remove([id for id, _ in found]).plan()
        yield from unblock(self.queue, [lane for _, lane in found])
        return len(found)


class RequeueEdited(Operation[bool], frozen=True):
    """Give a dead task another payload and a new life; False if it is not dead."""

    queue: str
    id: int
    payload: str

    def plan(self) -> Plan[bool]:
        """The payload first, and the new life in the same transaction."""
        yield from Sweep(self.queue).plan()
        if not (yield self):
            return False
        yield from Requeue(self.queue, False, [self.id]).plan()
        return True


def history_row(row: tuple[Any, ...]) -> EventLook:
    """An event of a history, whole."""
    offset, key, payload, created = row
    return EventLook(offset, key, payload, len(payload), {}, created)


class ReadHistory(Operation[list[EventLook]], frozen=True):
    """What was recorded of a task, from the first step on, where its queue keeps its history.

    An index of these events alone has them by task.
    """

    writes: ClassVar[bool] = False
    queue: str
    id: int
    limit: int

    def decode(self, rows: Rows) -> list[EventLook]:
        """One step a row."""
        return [history_row(row) for row in rows]

"""Operations of the service and of an operator: browse, overview, jobs, audit."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, ClassVar, NamedTuple

import msgspec

from ..codec import Codec, decode_headers
from ..values import (
    Consumer,
    EventLook,
    HeldLock,
    LimitInfo,
    Overview,
    PipelineInfo,
    QueueStats,
    ScheduleStats,
    TaskInfo,
    TaskLook,
    TopicStats,
)
from . import Operation, Plan, Rows, column, flag, nothing
from .claim import Sweep
from .finish import Remove, unblock
from .queue import MOST_COUNTED, Requeue, queue_stats, task_info
from .stream import Publish

CLIP = 400
"""The maximum length of a payload or an error on a page, in characters."""


class _Tasks(Operation[list[TaskLook]], frozen=True):
    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> list[TaskLook]:
        return [TaskLook(*row) for row in rows]


class BrowseTasks(_Tasks, frozen=True):
    """Read the queue's tasks in one state, the most urgent or most recent first.

    Ready tasks come in the order of claims, followed by those that are due but not moved yet; scheduled tasks by when
    they are due; leased tasks by when the lease ends; dead and done tasks by when they ended, the latest first.
    """

    queue: str
    state: str
    limit: int
    skip: int
    clip: int = CLIP


class BrowseDead(_Tasks, frozen=True):
    """Read the queue's dead letters of one reason and error, the latest first."""

    queue: str
    reason: str
    error: str | None
    limit: int
    skip: int
    clip: int = CLIP


class FindTask(_Tasks, frozen=True):
    """Read the queue's task with an id, in any state; none if there is none."""

    queue: str
    id: int
    clip: int = CLIP


class FindTasksOfKey(_Tasks, frozen=True):
    """Read the queue's unfinished tasks of a key, unique or of an ordered outbox, the latest first."""

    queue: str
    key: str
    limit: int
    clip: int = CLIP


class BrowseEvents(Operation[list[EventLook]], frozen=True):
    """Read the events of the topic below *before*, the latest first; with a *key* those of the key, down to *least*.

    Keys of events have no index, so *least* bounds the number of offsets that are searched.
    """

    writes: ClassVar[bool] = False
    topic: str
    key: str | None
    before: int
    least: int
    limit: int
    clip: int = CLIP

    def decode(self, rows: Rows) -> list[EventLook]:
        return [
            EventLook(offset, key, payload, length, decode_headers(headers) if headers else {}, created)
            for offset, key, payload, length, headers, created in rows
        ]


class ListLimits(Operation[list[LimitInfo]], frozen=True):
    """Read the rate limit windows and token buckets that hold a count at present, by name."""

    writes: ClassVar[bool] = False
    limit: int

    def decode(self, rows: Rows) -> list[LimitInfo]:
        return [LimitInfo(name, per / 1000 if per else None, *rest) for name, per, *rest in rows]


class Deaths(NamedTuple):
    """The number of tasks of a queue that died for a reason."""

    queue: str
    reason: str
    number: int


class CountDeaths(Operation[tuple[int, list[Deaths]]], frozen=True):
    """Count the tasks that died, by reason, since a time, up to *settling* milliseconds ago; return that end as well.

    A task that died a moment ago may not be committed yet, and a reader that continued after it would miss it.
    """

    writes: ClassVar[bool] = False
    since: int | None
    settling: int

    def decode(self, rows: Rows) -> tuple[int, list[Deaths]]:
        """Return the time, which is in the first row, and the counts."""
        (_, _, moment), *deaths = rows
        return moment, [Deaths(*row) for row in deaths]


class FindDead(Operation[list[int]], frozen=True):
    """Find the ids of dead letters of one reason and error."""

    writes: ClassVar[bool] = False
    queue: str
    reason: str
    error: str | None
    limit: int
    decode = column


class PurgeLetters(Operation[int], frozen=True):
    """Delete those of the tasks that are dead; return their number."""

    queue: str
    ids: list[int]

    def plan(self) -> Plan[int]:
        """Lock those that are dead, and delete them."""
        yield from Sweep(self.queue).plan()
        found = yield self
        yield from Remove([id for id, _ in found]).plan()
        yield from unblock(self.queue, [lane for _, lane in found])
        return len(found)


class RequeueEdited(Operation[bool], frozen=True):
    """Make a dead task ready again with another payload; return False if it is not dead."""

    queue: str
    id: int
    payload: str

    def plan(self) -> Plan[bool]:
        """Write the payload, and requeue the task in the same transaction."""
        yield from Sweep(self.queue).plan()
        if not (yield self):
            return False
        yield from Requeue(self.queue, False, [self.id]).plan()
        return True


def history_row(row: tuple[Any, ...]) -> EventLook:
    """Return an event of a history, with all columns."""
    offset, key, payload, created = row
    return EventLook(offset, key, payload, len(payload), {}, created)


class ReadHistory(Operation[list[EventLook]], frozen=True):
    """Read the recorded steps of a task, oldest first, if its queue keeps a history.

    An index that covers only these events finds them by task.
    """

    writes: ClassVar[bool] = False
    queue: str
    id: int
    limit: int

    def decode(self, rows: Rows) -> list[EventLook]:
        return [history_row(row) for row in rows]


class ReadOverview(Operation[Overview], frozen=True):
    """Read all numbers of the overview, each counted up to `MOST_COUNTED`."""

    writes: ClassVar[bool] = False
    limit: int = MOST_COUNTED + 1

    def decode(self, rows: Rows) -> Overview:
        """Return the numbers; each row has a kind, a name, and an array of values."""
        found: defaultdict[str, list[tuple[str, list[Any]]]] = defaultdict(list)
        for kind, name, values in sorted(rows):
            found[kind].append((name, msgspec.json.decode(values)))
        consumers: defaultdict[str, list[list[Any]]] = defaultdict(list)
        for topic, consumer in found["consumer"]:
            consumers[topic].append(consumer)
        queues = {name: _queue(*values) for name, values in found["queue"]}
        topics = {name: _topic(values, consumers[name]) for name, values in found["topic"]}
        schedules = {name: ScheduleStats(*values) for name, values in found["schedule"]}
        locks = {name: HeldLock(*values) for name, values in found["lock"]}
        [(_, [results])] = found["result"]
        approximate = [one.approximate for one in queues.values()] + [one.approximate for one in topics.values()]
        return Overview(
            queues, topics, schedules, locks, min(results, MOST_COUNTED), results > MOST_COUNTED or any(approximate)
        )


def _queue(now: int, paused: int | bool, counts: list[int], due: list[Any], oldest: int | None) -> QueueStats:
    *due_counts, oldest_due = due
    moments = [moment for moment in (oldest, oldest_due) if moment is not None]
    return queue_stats([*counts, *due_counts], now - min(moments) if moments else None, paused)


def _topic(values: list[int], consumers: list[list[Any]]) -> TopicStats:
    head, events = values
    most = max(events, *(lag for _, _, lag, _ in consumers)) if consumers else events
    known = [
        Consumer(name, offset, min(lag, MOST_COUNTED), updated) for name, offset, lag, updated in sorted(consumers)
    ]
    return TopicStats(head, min(events, MOST_COUNTED), known, most > MOST_COUNTED)


_codec = Codec()


class GetJob(Operation[TaskInfo[Any] | None], frozen=True):
    """Read a job by its task's id, in any queue and state."""

    writes: ClassVar[bool] = False
    id: int

    def decode(self, rows: Rows) -> TaskInfo[Any] | None:
        return task_info(rows[0], _codec) if rows else None


class ListJobs(Operation[list[TaskInfo[Any]]], frozen=True):
    """Read jobs of all queues by id, all or those in one state, after the first *skip* of them."""

    writes: ClassVar[bool] = False
    state: str | None
    limit: int
    skip: int

    def decode(self, rows: Rows) -> list[TaskInfo[Any]]:
        return [task_info(row, _codec) for row in rows]


class ListJobsOf(Operation[list[TaskInfo[Any]]], frozen=True):
    """Read jobs of one queue as `ListJobs` does, by another index."""

    writes: ClassVar[bool] = False
    queue: str
    state: str | None
    limit: int
    skip: int

    def decode(self, rows: Rows) -> list[TaskInfo[Any]]:
        return [task_info(row, _codec) for row in rows]


AUDIT = "eventkit.audit"
"""The stream that records the actions of administrators."""


class Audited(Operation[Any], frozen=True):
    """Execute an operation, and record it in the same transaction unless it answers False."""

    operation: Operation[Any]
    entry: str

    def plan(self) -> Plan[Any]:
        """Run the operation's own plan, and publish the event."""
        answer = yield from self.operation.plan()
        if answer is not False:
            yield Publish(AUDIT, None, self.entry, None)
        return answer


class SavePipeline(Operation[None], frozen=True):
    """Record the progress of a pipeline: *rows* more since the last record, up to the batch *batch*.

    A field that is None stays as it was, except the error.
    """

    name: str
    source: str
    sink: str
    state: str
    batch: int | None
    rows: int
    lag: int | None
    error: str | None
    decode = nothing


class ListPipelines(Operation[list[PipelineInfo]], frozen=True):
    """Read all pipelines by name."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> list[PipelineInfo]:
        return [PipelineInfo(*row) for row in rows]


class RemovePipeline(Operation[bool], frozen=True):
    """Delete a pipeline; return False if there is none with that name."""

    name: str
    decode = flag

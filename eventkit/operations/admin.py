"""Operations of the service and of an operator: browsing, overview, channels, audit, pipelines, API keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from ..checks import SHOWN_STATES
from ..codec import decode_headers
from ..values import (
    ChannelInfo,
    Consumer,
    EventLook,
    HeldLock,
    LimitInfo,
    Moment,
    Overview,
    PipelineInfo,
    ScheduleStats,
    StreamStats,
    TaskLook,
)
from . import Operation, Plan, Probe, Read, Rows, column, each, first, flag, nothing, one_or_none, step
from .channel import PruneNotifications
from .claim import Sweep
from .finish import Remove
from .queue import MOST_COUNTED, Requeue, queue_stats
from .stream import Publish

CLIP = 400
"""The maximum length of a payload or an error on a page, in characters."""


def _look(id: int, state: str, *others: Any) -> TaskLook:
    return TaskLook(id, SHOWN_STATES[state], *others)


class BrowseTasks(Read[list[TaskLook]], frozen=True):
    """Read the queue's tasks in one state, the most urgent or most recent first.

    Ready tasks come in the order of claims, followed by those that are due but not moved yet; scheduled tasks by when
    they are due; running tasks by when the lease ends; dead and done tasks by when they ended, the latest first.
    """

    queue: str
    state: str
    limit: int
    skip: int
    clip: int = CLIP
    decode = each(_look)


class BrowseDead(Read[list[TaskLook]], frozen=True):
    """Read the queue's dead tasks of one reason and error, the latest first."""

    queue: str
    reason: str
    error: str | None
    limit: int
    skip: int
    clip: int = CLIP
    decode = each(_look)


class FindTask(Read[list[TaskLook]], frozen=True):
    """Read the queue's task with an id, in any state; none if there is none."""

    queue: str
    id: int
    clip: int = CLIP
    decode = each(_look)


class FindTasksOfKey(Read[list[TaskLook]], frozen=True):
    """Read the queue's unfinished tasks of a key, unique or of an ordered outbox, the latest first."""

    queue: str
    key: str
    limit: int
    clip: int = CLIP
    decode = each(_look)


def _event(offset: int, key: str | None, payload: str, length: int, headers: str | None, created: int) -> EventLook:
    return EventLook(offset, key, payload, length, decode_headers(headers), created)


class BrowseEvents(Read[list[EventLook]], frozen=True):
    """Read the events of the topic below *before*, the latest first; with a *key* those of the key, down to *least*.

    Keys of events have no index, so *least* bounds the number of offsets that are searched.
    """

    topic: str
    key: str | None
    before: int
    least: int
    limit: int
    clip: int = CLIP
    decode = each(_event)


class ListLimits(Read[list[LimitInfo]], frozen=True):
    """Read the rate limit windows and token buckets that hold a count at present, by name."""

    limit: int
    decode = each(lambda name, per, *rest: LimitInfo(name, per / 1000 if per else None, *rest))


class Deaths(NamedTuple):
    """The number of tasks of a queue that died for a reason."""

    queue: str
    reason: str
    number: int


class CountDeaths(Read[tuple[int, list[Deaths]]], frozen=True):
    """Count the tasks that died, by reason, since a time, up to *settling* milliseconds ago; return that end as well.

    A task that died a moment ago may not be committed yet, and a reader that continued after it would miss it.
    """

    since: int | None
    settling: int

    def decode(self, rows: Rows) -> tuple[int, list[Deaths]]:
        """Return the time, which is in the first row, and the counts."""
        (_, _, moment), *deaths = rows
        return moment, [Deaths(*row) for row in deaths]


class FindDead(Read[list[int]], frozen=True):
    """Find the ids of dead tasks of one reason and error."""

    queue: str
    reason: str
    error: str | None
    limit: int
    decode = column


class PurgeDeadTasks(Operation[int], frozen=True):
    """Delete those of the tasks that are dead; return their number."""

    queue: str
    ids: list[int]

    def plan(self) -> Plan[int]:
        """Lock those that are dead, and delete them."""
        yield from Sweep(self.queue).plan()
        found = yield self
        yield from Remove([id for (id,) in found]).plan()
        return len(found)


class RequeueEdited(Operation[bool], frozen=True):
    """Make a dead task ready again with another payload; return False if it is not dead."""

    queue: str
    id: int
    payload: str

    def plan(self) -> Plan[bool]:
        yield from Sweep(self.queue).plan()
        if not (yield self):
            return False
        yield from Requeue(self.queue, False, [self.id]).plan()
        return True


class ReadHistory(Read[list[EventLook]], frozen=True):
    """Read the recorded steps of a task, oldest first, if its queue keeps a history.

    An index that covers only these events finds them by task.
    """

    queue: str
    id: int
    limit: int
    decode = each(lambda offset, key, payload, created: EventLook(offset, key, payload, len(payload), {}, created))


class ReadOverview(Read[Overview], frozen=True):
    """Read all numbers of the overview, each counted up to `MOST_COUNTED`."""

    limit: int = MOST_COUNTED + 1

    def decode(self, rows: Rows) -> Overview:
        """Return the numbers; each row has a kind, a name, and an array of values."""
        found: defaultdict[str, list[tuple[str, list[Any]]]] = defaultdict(list)
        for kind, name, values in sorted(rows):
            found[kind].append((name, msgspec.json.decode(values)))
        consumers: defaultdict[str, list[list[Any]]] = defaultdict(list)
        for topic, consumer in found["consumer"]:
            consumers[topic].append(consumer)
        queues = {name: queue_stats(values) for name, values in found["queue"]}
        topics = {name: _topic(values, consumers[name]) for name, values in found["topic"]}
        schedules = {name: ScheduleStats(*values) for name, values in found["schedule"]}
        locks = {name: HeldLock(*values) for name, values in found["lock"]}
        [(_, [results])] = found["result"]
        approximate = [one.approximate for one in queues.values()] + [one.approximate for one in topics.values()]
        return Overview(
            queues, topics, schedules, locks, min(results, MOST_COUNTED), results > MOST_COUNTED or any(approximate)
        )


def _topic(values: list[int], consumers: list[list[Any]]) -> StreamStats:
    head, events = values
    most = max(events, *(lag for _, _, lag, _ in consumers)) if consumers else events
    known = [
        Consumer(name, offset, min(lag, MOST_COUNTED), updated) for name, offset, lag, updated in sorted(consumers)
    ]
    return StreamStats(head, min(events, MOST_COUNTED), known, most > MOST_COUNTED)


class ListChannels(Read[list[ChannelInfo]], frozen=True):
    """List the channels that have notifications or settings, by name; each is counted up to *limit*."""

    limit: int = MOST_COUNTED

    def decode(self, rows: Rows) -> list[ChannelInfo]:
        return [ChannelInfo(*row) for row in sorted(rows)]


def prune_channels(older_than: int | None, keep_count: int | None) -> Generator[Operation[Any], Any, int]:
    """Prune each channel in a transaction of its own; return the number of deleted notifications."""
    number = 0
    for channel in (yield ListChannels()):
        number += yield PruneNotifications(channel.name, older_than, keep_count)
    return number


class ReadCommits(Read[str], frozen=True):
    """Read a text that differs after each commit of the database, while this process has a waiter for commits."""

    decode = first


class CommitsAhead(Probe, frozen=True):
    """A probe that is ready when `ReadCommits` answers another text than *seen*.

    It has no subject, because a writer that announced each commit would hold up the others.  A backend that does not
    notice all commits by itself makes the probe due soon.
    """

    seen: str

    @property
    def subjects(self) -> tuple[str, ...]:
        return ()


AUDIT = "eventkit.audit"
"""The stream that records the actions of administrators."""


class Audited(Operation[Any], frozen=True):
    """Execute an operation, and record it in the same transaction unless it answers False."""

    operation: Operation[Any]
    entry: str

    def plan(self) -> Plan[Any]:
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


class ListPipelines(Read[list[PipelineInfo]], frozen=True):
    """Read all pipelines by name."""

    decode = each(PipelineInfo)


class RemovePipeline(Operation[bool], frozen=True):
    """Delete a pipeline; return False if there is none with that name."""

    name: str
    decode = flag


class ApiKey(msgspec.Struct, frozen=True):
    """An API key: its owner, its permissions and its limits.

    *rate* is in requests a second, with at most *burst* at once, and *quota* in requests a day.
    """

    id: str
    name: str
    scopes: tuple[str, ...]
    rate: float | None
    burst: float | None
    quota: int | None
    created_ms: int
    expires_ms: int | None
    revoked_ms: int | None

    created_at = Moment[datetime]("created_ms")
    """The time at which it was created."""
    expires_at = Moment[datetime | None]("expires_ms")
    """The time at which it expires; None if never."""
    revoked_at = Moment[datetime | None]("revoked_ms")
    """The time at which it was revoked."""


def _key(id: str, name: str, scopes: str, *columns: Any) -> ApiKey:
    return ApiKey(id, name, msgspec.json.decode(scopes, type=tuple[str, ...]), *columns)


class HeldKey(msgspec.Struct, frozen=True):
    """An API key, and the hashes of its valid secrets: none if it was revoked or has expired."""

    key: ApiKey
    hashes: tuple[str, ...]


class AddApiKey(Operation[bool], frozen=True):
    """Store an API key, for so many milliseconds or for ever; return False if its id is taken."""

    id: str
    name: str
    hash: str
    scopes: str
    rate: float | None
    burst: float | None
    quota: int | None
    expires: int | None
    decode = flag


class FindApiKey(Read[HeldKey | None], frozen=True):
    """Find an API key by its id, by the database's clock."""

    id: str

    def decode(self, rows: Rows) -> HeldKey | None:
        if not rows:
            return None
        *columns, hash, former = rows[0]
        return HeldKey(_key(*columns), tuple(valid for valid in (hash, former) if valid is not None))


class AnyApiKey(Read[bool], frozen=True):
    """Read whether there has ever been an API key."""

    decode = flag


class ListApiKeys(Read[list[ApiKey]], frozen=True):
    """List all API keys, the oldest first, including revoked ones."""

    decode = each(_key)


class RevokeApiKey(Operation[bool], frozen=True):
    """Revoke an API key; return False if there is no valid one with that id."""

    id: str
    decode = flag


class RotateApiKey(Operation[bool], frozen=True):
    """Give an API key another secret; the old one is valid for *grace* milliseconds more.

    False if the key is not valid.
    """

    id: str
    hash: str
    grace: int
    decode = flag


class BeginSession(Operation[None], frozen=True):
    """Store a browser's session of *lasts* milliseconds, for the hash of an API key's secret."""

    id: str
    key: str
    secret: str
    lasts: int

    def plan(self) -> Plan[None]:
        """Delete expired sessions, so that the table stays small, and write the row."""
        yield step("ForgetSessions")
        yield self


class FindSession(Read[ApiKey | None], frozen=True):
    """Find the API key of an unexpired session; None also if the secret that began the session is not valid."""

    id: str
    decode = one_or_none(_key)


class EndSession(Operation[None], frozen=True):
    """Delete a session."""

    id: str
    decode = nothing

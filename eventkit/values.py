"""The values that a database holds (events, tasks, notifications, settings), and its numbers and diagnostics.

The module is long because it only lists values.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, Literal, NamedTuple, Self, TypeVar, overload

import msgspec

from .checks import Duration, as_datetime
from .checks import TaskState as TaskState
from .retry import Policy
from .retry import PolicyName as PolicyName

P = TypeVar("P", covariant=True)
D = TypeVar("D")

# Fixed choices of arguments.  `checks.choice` refuses other values, by the same type.
StreamStart = Literal["committed", "earliest", "latest"]
GroupStart = Literal["earliest", "latest"]
ChannelStart = Literal["latest", "earliest"]
OnTruncated = Literal["raise", "skip"]
CatchUp = Literal["all", "latest", "none"]
OnCrash = Literal["retry", "fail"]
OnDead = Literal["continue", "stop"]
Then = Literal["stop", "skip", "dead"]
Isolation = Literal["process"]
RowChange = Literal["insert", "update", "delete"]
ArchiveFormat = Literal["parquet", "delta", "iceberg"]


class Moment(Generic[D]):
    """A time that a field holds in milliseconds since 1970, as a datetime; None where the field is None."""

    def __init__(self, field: str) -> None:
        self._field = field

    @overload
    def __get__(self, row: None, kind: Any = None) -> Self: ...
    @overload
    def __get__(self, row: object, kind: Any = None) -> D: ...
    def __get__(self, row: object, kind: Any = None) -> Any:
        if row is None:
            return self
        milliseconds = getattr(row, self._field)
        return None if milliseconds is None else as_datetime(milliseconds)


class Event(msgspec.Struct, Generic[P], frozen=True, gc=False):
    """One event of a stream.  *offset* is its position: it grows along the stream and may have gaps."""

    offset: int
    stream: str
    key: str | None
    payload: P
    headers: dict[str, str]
    created_ms: int

    created_at = Moment[datetime]("created_ms")
    """The time at which it was published, by the database's clock."""


class Notification(msgspec.Struct, Generic[P], frozen=True, gc=False):
    """One notification of a channel."""

    id: int
    channel: str
    payload: P
    headers: dict[str, str]
    created_ms: int

    created_at = Moment[datetime]("created_ms")
    """The time at which it was sent, by the database's clock."""


class Task(msgspec.Struct, Generic[P], frozen=True, gc=False):
    """A claimed task: the right to run it until `lease_expires_at`, proved by *token*.

    *lapsed* says that the lease of the previous run ran out, most probably because its process crashed.
    """

    id: int
    queue: str
    payload: P
    key: str | None
    headers: dict[str, str]
    priority: int
    attempt: int
    max_attempts: int
    run_ms: int
    enqueued_ms: int
    expires_ms: int | None
    lease_expires_ms: int
    token: int
    lease_ms: int
    lapsed: bool = False
    group: str | None = None

    run_at = Moment[datetime]("run_ms")
    """The time at which it was due."""
    enqueued_at = Moment[datetime]("enqueued_ms")
    """The time at which it was enqueued."""
    expires_at = Moment[datetime | None]("expires_ms")
    """The time after which no worker would have got it."""
    lease_expires_at = Moment[datetime]("lease_expires_ms")
    """The time until which the task is leased, unless it is extended."""


Claimed = Task[Any] | tuple[int, int]
"""A claimed task, or its id and its token, for a process that has only those."""


class TaskInfo(msgspec.Struct, Generic[P], frozen=True):
    """A task in any state of the queue: ``scheduled ready running dead done``.

    *error* is the text of the last failure, and *code* its short name for programs: the exception's ``code`` or class,
    or ``TIMEOUT LEASE_LOST CRASHED EXPIRED`` and the like.  *reason* is why it died: ``failed exhausted expired
    poison``.
    """

    id: int
    queue: str
    state: TaskState
    payload: P
    key: str | None
    headers: dict[str, str]
    priority: int
    attempt: int
    max_attempts: int
    run_ms: int
    enqueued_ms: int
    expires_ms: int | None
    lease_expires_ms: int | None
    worker: str | None
    claimed_ms: int | None
    finished_ms: int | None
    reason: str | None
    error: str | None
    code: str | None
    result: Any
    group: str | None = None

    run_at = Moment[datetime]("run_ms")
    """The time at which it is or was due."""
    enqueued_at = Moment[datetime]("enqueued_ms")
    """The time at which it was enqueued."""
    expires_at = Moment[datetime | None]("expires_ms")
    """The time after which no worker gets it."""
    lease_expires_at = Moment[datetime | None]("lease_expires_ms")
    """The time until which its worker holds it, while it runs."""
    claimed_at = Moment[datetime | None]("claimed_ms")
    """The time at which its latest run began."""
    finished_at = Moment[datetime | None]("finished_ms")
    """The time at which it was done, or died."""

    @property
    def died_at(self) -> datetime | None:
        """The time at which it died, if it is dead."""
        return self.finished_at if self.state == "dead" else None


class Consumer(msgspec.Struct, frozen=True):
    """A consumer of a stream: its saved offset, and the number of events after it."""

    name: str
    offset: int
    lag: int
    updated_ms: int

    updated_at = Moment[datetime]("updated_ms")
    """The time at which the offset was last saved."""


class GroupMember(msgspec.Struct, frozen=True):
    """A member of a consumer group: its number, the name of its process, and how many partitions it has."""

    member: int
    name: str
    paused: bool
    partitions: int


class GroupPartition(msgspec.Struct, frozen=True):
    """A partition of a consumer group: its position, what it has still to handle, and the number of its member.

    ``state`` is ``open``; ``full`` while it waits because too many events are parked; or ``stopped`` until the group is
    resumed.
    """

    partition: int
    offset: int
    lag: int
    parked: int
    member: int | None
    state: Literal["open", "full", "stopped"]


class Group(msgspec.Struct, frozen=True):
    """A consumer group of a stream, with its members and partitions.

    *lag* is the number of events that were not handed out yet; beyond 10,000, those of the partitions are estimates.
    """

    name: str
    paused: bool
    lag: int
    parked: int
    max_parked: int
    members: list[GroupMember]
    partitions: list[GroupPartition]


class PipelineInfo(msgspec.Struct, frozen=True):
    """A pipeline: its source and sink, last batch, total rows, lag in events, and state.

    ``state`` is ``running``, ``done`` or ``failed``; one that was killed is ``running`` since ``updated_at``.
    """

    name: str
    source: str
    sink: str
    state: str
    batch: int | None
    rows: int
    lag: int | None
    error: str | None
    started_ms: int
    updated_ms: int

    started_at = Moment[datetime]("started_ms")
    """The time at which it was last started."""
    updated_at = Moment[datetime]("updated_ms")
    """The time at which it last reported."""


class Message(msgspec.Struct, Generic[P], frozen=True):
    """A message of an outbox, as it is delivered.  *message_id* is the same at every attempt."""

    message_id: str
    outbox: str
    key: str | None
    payload: P
    headers: dict[str, str]
    attempt: int
    enqueued_ms: int

    enqueued_at = Moment[datetime]("enqueued_ms")
    """The time at which it was added, by the database's clock."""


class Schedule(msgspec.Struct, frozen=True):
    """A schedule: *when* it fires, in the zone *tz*, and the task that each fire creates.

    *expires* is in seconds.  *fired* and *skipped* count its fires, and those that were missed.
    """

    name: str
    when: str
    tz: str
    queue: str
    payload: Any
    headers: dict[str, str]
    priority: int
    expires: float | None
    max_attempts: int | None
    catch_up: CatchUp
    paused: bool
    next_ms: int | None
    last_ms: int | None
    fired: int
    skipped: int

    next_at = Moment[datetime | None]("next_ms")
    """The time at which it fires next; None while it is paused."""
    last_at = Moment[datetime | None]("last_ms")
    """The time of its last fire, which is the task's ``run_at``."""


SCHEDULE, FIRE = "eventkit-schedule", "eventkit-fire"
"""The headers of a task that a schedule created: its name, and the time of the fire."""


class Fire(msgspec.Struct, frozen=True):
    """A fire of a schedule, and the task that it created."""

    schedule: str
    queue: str
    fire_ms: int
    task_id: int

    moment = Moment[datetime]("fire_ms")
    """The time at which it was due."""


class Enqueued(NamedTuple):
    """The task's id, and whether this call created it; False means its key was taken, by that id."""

    id: int
    created: bool


class NewEvent(msgspec.Struct, frozen=True):
    """An event for `publish_many`, with the keywords of `publish`."""

    payload: Any
    key: str | None = None
    headers: Mapping[str, str] | None = None
    dedup: str | None = None


class NewTask(msgspec.Struct, frozen=True):
    """A task for `enqueue_many`, with the keywords of `enqueue`; and for ``ack(then=)``, if it names its *queue*.

    `TaskQueue.new` makes one that does, with its payload validated and encoded.
    """

    payload: Any
    delay: Duration | None = None
    run_at: datetime | None = None
    priority: int = 0
    max_attempts: int | None = None
    expires: Duration | datetime | None = None
    key: str | None = None
    headers: Mapping[str, str] | None = None
    group: str | None = None
    queue: str | None = None


DAY = 86_400.0


class StreamSettings(msgspec.Struct, frozen=True):
    """The retention of a stream, its maximum number of events, and whether unconsumed events are kept.

    None means for ever, and all.
    """

    keep: float | None = None
    keep_count: int | None = None
    keep_unconsumed: bool = True


class ChannelSettings(msgspec.Struct, frozen=True):
    """The retention of a channel, and its maximum number of notifications; None means for ever, and all."""

    keep: float | None = DAY
    keep_count: int | None = None


class InboxSettings(msgspec.Struct, frozen=True):
    """The retention of the ids of seen messages; None means for ever."""

    keep: float | None = None


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a queue.  None stands for the default."""

    max_attempts: int | None = None
    lease: float | None = None
    retry: Policy | None = None
    max_size: int | None = None
    rate: float | None = None
    burst: float | None = None
    max_running: int | None = None
    keep_done: float | None = None
    keep_dead: float | None = None
    key_ttl: float | None = None
    dead_letter_to: str | None = None
    history: bool = False
    max_bytes: int | None = None
    strict_keys: bool = False
    enqueue_rate: float | None = None
    enqueue_burst: float | None = None
    ordered: bool = False
    on_dead: OnDead = "continue"
    fair: bool = False
    group_max_running: int | None = None
    group_rate: float | None = None
    weights: dict[str, float] = {}


def seconds(milliseconds: int | None) -> float | None:
    """Return a duration of the database in seconds."""
    return None if milliseconds is None else milliseconds / 1000


class Diagnostic(msgspec.Struct, frozen=True):
    """A diagnostic of a database: *level* is ``good``, ``doubtful`` or ``bad``, *remedy* says what to do about it."""

    level: str
    what: str
    remedy: str = ""


class DeadTasks(msgspec.Struct, frozen=True):
    """The dead tasks of a queue with the same *reason*, *code* and *error*: their *number*, and the id of the last."""

    reason: str
    code: str | None
    error: str | None
    number: int
    first_ms: int
    last_ms: int
    last_id: int

    first_at = Moment[datetime]("first_ms")
    """The time at which the first of them died."""
    last_at = Moment[datetime]("last_ms")
    """The time at which the last of them died."""


class Maintained(msgspec.Struct, frozen=True):
    """The result of `EventKit.maintain`.

    It counts the due, lapsed or expired tasks that were *moved*, and the deleted rows: *done* and *dead* tasks whose
    retention has ended, *results*, rate limit windows and token buckets (*limits*), reservations of *keys*, *events*
    and *notifications*, ids of messages in an *inbox*, rows *staged* for a batch that was never written, and marks of
    *written* batches.
    """

    moved: int
    done: int
    dead: int
    results: int
    limits: int
    keys: int
    events: int
    notifications: int
    inbox: int
    staged: int
    written: int


class TaskLook(msgspec.Struct, frozen=True):
    """A task as shown in a list, with the beginning of its payload's JSON text and of its error."""

    id: int
    state: str
    key: str | None
    payload: str
    payload_length: int
    priority: int
    attempt: int
    max_attempts: int
    run_ms: int
    enqueued_ms: int
    lease_expires_ms: int | None
    worker: str | None
    claimed_ms: int | None
    finished_ms: int | None
    reason: str | None
    error: str | None


class EventLook(msgspec.Struct, frozen=True):
    """An event as shown in a list, with the beginning of its payload's JSON text."""

    offset: int
    key: str | None
    payload: str
    payload_length: int
    headers: Mapping[str, str]
    created_ms: int


class WorkerInfo(msgspec.Struct, frozen=True):
    """A worker: the *queues* it claims from, its *slots*, and how many of its tasks are *running*.

    *leased* is the number of tasks leased to it; of all workers together, 10,000 are counted.  A worker outside an
    `App` has only that number, and neither slots nor times.
    """

    name: str
    queues: list[str]
    slots: int | None
    running: int | None
    leased: int
    started_ms: int | None
    seen_ms: int | None
    oldest_claim_ms: int | None
    alive: bool

    started_at = Moment[datetime | None]("started_ms")
    """The time at which it began."""
    seen_at = Moment[datetime | None]("seen_ms")
    """The time at which it last reported, which it does every ten seconds while it is *alive*."""
    oldest_claim_at = Moment[datetime | None]("oldest_claim_ms")
    """The time at which it claimed the task that it has held longest."""


class ClusterLimit(msgspec.Struct, frozen=True):
    """A limit over several queues: at most *max_running* of their tasks run at once, in all workers together."""

    name: str
    max_running: int
    queues: list[str]
    running: int


class LimitInfo(msgspec.Struct, frozen=True):
    """A limit that holds a count: a window of *per* seconds, or a token bucket, for which *per* is None.

    *amount* is how many calls the window has counted, or how many tokens the bucket had when it was last used; *until*
    is when the window ends, or when the bucket is full again at the latest.
    """

    name: str
    per: float | None
    amount: float
    counted_ms: int
    until_ms: int

    counted_at = Moment[datetime]("counted_ms")
    """The time at which it was last used."""
    until = Moment[datetime]("until_ms")
    """The time at which the window ends, or the bucket is full again."""


class QueueStats(msgspec.Struct, frozen=True):
    """The numbers of a queue.  *oldest_ready_age* is in seconds, None if no task is ready.

    Each state is counted up to 10,000.  *approximate* says that a count was cut off: a 10,000 then means "at least so
    many", and due tasks that were not moved yet are counted in part.  `TaskQueue.size` counts all.
    """

    scheduled: int
    ready: int
    running: int
    dead: int
    done: int
    oldest_ready_age: float | None
    paused: bool
    approximate: bool


class OutboxStats(msgspec.Struct, frozen=True):
    """The numbers of an outbox.  *oldest_age* is that of the oldest message that is not delivered, in seconds.

    For the last minute, in this kit: how many messages were *delivered*, how many attempts *failed*, and the mean
    *latency* of those delivered, in seconds from `add`.
    """

    pending: int
    delivering: int
    dead: int
    oldest_age: float | None
    delivered: int
    failed: int
    latency: float | None


class StreamStats(msgspec.Struct, frozen=True):
    """The numbers of a stream: its *head*, the number of *events* it keeps, and its *consumers* by name.

    Events, and the lag of each consumer, are counted up to 10,000; *approximate* says that a count was cut off.
    """

    head: int
    events: int
    consumers: list[Consumer]
    approximate: bool


class ScheduleStats(msgspec.Struct, frozen=True):
    """The numbers of a schedule: the *queue* of its tasks, and how many of its fires were *fired* and *skipped*."""

    queue: str
    next_ms: int | None
    last_ms: int | None
    fired: int
    skipped: int

    @property
    def paused(self) -> bool:
        """True if it does not fire."""
        return self.next_ms is None

    next_at = Moment[datetime | None]("next_ms")
    """The time at which it fires next; None while it is paused."""
    last_at = Moment[datetime | None]("last_ms")
    """The time of its last fire; None before the first."""


class HeldLock(msgspec.Struct, frozen=True):
    """A held lock: the *holder*'s worker name and *fence*."""

    holder: str
    fence: int
    until_ms: int

    until = Moment[datetime]("until_ms")
    """The time at which it expires, unless it is renewed."""


class ChannelInfo(msgspec.Struct, frozen=True):
    """A channel: the id of its last notification, 0 if none is stored, and how many are stored, up to 10,000."""

    name: str
    head: int
    notifications: int


class Overview(msgspec.Struct, frozen=True):
    """The numbers of a whole kit, each by name.

    *queues* that have tasks or settings; *streams* that have or had events, or have consumers; *schedules*; held
    *locks*; and the number of *results*, up to 10,000.  *approximate* says that a count was cut off.
    """

    queues: dict[str, QueueStats]
    streams: dict[str, StreamStats]
    schedules: dict[str, ScheduleStats]
    locks: dict[str, HeldLock]
    results: int
    approximate: bool

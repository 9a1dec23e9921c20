"""The public interface of eventkit as types: read this page first.

Terms.  A *payload* is a JSON value.  A *key* orders events, or makes a task unique.  A *lease* is a worker's right to a
task until a given time.  An *attempt* is the number of the current run, starting at 1.  An *offset* is a position in a
stream, an integer.  *tx* is the caller's own transaction.  Durations are seconds, as a number or a timedelta; times are
timezone-aware datetimes.

`eventkit.connect(url)` returns an `EventKit`, whose calls block; `eventkit.connect_async(url)` returns an
`AsyncEventKit`, whose calls are awaited.  Both have the same names, arguments and results; `protocols_async` has the
types of the second.

With ``tx=``, a call runs on the caller's connection and inside the caller's transaction: it commits and rolls back with
it.  Without, the call is a transaction of its own, committed when it returns.

The module is long because a reader needs all of it: the kit first, then its handles.  `backend` is for authors of
backends.
"""

# A method of a protocol has no body, for which pyright would ask for an ellipsis after the docstring.
# pyright: reportReturnType=false

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol, Self, TypeVar, overload

from .backend import Admin as Admin
from .backend import AsyncConnection as AsyncConnection
from .backend import Backend as Backend
from .backend import Bulk as Bulk
from .backend import Connection as Connection
from .checks import KEEP, NO_RESULT, Duration, Headers
from .protocols_async import AsyncEventKit as AsyncEventKit
from .protocols_async import AsyncEventStream as AsyncEventStream
from .protocols_async import AsyncInbox as AsyncInbox
from .protocols_async import AsyncLimit as AsyncLimit
from .protocols_async import AsyncLock as AsyncLock
from .protocols_async import AsyncNotificationChannel as AsyncNotificationChannel
from .protocols_async import AsyncOutbox as AsyncOutbox
from .protocols_async import AsyncResults as AsyncResults
from .protocols_async import AsyncSchedules as AsyncSchedules
from .protocols_async import AsyncSubscription as AsyncSubscription
from .protocols_async import AsyncTaskQueue as AsyncTaskQueue
from .retry import Policy, PolicyName
from .values import (
    CatchUp,
    ChannelInfo,
    ChannelSettings,
    ChannelStart,
    Claimed,
    ClusterLimit,
    Consumer,
    DeadTasks,
    Enqueued,
    Event,
    Fire,
    Group,
    GroupStart,
    InboxSettings,
    LimitInfo,
    Maintained,
    Message,
    NewEvent,
    NewTask,
    Notification,
    OnDead,
    OnTruncated,
    OutboxStats,
    Overview,
    QueueSettings,
    QueueStats,
    Schedule,
    StreamSettings,
    StreamStart,
    Task,
    TaskInfo,
    TaskState,
    WorkerInfo,
)

P = TypeVar("P")
M_co = TypeVar("M_co", covariant=True)


class Subscription(Protocol[M_co]):
    """An iterator that waits for the next item; it ends when it or its kit is closed."""

    def __iter__(self) -> Generator[M_co]: ...
    def __next__(self) -> M_co: ...

    def next(self, timeout: Duration | None = None) -> M_co:
        """Return the next item; raise `TimedOut` if none arrives in *timeout* seconds.  The call may be repeated."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

    def close(self) -> None:
        """End the iteration: save the offset of handled events, and release tasks that were not handed out.

        Any thread may close it, and so may a signal handler that interrupts a waiting step; that step then ends.
        """


class Member(Subscription[M_co], Protocol[M_co]):
    """The events of one member of a consumer group; see `EventStream.join`."""

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions that this member has now, numbered from 1."""

    @property
    def attempt(self) -> int:
        """The number of the attempt at the event in progress, from 1."""

    def save(self, event: Event[Any], *, tx: Any = None) -> None:
        """Save the position after the event in progress; raise `LeaseLost` if its partition has moved.

        With *tx*, the effects of the event and its position commit together: exactly once.
        """

    def retry(self, event: Event[Any], *, delay: Duration | None = None) -> None:
        """Hand the event in progress out again after *delay*, by default longer after each attempt.

        Later events of its key wait behind it, also after a crash, and in another member.
        """

    def hold(self, event: Event[Any]) -> None:
        """Stop the partition of the event in progress, which is handed out again when the group is resumed."""

    def pause(self) -> None:
        """Leave the partitions to other members from the next event on."""

    def resume(self) -> None:
        """Take part again."""


class EventKit(Protocol):
    """A database with eventkit in it.  Handles are cheap, may be kept, and may be shared by threads."""

    @overload
    def stream(self, name: str) -> EventStream[Any]: ...
    @overload
    def stream(self, name: str, *, type: type[P]) -> EventStream[P]: ...

    @overload
    def queue(self, name: str) -> TaskQueue[Any]: ...
    @overload
    def queue(self, name: str, *, type: type[P]) -> TaskQueue[P]: ...

    @overload
    def channel(self, name: str) -> NotificationChannel[Any]: ...
    @overload
    def channel(self, name: str, *, type: type[P]) -> NotificationChannel[P]: ...

    @overload
    def outbox(
        self, name: str, *, deliver: Callable[[Message[Any]], object] | None = None, ordered: bool = False
    ) -> Outbox[Any]: ...
    @overload
    def outbox(
        self, name: str, *, deliver: Callable[[Message[P]], object] | None = None, ordered: bool = False, type: type[P]
    ) -> Outbox[P]: ...

    def work(
        self,
        queues: Iterable[str | tuple[str, float]],
        worker: str | None = None,
        *,
        strict: bool = False,
        batch: int = 1,
        lease: Duration | None = None,
    ) -> Subscription[Task[Any]]:
        """Iterate over the tasks of several queues for ever, claiming up to *batch* at a time from one of them.

        *queues* are names, or names with weights: of two queues that have tasks, the one with twice the weight gets
        twice as many claims, and no queue starves.  With *strict*, a queue is served only while the queues listed
        before it are empty.  Within a queue, the order is that of `TaskQueue.work`.
        """

    def inbox(self, consumer: str) -> Inbox: ...

    def lock(self, name: str, ttl: Duration = 60, *, holder: str | None = None) -> Lock:
        """Return a lock among all processes, not acquired yet.

        Its holder loses it after *ttl* seconds unless it renews it.  Those that find it held are shown the name
        *holder*, by default the host and the process.
        """

    @overload
    def limit(self, name: str, *, count: int, per: Duration) -> Limit: ...
    @overload
    def limit(self, name: str, *, rate: float, burst: float | None = None) -> Limit: ...

    @property
    def results(self) -> Results:
        """The results of tasks, and other named values."""

    @property
    def schedules(self) -> Schedules:
        """The schedules of the database."""

    def run_scheduler(self) -> None:
        """Fire schedules when they are due, until the kit is closed.  Any number of processes may run it."""

    def maintain(self) -> Maintained:
        """Move due and expired tasks in all queues, and delete expired rows.

        Each transaction changes at most 1,000 rows, so that other writers can proceed.  Any number of processes may run
        it.
        """

    def run_maintenance(self, every: Duration = 60) -> None:
        """Call `maintain` once in *every* seconds until the kit is closed; of several processes, one does it."""

    def changes(self) -> Subscription[None]:
        """Iterate over the commits of the database from this call on, by any program, to any table.

        Commits that follow one another closely share an item: each item says that something was committed since the
        last one was handed out.  Now and then an item arrives without a commit to this database.
        """

    def channels(self) -> list[ChannelInfo]:
        """Return the channels that have notifications or settings, by name."""

    def prune_channels(self, *, older_than: Duration | None = None, keep_count: int | None = None) -> int:
        """Call `NotificationChannel.prune` for each channel; return the number of deleted notifications."""

    def overview(self) -> Overview:
        """Return the numbers of all queues, streams, schedules, locks and results, from one statement."""

    def workers(self) -> list[WorkerInfo]:
        """Return the workers by name: those of an `App`, which report every ten seconds, and holders of leases."""

    def cluster_limit(self, name: str, max_running: int | None, *, queues: Iterable[str] = ()) -> None:
        """Let at most *max_running* tasks of all *queues* run at once, in all workers together.

        The call replaces a limit of that name; None, without queues, deletes it.  A queue may have several limits.
        """

    def cluster_limits(self) -> list[ClusterLimit]:
        """Return the limits over several queues by name, with the number of their running tasks."""

    def limits(self, limit: int = 1000) -> list[LimitInfo]:
        """Return the rate limit windows and token buckets that hold a count at present, by name."""

    def listen(self, *channels: str, start: ChannelStart | int = "latest") -> Subscription[Notification[Any]]:
        """Listen to several channels at once."""

    def transaction(self) -> AbstractContextManager[Any]:
        """Open a transaction for ``tx=`` without SQLAlchemy: it commits at the end, and rolls back on an error."""

    def async_(self) -> AsyncEventKit:
        """Return an async view of this kit, which makes each call on this kit's connections, in a thread.

        It has iterators of its own.  Closing it leaves this kit open; close it first, or its iterators save nothing.
        """

    def close(self) -> None:
        """Save the consumers' offsets, end every iterator, and close the database.  May be called again."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...


class EventStream(Protocol[P]):
    """A stream: events in the order of their offsets, kept until they are pruned."""

    name: str

    def publish(
        self, payload: P, *, key: str | None = None, headers: Headers = None, dedup: str | None = None, tx: Any = None
    ) -> int:
        """Append an event; return its offset.

        Offsets grow, are never reused once committed, and may have gaps.  A reader that has read up to an offset never
        later finds an event at or below it.  Publishing a *dedup* id that the stream still holds writes nothing and
        returns the first event's offset.
        """

    def publish_many(self, items: Iterable[P | NewEvent], *, tx: Any = None) -> list[int]:
        """Append events, all or none, in this order; return their offsets."""

    def read(self, after: int = 0, limit: int = 1000, *, on_truncated: OnTruncated = "raise") -> list[Event[P]]:
        """Return the first *limit* events after the offset *after*.

        If events after *after* were pruned, raise `Truncated`, unless ``on_truncated="skip"`` or *after* is 0.
        """

    def subscribe(
        self,
        consumer: str | None = None,
        *,
        start: StreamStart | int | datetime = "committed",
        batch: int = 1000,
        save_every_n: int = 1000,
        save_every_s: Duration = 1.0,
        on_truncated: OnTruncated = "raise",
        exclusive: bool = True,
    ) -> Subscription[Event[P]]:
        """Iterate over the existing events and then the new ones, without a gap or a duplicate.

        *start* is ``"committed"`` (after the consumer's saved offset), ``"earliest"``, ``"latest"``, an offset or a
        time.  An event counts as handled when the loop asks for the next one.  The consumer's offset is saved every
        *save_every_n* events, every *save_every_s* seconds, when no event is waiting, and at the end; with both 0,
        never.

        A consumer's name has one holder at a time, which gets the events.  Another subscriber waits as a standby, and
        continues from the saved offset when the holder ends or dies.  A holder that was replaced gets `LeaseLost`.
        With *exclusive* false, every subscriber gets all events, even under the same name.
        """

    def offset(self, consumer: str) -> int:
        """Return the consumer's saved offset; 0 if it has none."""

    def save_offset(self, consumer: str, offset: int, *, tx: Any = None) -> bool:
        """Move the consumer forward; return False if it is already at or beyond *offset*."""

    def seek(self, consumer: str, offset: int, *, tx: Any = None) -> None:
        """Move the consumer to any offset."""

    def remove_consumer(self, consumer: str, *, tx: Any = None) -> bool:
        """Remove a consumer with its offset, so that it no longer keeps events; return whether there was one.

        A subscription under this name that is running creates it again with its next save.
        """

    def head(self) -> int:
        """Return the highest offset at or below which no new event can appear; 0 for a new stream."""

    def offset_at(self, moment: datetime) -> int:
        """Return the *after* with which `read` returns all events created at or after *moment*."""

    def consumers(self) -> list[Consumer]:
        """Return the consumers that have saved an offset, by name."""

    def join(
        self,
        group: str,
        *,
        partitions: int | None = None,
        start: GroupStart | int | datetime = "earliest",
        lease: Duration = 12.0,
        batch: int = 1000,
        save_every_s: Duration = 1.0,
        max_parked: int | None = None,
        on_truncated: OnTruncated = "raise",
    ) -> Member[Event[P]]:
        """Iterate as a member of a consumer group, whose members share the events: in order for each key.

        The first member creates the group with *partitions*, 64 by default, from *start* on.  Each partition belongs to
        one member at a time, and each key to one partition.  An event counts as handled when the loop asks for the next
        one.  If a member dies, the others get its partitions when its *lease* has ended.  A member that has lost a
        partition raises `LeaseLost`.  At most *max_parked* events of a partition wait for a failed one, 1,000 by
        default; then the partition waits.
        """

    def groups(self) -> list[Group]:
        """Return the consumer groups, by name, with members, partitions, lags and parked events."""

    def pause_group(self, group: str) -> bool:
        """Stop handing out events to a group; return whether there is one of the name."""

    def resume_group(self, group: str) -> bool:
        """Continue a group, with the partitions that were stopped; return whether there is one of the name."""

    def drain_group(self, group: str, *, timeout: Duration | None = None) -> bool:
        """Wait until a group has handled all events that there are now, and none is parked; return whether it has."""

    def reset_group(self, group: str, to: GroupStart | int | datetime) -> bool:
        """Move a group to an offset or a time, and forget its parked events; return whether there is one of the name.

        Its members raise `LeaseLost`.
        """

    def remove_group(self, group: str) -> bool:
        """Remove a group with its positions and parked events; return whether there was one of the name."""

    def prune(
        self, *, older_than: Duration | None = None, keep_count: int | None = None, keep_unconsumed: bool = True
    ) -> int:
        """Delete events older than *older_than*, and all but the newest *keep_count*; return their number.

        With *keep_unconsumed*, events that a consumer has still to read are kept.
        """

    def configure(
        self, *, keep: Duration | None = KEEP, keep_count: int | None = KEEP, keep_unconsumed: bool | None = KEEP
    ) -> None:
        """Store what `EventKit.maintain` prunes: events older than *keep*, and all but the newest *keep_count*.

        None restores the default: keep all events for ever, and keep those that a consumer has still to read.  Omitted
        settings stay as they are.
        """

    def settings(self) -> StreamSettings:
        """Return the stream's settings."""


class TaskQueue(Protocol[P]):
    """A queue: a worker runs each task until it is acked, fails for good, or has used up its attempts."""

    name: str

    def enqueue(
        self,
        payload: P,
        *,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        expires: Duration | datetime | None = None,
        key: str | None = None,
        headers: Headers = None,
        group: str | None = None,
        wait: Duration | None = None,
        tx: Any = None,
    ) -> Enqueued:
        """Add a task; return its id, and whether this call created it.

        The task is due after *delay*, or at *run_at*, or now; no worker gets it after *expires*.  While a task with the
        same *key* is live or dead, and for the queue's ``key_ttl`` after it was enqueued, no second one is created.  If
        the queue is full, wait up to *wait* seconds for room, then raise `QueueFull`.  The tasks of a *group* are
        handed out as the queue's settings ``ordered``, ``fair``, ``group_max_running`` and ``group_rate`` say.
        """

    def enqueue_many(
        self, items: Iterable[P | NewTask], *, wait: Duration | None = None, tx: Any = None
    ) -> list[Enqueued]:
        """Add tasks, all or none; return one answer for each.

        If there is no room for all of them, wait up to *wait* seconds, then raise `QueueFull`; for more tasks than
        ``max_size``, raise it at once.
        """

    def claim(
        self, worker: str, limit: int = 1, *, lease: Duration | None = None, wait: Duration = 0, tx: Any = None
    ) -> list[Task[P]]:
        """Lease up to *limit* tasks: higher priority first, then earlier due, then lower id.

        Wait up to *wait* seconds for the first one.  Another worker can claim a task once its lease has run out.
        """

    def receive(self, limit: int = 1, *, tx: Any = None) -> list[Task[P]]:
        """Claim and delete tasks in one step: each is delivered at most once, and is lost if this process dies."""

    def new(
        self,
        payload: P,
        *,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        expires: Duration | datetime | None = None,
        key: str | None = None,
        headers: Headers = None,
        group: str | None = None,
    ) -> NewTask:
        """Return a validated task of this queue, not enqueued yet, for ``ack(then=)`` or the queue's `enqueue_many`."""

    def ack(self, task: Claimed, *, result: Any = NO_RESULT, then: Iterable[NewTask] = (), tx: Any = None) -> bool:
        """Finish a task; return False if its lease has run out.

        A process that has only the id and the token of a claimed task passes both as a pair: ``ack((id, token))``.  The
        same holds for `ack_many`, `retry`, `fail`, `release`, `snooze` and `extend`.

        The task is deleted, or kept for the queue's ``keep_done``.  A *result*, which may be None, is saved under the
        task's id for `Results.get` and `Results.wait`: for an hour, or for as long as the task is kept if that is
        longer.  The tasks in *then*, made by `new` and of any queue, are enqueued in the same step; a task whose key is
        taken is not enqueued again.
        """

    def ack_many(
        self, tasks: Iterable[Claimed], *, results: Mapping[int, Any] | None = None, tx: Any = None
    ) -> list[int]:
        """Finish tasks; return the ids of those whose lease had not run out.

        *results* maps the ids of tasks to the results to save.
        """

    def retry(
        self,
        task: Claimed,
        *,
        delay: Duration | None = None,
        error: str | None = None,
        code: str | None = None,
        tx: Any = None,
    ) -> bool:
        """Put a task back for another attempt, after *delay* or by the queue's retry policy.

        A task that has used up its attempts is dead.  Return False if its lease has run out.  *code* is a short name of
        the failure for programs, and *error* its text.
        """

    def fail(self, task: Claimed, error: str, *, code: str | None = None, tx: Any = None) -> bool:
        """Mark a task dead now; return False if its lease has run out.

        *code* is a short name of the failure for programs, by default ``FAILED``.
        """

    def release(self, task: Claimed, *, tx: Any = None) -> bool:
        """Put a task back as if it had not been claimed; return False if its lease has run out."""

    def snooze(self, task: Claimed, delay: Duration, *, tx: Any = None) -> bool:
        """Put a task back, due in *delay* seconds, as if it had not been claimed; False if its lease has run out."""

    def extend(self, task: Claimed, seconds: Duration, *, tx: Any = None) -> bool:
        """Set the lease to end *seconds* from now; return False if it has run out."""

    def cancel(self, id: int, running: bool = False, *, tx: Any = None) -> bool:
        """Delete a waiting task, or with *running* a running one; return False if there is none.

        For a running task, a notification with its *queue* and *id* goes to the channel ``eventkit:cancelled``.
        """

    def work(
        self, worker: str | None = None, *, batch: int = 1, lease: Duration | None = None
    ) -> Subscription[Task[P]]:
        """Iterate over tasks for ever, claiming up to *batch* at a time."""

    def handling(self, task: Task[P]) -> AbstractContextManager[Task[P], bool]:
        """Extend the task's lease while the body runs, and ack the task at the end.

        The body raises `Retry`, `Snooze` or `Permanent` to choose another outcome.  Any other `Exception` is logged and
        suppressed, and the task is retried by the queue's policy.  A `BaseException` releases the task and propagates.
        """

    def get(self, id: int) -> TaskInfo[P] | None:
        """Return the task with this id, in any state; None if there is none."""

    def peek(self, limit: int = 1) -> list[TaskInfo[P]]:
        """Return the tasks that a claim would return, in its order."""

    def dead(self, limit: int = 100) -> list[TaskInfo[P]]:
        """Return dead tasks, newest first."""

    def dead_by_error(self, limit: int = 100) -> list[DeadTasks]:
        """Return the number of dead tasks for each reason, code and error, highest first."""

    def stats(self) -> QueueStats:
        """Return the queue's numbers."""

    def size(self) -> int:
        """Return the number of scheduled, ready and running tasks."""

    def next_due(self) -> datetime | None:
        """Return when the next waiting task is or was due; None if no task waits."""

    def sweep(self) -> int:
        """Move due and expired tasks, as the next claim would; return their number."""

    def purge(self, state: TaskState = "ready") -> int:
        """Delete the tasks in one state; return their number."""

    def purge_dead(self, older_than: Duration | None = None) -> int:
        """Delete dead tasks, or only those that died longer ago than *older_than*; return their number."""

    def requeue(self, ids: Iterable[int] | None = None) -> int:
        """Make dead tasks, all or those with these ids, ready again with their attempts reset; return their number."""

    def pause(self) -> None:
        """Stop handing out tasks until `resume`; the queue still accepts them."""

    def resume(self) -> None:
        """Hand out tasks again."""

    def configure(
        self,
        *,
        max_attempts: int | None = KEEP,
        lease: Duration | None = KEEP,
        retry: Policy | PolicyName | Sequence[float] | None = KEEP,
        max_size: int | None = KEEP,
        rate: float | None = KEEP,
        burst: float | None = KEEP,
        max_running: int | None = KEEP,
        keep_done: Duration | None = KEEP,
        keep_dead: Duration | None = KEEP,
        key_ttl: Duration | None = KEEP,
        dead_letter_to: str | None = KEEP,
        history: bool | None = KEEP,
        max_bytes: int | None = KEEP,
        strict_keys: bool | None = KEEP,
        enqueue_rate: float | None = KEEP,
        enqueue_burst: float | None = KEEP,
        ordered: bool | None = KEEP,
        on_dead: OnDead | None = KEEP,
        fair: bool | None = KEEP,
        group_max_running: int | None = KEEP,
        group_rate: float | None = KEEP,
        weights: Mapping[str, float] | None = KEEP,
    ) -> None:
        """Store settings of the queue, which every process follows from then on.

        None restores the default.  Omitted settings stay as they are.  With *ordered*, one task of a group runs at a
        time, in the order of enqueueing, after a dead one if *on_dead* is ``"continue"``; tasks have no priority then.
        With *fair*, the groups take turns, by their *weights*.  At most *group_max_running* tasks of a group run at
        once, and *group_rate* start a second.
        """

    def settings(self) -> QueueSettings:
        """Return the queue's settings."""

    def drop(self, *, force: bool = False) -> bool:
        """Delete the queue: its settings, its keys, and its finished tasks.

        If it has other tasks, change nothing and return False, unless *force* deletes those too.
        """

    def tasks(
        self, state: TaskState | None = None, limit: int = 100, after: int = 0, *, group: str | None = None
    ) -> list[TaskInfo[P]]:
        """Return tasks in the order of their ids, from after the id *after*: those in one state, or of one *group*."""


class NotificationChannel(Protocol[P]):
    """A channel: its listeners receive the notifications that are committed while they listen."""

    name: str

    def notify(self, payload: P, *, headers: Headers = None, tx: Any = None) -> int:
        """Send a notification to all listeners; return its id.  Ids grow."""

    def listen(self, *, start: ChannelStart | int = "latest") -> Subscription[Notification[P]]:
        """Iterate over the notifications that are committed after this call.

        *start* may also be ``"earliest"``, or the id after which to start.
        """

    def head(self) -> int:
        """Return the id of the last stored notification at or below which no new one can appear; 0 if there is none."""

    def prune(self, *, older_than: Duration | None = None, keep_count: int | None = None) -> int:
        """Delete notifications older than *older_than*, and all but the newest *keep_count*; return their number."""

    def configure(self, *, keep: Duration | None = KEEP, keep_count: int | None = KEEP) -> None:
        """Store what `EventKit.maintain` prunes: notifications older than *keep*, and all but the newest *keep_count*.

        By default, a channel keeps one day.  None means to keep all of them for ever.  Omitted settings stay as they
        are.
        """

    def settings(self) -> ChannelSettings:
        """Return the channel's settings."""


class Outbox(Protocol[P]):
    """An outbox: messages written in the application's transactions, and delivered elsewhere once these commit.

    The worker of an `App` delivers them with the function that ``@app.outbox`` declares, or `run` does with *deliver*.

    Each message is delivered at least once, with the same ``message_id`` at every attempt.  With ``ordered=True``, the
    messages of one key are delivered one after the other, in the order in which they were added.
    """

    name: str

    @property
    def queue(self) -> TaskQueue[P]:
        """The queue of the outbox's messages: its settings, its dead tasks, `pause` and `resume`."""

    def add(
        self,
        payload: P,
        *,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        priority: int = 0,
        expires: Duration | datetime | None = None,
        key: str | None = None,
        headers: Headers = None,
        tx: Any = None,
    ) -> str:
        """Add a message, usually inside the caller's transaction; return its ``message_id``.

        The options are those of `TaskQueue.enqueue`, except that *key* is not unique: it is the key of the order.
        """

    def run(self, worker: str | None = None, *, batch: int = 1) -> None:
        """Call *deliver* with each message, until `stop` or the kit is closed, claiming up to *batch* at a time.

        A delivery succeeds when *deliver* returns.  When it raises, the message is retried after 5, 10, 20 and 40
        seconds, and is dead after that, with the traceback, unless the queue is configured otherwise.
        *deliver* may raise `Retry` and `Permanent`.  At the end, the delivery in progress is finished, and the other
        claimed messages are released.
        """

    def stop(self) -> None:
        """End every `run` of this handle, later ones too.  Any thread may call it; it does not wait."""

    def stats(self) -> OutboxStats:
        """Return the outbox's numbers."""


class Inbox(Protocol):
    """The messages that a consumer has seen, so that a message delivered twice has one effect."""

    consumer: str

    def once(self, message_id: str, *, tx: Any) -> bool:
        """Return whether the consumer sees the message for the first time: True once, if the transaction commits.

        A caller waits while another transaction holds the same message.
        """

    def prune(self, *, older_than: Duration) -> int:
        """Forget messages seen longer ago; return their number.  A forgotten message counts as new if redelivered."""

    def configure(self, *, keep: Duration | None = KEEP) -> None:
        """Let `EventKit.maintain` forget messages seen longer ago than *keep*; None keeps them for ever."""

    def settings(self) -> InboxSettings:
        """Return the inbox's settings."""


class Schedules(Protocol):
    """The schedules of a database, which create tasks at certain times; any number of processes may fire them.

    A fire is a task that is due at the time of the fire.  Its headers name the schedule (``eventkit-schedule``) and
    that time (``eventkit-fire``).  Each fire creates exactly one task.
    """

    def add(
        self,
        name: str,
        when: str,
        queue: str,
        payload: Any = None,
        *,
        tz: str = "UTC",
        priority: int = 0,
        expires: Duration | None = None,
        max_attempts: int | None = None,
        catch_up: CatchUp = "all",
        paused: bool = False,
        headers: Headers = None,
        tx: Any = None,
    ) -> None:
        """Add a schedule, or replace the one with the same name.

        *when* is a cron expression of five fields, or of six with the seconds first, ``@hourly`` and the like, or an
        interval such as ``"@every 1h30m"``, in the time zone *tz*.  A task *expires* that long after its fire.
        *catch_up* says what to do about fires that were missed because no process was running: ``"all"`` creates the
        first 64 of them, ``"latest"`` the last one, and ``"none"`` only one that is less than a minute late.

        A replaced schedule whose *when* and *tz* are unchanged keeps its next fire, and stays paused.
        """

    def remove(self, name: str, *, tx: Any = None) -> bool:
        """Delete a schedule; return False if there is none with that name."""

    def pause(self, name: str, *, tx: Any = None) -> bool:
        """Stop a schedule until `resume`; return False if there is none with that name."""

    def resume(self, name: str, *, tx: Any = None) -> bool:
        """Let a schedule fire again, from now on; return False if there is none with that name."""

    def update(
        self,
        name: str,
        *,
        when: str = KEEP,
        tz: str = KEEP,
        queue: str = KEEP,
        payload: Any = KEEP,
        priority: int = KEEP,
        expires: Duration | None = KEEP,
        max_attempts: int | None = KEEP,
        catch_up: CatchUp = KEEP,
        paused: bool = KEEP,
        headers: Headers = KEEP,
        tx: Any = None,
    ) -> bool:
        """Change the given settings and keep the others; return False if there is no schedule with that name.

        With a new *when*, the first fire is after now.
        """

    def get(self, name: str) -> Schedule | None:
        """Return a schedule; None if there is none with that name."""

    def soonest(self) -> datetime | None:
        """Return when the next schedule fires; None if none will."""

    def upcoming(self, name: str, count: int = 10) -> list[datetime]:
        """Return the next *count* times at which a schedule fires; none for one that is paused or unknown."""

    def tick(self, now: datetime | None = None, *, tx: Any = None) -> list[Fire]:
        """Fire all due schedules, by the database's clock or at *now*; return the fires.

        With *tx*, all of them are part of that transaction, which other schedulers may have to wait for.
        """

    def next_after(self, when: str, moment: datetime, tz: str = "UTC") -> datetime:
        """Return `eventkit.cron.next_after`: the first fire of *when* after *moment*, in UTC; not awaited."""

    # Last, because a type checker would take ``list`` for this method below it.
    def list(self) -> list[Schedule]:
        """Return all schedules, by name."""


class Lock(Protocol):
    """A lock that has one holder at a time, among all processes, by the database's clock.

    The holder is the handle that acquired it, until it releases the lock or the ttl ends.  The lock is not reentrant.
    Entering the handle acquires the lock or raises `LockHeld`; leaving releases it.
    """

    name: str

    @property
    def fence(self) -> int | None:
        """A number that grows with every holder; None while this handle does not hold the lock.

        Send it to the resource that the lock protects, and let the resource refuse numbers below the highest it has
        seen: then a holder that was suspended for longer than its ttl does no harm.
        """

    def acquire(self, wait: Duration = 0) -> bool:
        """Acquire the lock, waiting up to *wait* seconds for it; return False if another holder still has it."""

    def renew(self, ttl: Duration | None = None) -> bool:
        """Set the lock to expire *ttl* seconds from now, by default the handle's; return False if the lock was lost."""

    def release(self) -> bool:
        """Release the lock; return False if its ttl had ended."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...


class Limit(Protocol):
    """A limit on the calls of all processes: a window with ``count=`` and ``per=``, or a bucket with ``rate=``.

    A window admits the first *count* calls in each *per* seconds of the database's clock.  A bucket gains *rate* tokens
    a second and holds at most *burst*: by default one second's worth, and at least one.
    """

    name: str

    def acquire(self) -> bool:
        """Count a call, or take a token; return False if the limit is reached.  Refused calls do not count."""


class Results(Protocol):
    """The results of tasks, for other processes to wait for; or other values with a name.

    An id is the number of a task, or a string of one's own; 7 and ``"7"`` are two ids.
    """

    def save(self, id: int | str, value: Any, ttl: Duration = 3600, *, tx: Any = None) -> None:
        """Save a value for *ttl* seconds, replacing an earlier one."""

    def get(self, id: int | str, default: Any = None) -> Any:
        """Return the value, which may be None; *default* if there is none."""

    def wait(self, id: int | str, timeout: Duration | None = None) -> Any:
        """Wait until the value is committed, and return it; raise `TimedOut` after *timeout* seconds, if it is given.

        If the id is a task's and the task is dead or dies, raise `TaskFailed` with the reason and the error.
        """

    def sweep(self) -> int:
        """Delete expired results; return their number."""


H = TypeVar("H", bound=type)


def documented(protocol: type) -> Callable[[H], H]:
    """Give the methods of a handle, which implements both flavours of *protocol*, the docstrings written there."""

    def document(handle: H) -> H:
        for name, method in vars(handle).items():
            if (described := getattr(protocol, name, None)) is not None and method.__doc__ is None:
                method.__doc__ = described.__doc__
        return handle

    return document

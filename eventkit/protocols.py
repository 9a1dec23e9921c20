"""The page to read first: what eventkit promises, as types.

Words.  A *payload* is any JSON value.  A *key* orders or makes unique.  A *lease* is the right to a task
until a moment.  An *attempt* is the number of the current run, from 1.  An *offset* is a position in a
stream, an integer.  *tx* is the caller's own transaction.  Durations are seconds, as a number or a
timedelta; moments are timezone-aware datetimes.

`eventkit.connect(url)` gives an `EventKit`, whose calls block; `eventkit.connect_async(url)` an
`AsyncEventKit`, whose calls are awaited.  Both have the same names, arguments and results.

With ``tx=``, a call runs on the caller's connection and inside the caller's transaction: it commits and
rolls back with it.  Without, it is a transaction of its own, committed when it returns.

The last four protocols are for authors of backends.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import Any, Protocol, Self, TypeVar, overload

from .arguments import Duration
from .operations import Operation, Probe
from .records import (
    Consumer,
    DeadLetters,
    Enqueued,
    Event,
    Finding,
    Fire,
    Maintained,
    Message,
    NewEvent,
    NewTask,
    Notification,
    Schedule,
    Task,
    TaskInfo,
)
from .retry import Policy
from .settings import ChannelSettings, InboxSettings, QueueSettings, StreamSettings
from .stats import OutboxStats, Overview, QueueStats

T = TypeVar("T")
P = TypeVar("P")
M_co = TypeVar("M_co", covariant=True)

_KEEP: Any = ...
"""The default of a setting that is left as it is."""

_NO_RESULT: Any = ...
"""The default of a result that there is none of; None would be one."""

Tasks = list[Task[P]]
TaskInfos = list[TaskInfo[P]]
Ids = list[int]


class EventKit(Protocol):
    """A database with eventkit in it.  Handles are cheap, may be kept, and may be shared by threads."""

    @overload
    def stream(self, topic: str) -> EventStream[Any]: ...
    @overload
    def stream(self, topic: str, *, type: type[P]) -> EventStream[P]: ...

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
        self,
        name: str,
        *,
        deliver: Callable[[Message[P]], object] | None = None,
        ordered: bool = False,
        type: type[P],
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

        Names, or names with weights: of two queues that have tasks, the one of twice the weight has twice as many
        handed out, and none waits for ever.  With *strict*, a queue has its turn when those named before it have
        nothing.  Within a queue, the order is that of `TaskQueue.work`.
        """
        ...

    def inbox(self, consumer: str) -> Inbox: ...

    def lock(self, name: str, ttl: Duration = 60) -> Lock:
        """A lock among all processes, to be acquired.  Whoever has it loses it after *ttl* seconds, or renews it."""
        ...

    def rate_limit(self, name: str, limit: int, per: Duration) -> bool:
        """Whether this is one of the first *limit* calls in the present window of *per* seconds, in whatever process.

        Windows follow the database's clock.  Calls that are refused do not count.
        """
        ...

    def token_bucket(self, name: str, rate: float, burst: float | None = None) -> bool:
        """Take a token from a bucket that all processes share; False if there is none.

        It gets *rate* tokens a second, and holds *burst* of them: a second's worth by default, and one at least.
        """
        ...

    @property
    def results(self) -> Results:
        """What tasks, or anything else with a name, came to."""
        ...

    @property
    def schedules(self) -> Schedules:
        """The schedules of the database."""
        ...

    def run_scheduler(self) -> None:
        """Fire schedules when they are due, for ever; any number of processes may.  Ends when the kit is closed."""
        ...

    def maintain(self) -> Maintained:
        """Put the database in order: move what is due in any queue, and delete what says nothing any more.

        In transactions of at most 1,000 rows, between which others have their turn.  Any number of processes may.
        """
        ...

    def run_maintenance(self, every: Duration = 60) -> None:
        """`maintain` once in *every* seconds, for ever; of any number of processes one does it.

        Ends when the kit is closed.
        """
        ...

    def overview(self) -> Overview:
        """All queues, topics, schedules, locks and results in numbers, in one statement."""
        ...

    def listen(self, *channels: str, start: str | int = "now") -> Subscription[Notification[Any]]:
        """Listen to several channels at once."""
        ...

    def transaction(self) -> AbstractContextManager[Any]:
        """A transaction for ``tx=`` without SQLAlchemy: committed at the end, rolled back on an error."""
        ...

    def close(self) -> None:
        """Save what was handled, end every iterator, and let go of the database.  May be called again."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...


class EventStream(Protocol[P]):
    """A topic: events in the order of their offsets, kept until they are pruned."""

    topic: str

    def publish(
        self,
        payload: P,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        dedup: str | None = None,
        tx: Any = None,
    ) -> int:
        """Append an event; its offset.

        Offsets grow, are never reused once committed, and may have holes.  Whoever has read up to one never
        later finds an event at or below it.  Publishing a *dedup* id that the topic still holds writes
        nothing and gives the first one's offset.
        """
        ...

    def publish_many(self, items: Iterable[P | NewEvent], tx: Any = None) -> list[int]:
        """Append events, all or none, in this order; their offsets."""
        ...

    def read(self, after: int = 0, limit: int = 1000, *, on_truncated: str = "raise") -> list[Event[P]]:
        """The first *limit* events after the offset *after*.

        `Truncated` if events behind *after* were pruned, unless ``on_truncated="skip"`` or *after* is 0.
        """
        ...

    def subscribe(
        self,
        consumer: str | None = None,
        *,
        start: str | int | datetime = "committed",
        batch: int = 1000,
        save_every_n: int = 1000,
        save_every_s: Duration = 1.0,
        on_truncated: str = "raise",
    ) -> Subscription[Event[P]]:
        """Iterate over the events there are and those to come, without a gap or a duplicate between.

        *start* is ``"committed"`` (after the consumer's saved offset), ``"earliest"``, ``"latest"``, an offset
        or a moment.  A handled event is saved as the consumer's offset after the loop has asked for the next
        one: every *save_every_n* events, every *save_every_s* seconds, when there is nothing to do, and at
        the end; with both 0, never.
        """
        ...

    def offset(self, consumer: str) -> int:
        """Where the consumer is; 0 if it is unknown."""
        ...

    def save_offset(self, consumer: str, offset: int, tx: Any = None) -> bool:
        """Move the consumer forward; False if it is there or beyond already."""
        ...

    def seek(self, consumer: str, offset: int, tx: Any = None) -> None:
        """Move the consumer anywhere."""
        ...

    def head(self) -> int:
        """The highest offset at or below which nothing will appear any more; 0 for a new topic."""
        ...

    def offset_at(self, moment: datetime) -> int:
        """The *after* that yields everything created at or after *moment*."""
        ...

    def consumers(self) -> list[Consumer]:
        """The consumers that have saved an offset, by name."""
        ...

    def prune(
        self, *, older_than: Duration | None = None, max_keep: int | None = None, keep_unconsumed: bool = True
    ) -> int:
        """Drop events older than *older_than*, and all but the newest *max_keep*; how many.

        With *keep_unconsumed*, what a consumer has still to read stays.
        """
        ...

    def configure(
        self,
        *,
        retain: Duration | None = _KEEP,
        max_keep: int | None = _KEEP,
        keep_unconsumed: bool | None = _KEEP,
    ) -> None:
        """Store what `EventKit.maintain` prunes from then on: events older than *retain*, and all but *max_keep*.

        None is the default again: to keep all for ever, or to keep what a consumer has still to read.  What is left
        out stays as it is.
        """
        ...

    def settings(self) -> StreamSettings:
        """What the stream is configured to."""
        ...


class TaskQueue(Protocol[P]):
    """A queue: each task is run until it is acked, fails for good, or has used up its attempts."""

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
        headers: Mapping[str, str] | None = None,
        wait: Duration | None = None,
        tx: Any = None,
    ) -> Enqueued:
        """Add a task; its id, and whether this call created it.

        It is due after *delay*, or at *run_at*, or now; it is never handed out after *expires*.  While a task
        with the same *key* is live or dead, and for the queue's ``key_ttl`` after it was enqueued, no second
        one is created.  `QueueFull` if the queue is full, after up to *wait* seconds.
        """
        ...

    def enqueue_many(self, items: Iterable[P | NewTask], tx: Any = None) -> list[Enqueued]:
        """Add tasks, all or none; an answer for each."""
        ...

    def claim(
        self,
        worker: str,
        limit: int = 1,
        *,
        lease: Duration | None = None,
        wait: Duration = 0,
        tx: Any = None,
    ) -> list[Task[P]]:
        """Lease up to *limit* tasks: higher priority first, then earlier due, then lower id.

        Waits up to *wait* seconds for the first one.  A task whose lease runs out can be claimed by others.
        """
        ...

    def receive(self, limit: int = 1, tx: Any = None) -> list[Task[P]]:
        """Claim and delete in one step: at most once, and gone if this process dies."""
        ...

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
        headers: Mapping[str, str] | None = None,
    ) -> NewTask:
        """A task of this queue, checked, and not enqueued yet: for ``ack(then=)``, or this queue's `enqueue_many`."""
        ...

    def ack(self, task: Task[Any], *, result: Any = _NO_RESULT, then: Iterable[NewTask] = (), tx: Any = None) -> bool:
        """Finish a task; False if its lease has run out.

        The task is deleted, or kept for as long as the queue's ``keep_done`` says.  A *result*, which may be None, is
        saved under the task's id for `Results.get` and `Results.wait`: for an hour, or as long as the task is kept if
        that is longer.  What is *then* to be done, in whichever queues, as `new` gives it, is enqueued in the same
        step; a task whose key is taken is not enqueued again.
        """
        ...

    def ack_many(self, tasks: Iterable[Task[Any]], tx: Any = None, *, results: Mapping[int, Any] | None = None) -> Ids:
        """Finish tasks; the ids of those whose lease had not run out.

        *results* has those that are to be saved, by the tasks' ids.
        """
        ...

    def retry(
        self, task: Task[Any], *, delay: Duration | None = None, error: str | None = None, tx: Any = None
    ) -> bool:
        """Put a task back for another attempt, after *delay* or when the queue's policy says.

        A task that has had all its attempts is dead.  False if its lease has run out.
        """
        ...

    def fail(self, task: Task[Any], error: str, tx: Any = None) -> bool:
        """Make a task a dead letter now; False if its lease has run out."""
        ...

    def release(self, task: Task[Any], tx: Any = None) -> bool:
        """Put a task back as if it had not been claimed; False if its lease has run out."""
        ...

    def snooze(self, task: Task[Any], delay: Duration, tx: Any = None) -> bool:
        """Put a task back for *delay* seconds later, as if it had not been claimed; False if its lease has run out."""
        ...

    def extend(self, task: Task[Any], seconds: Duration, tx: Any = None) -> bool:
        """Let the lease end *seconds* from now; False if it has run out."""
        ...

    def cancel(self, id: int, running: bool = False, tx: Any = None) -> bool:
        """Delete a task that waits, or with *running* one that is leased; False if there is none.

        Of one that was leased, whoever listens to the channel ``eventkit:cancelled`` is told: its *queue* and *id*.
        """
        ...

    def work(
        self, worker: str | None = None, *, batch: int = 1, lease: Duration | None = None
    ) -> Subscription[Task[P]]:
        """Iterate over tasks for ever, claiming up to *batch* at a time."""
        ...

    def handling(self, task: Task[P]) -> AbstractContextManager[Task[P], bool]:
        """Around the work on a task: extends its lease while the body runs, and acks it at the end.

        `Retry`, `Snooze` and `Permanent` raised in the body say what to do; any other `Exception` means a retry by the
        queue's policy; it is logged and goes no further.  Anything else releases the task and goes on.
        """
        ...

    def get(self, id: int) -> TaskInfo[P] | None:
        """The task with this id, in whatever state."""
        ...

    def peek(self, limit: int = 1) -> TaskInfos[P]:
        """What a claim would hand out, best first."""
        ...

    def dead(self, limit: int = 100) -> TaskInfos[P]:
        """Dead letters, newest first."""
        ...

    def dead_by_error(self, limit: int = 100) -> list[DeadLetters]:
        """How many dead letters there are of each reason and error, most first."""
        ...

    def stats(self) -> QueueStats:
        """The queue in numbers."""
        ...

    def size(self) -> int:
        """How many tasks are scheduled, ready or leased."""
        ...

    def next_due(self) -> datetime | None:
        """When the next task is due, or was; None if nothing waits."""
        ...

    def sweep(self) -> int:
        """Move whatever is due or expired, as the next claim would; how many tasks."""
        ...

    def purge(self, state: str = "ready") -> int:
        """Delete the tasks in one state; how many."""
        ...

    def purge_dead(self, older_than: Duration | None = None) -> int:
        """Delete dead letters, those that died so long ago if it is said; how many."""
        ...

    def requeue(self, ids: Iterable[int] | None = None) -> int:
        """Make dead tasks, all or these, ready again with no attempt made; how many."""
        ...

    def pause(self) -> None:
        """Accept tasks and hand out none, until `resume`."""
        ...

    def resume(self) -> None:
        """Hand out tasks again."""
        ...

    def configure(
        self,
        *,
        max_attempts: int | None = _KEEP,
        lease: Duration | None = _KEEP,
        retry: Policy | str | Sequence[float] | None = _KEEP,
        max_size: int | None = _KEEP,
        rate: float | None = _KEEP,
        burst: float | None = _KEEP,
        max_running: int | None = _KEEP,
        keep_done: Duration | None = _KEEP,
        keep_dead: Duration | None = _KEEP,
        key_ttl: Duration | None = _KEEP,
        dead_letter_to: str | None = _KEEP,
    ) -> None:
        """Store settings of the queue, which every process obeys from then on.

        None is the default again; what is left out stays as it is.
        """
        ...

    def settings(self) -> QueueSettings:
        """What the queue is configured to."""
        ...

    def drop(self, *, force: bool = False) -> bool:
        """Forget the queue: its settings, its keys, and what is done.

        False, and nothing is done, if there are other tasks in it, unless *force* deletes those too.
        """
        ...

    # Last, because below it ``list`` would mean this method to a type checker.
    def list(self, state: str | None = None, limit: int = 100, after: int = 0) -> TaskInfos[P]:
        """Tasks by id after *after*, those in one state if it is given."""
        ...


class NotificationChannel(Protocol[P]):
    """A channel: whoever listens is told what is committed from then on."""

    name: str

    def notify(self, payload: P, *, headers: Mapping[str, str] | None = None, tx: Any = None) -> int:
        """Tell everyone who listens; the notification's id, which grows."""
        ...

    def listen(self, *, start: str | int = "now") -> Subscription[Notification[P]]:
        """Iterate over what is committed from this call on.

        *start* may also be ``"earliest"``, or an id to go on after.
        """
        ...

    def prune(self, *, older_than: Duration | None = None, max_keep: int | None = None) -> int:
        """Drop notifications older than *older_than*, and all but the newest *max_keep*; how many."""
        ...

    def configure(self, *, retain: Duration | None = _KEEP, max_keep: int | None = _KEEP) -> None:
        """Store what `EventKit.maintain` prunes from then on: what is older than *retain*, and all but *max_keep*.

        A day is what is kept where nothing else was said; None is to keep all for ever.  What is left out stays as
        it is.
        """
        ...

    def settings(self) -> ChannelSettings:
        """What the channel is configured to."""
        ...


class Outbox(Protocol[P]):
    """An outbox: messages written in the application's transactions, and delivered elsewhere once these commit.

    Each message is delivered at least once, with the same ``message_id`` at every attempt.  With ``ordered=True`` the
    messages of one key are delivered one after the other, in the order in which they were added.
    """

    name: str

    @property
    def queue(self) -> TaskQueue[P]:
        """The queue that the outbox stands on: its settings, its dead letters, `pause` and `resume`."""
        ...

    def add(self, tx: Any, payload: P, *, key: str | None = None, headers: Mapping[str, str] | None = None) -> str:
        """Add a message inside the caller's transaction; its ``message_id``."""
        ...

    def run(self, worker: str | None = None, *, batch: int = 1) -> None:
        """Call *deliver* with each message, for ever, claiming up to *batch* at a time.

        A delivery has succeeded when *deliver* returns.  When it raises, the message is tried again after 5, 10, 20
        and 40 seconds, and is a dead letter then, with the traceback; unless the queue is configured otherwise.
        `Retry` and `Permanent` say what to do.  Ends after `stop`, or when the kit is closed: what was begun is
        finished, and what was claimed beyond that is given back.
        """
        ...

    def stop(self) -> None:
        """Let every `run` of this handle end, those begun later too.  May be called from anywhere; waits for nobody."""
        ...

    def stats(self) -> OutboxStats:
        """The outbox in numbers."""
        ...


class Inbox(Protocol):
    """What a consumer has seen, so that a message which comes twice has one effect."""

    consumer: str

    def once(self, message_id: str, tx: Any) -> bool:
        """Whether the consumer sees the message for the first time.  True once, if that transaction commits.

        Whoever asks while another transaction has the message waits for its end.
        """
        ...

    def prune(self, *, older_than: Duration) -> int:
        """Forget what was seen longer ago; how many messages.  One of them would count as new from then on."""
        ...

    def configure(self, *, retain: Duration | None = _KEEP) -> None:
        """Let `EventKit.maintain` forget what was seen longer ago than *retain*; None is to remember it for ever."""
        ...

    def settings(self) -> InboxSettings:
        """What the inbox is configured to."""
        ...


class Schedules(Protocol):
    """What makes tasks at certain times: the schedules of a database, which any number of processes may fire.

    A fire is a task that is due at the moment of the fire; its headers say which schedule it is of
    (``eventkit-schedule``) and that moment (``eventkit-fire``).  Each fire comes to exactly one task.
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
        catch_up: str = "all",
        paused: bool = False,
        headers: Mapping[str, str] | None = None,
        tx: Any = None,
    ) -> None:
        """Keep a schedule, in the place of one of the same name.

        *when* is a cron expression of five fields, or of six with the seconds first, ``@hourly`` and the like, or an
        interval as in ``"@every 1h30m"``; *tz* is the zone whose clock it speaks of.  A task *expires* so long after
        its fire.  Fires that nobody was there for are made up for by *catch_up*: ``"all"``, the first 64 of them;
        ``"latest"``; or ``"none"``, unless it is less than a minute late.

        A schedule that is there already and keeps its time keeps its next fire as well, and stays paused.
        """
        ...

    def remove(self, name: str, tx: Any = None) -> bool:
        """Forget a schedule; False if there is none of that name."""
        ...

    def pause(self, name: str, tx: Any = None) -> bool:
        """Let a schedule fire no more until `resume`; False if there is none of that name."""
        ...

    def resume(self, name: str, tx: Any = None) -> bool:
        """Let a schedule fire again, from now on; False if there is none of that name."""
        ...

    def update(
        self,
        name: str,
        *,
        when: str = _KEEP,
        tz: str = _KEEP,
        queue: str = _KEEP,
        payload: Any = _KEEP,
        priority: int = _KEEP,
        expires: Duration | None = _KEEP,
        max_attempts: int | None = _KEEP,
        catch_up: str = _KEEP,
        paused: bool = _KEEP,
        headers: Mapping[str, str] | None = _KEEP,
        tx: Any = None,
    ) -> bool:
        """Change what is given and leave the rest as it is; False if there is no schedule of that name.

        Another time has its first fire after now.
        """
        ...

    def get(self, name: str) -> Schedule | None:
        """A schedule; None if there is none of that name."""
        ...

    def soonest(self) -> datetime | None:
        """When the next schedule fires; None where none will."""
        ...

    def upcoming(self, name: str, count: int = 10) -> list[datetime]:
        """The next *count* moments at which a schedule fires; none for one that is paused or unknown."""
        ...

    def tick(self, now: datetime | None = None) -> list[Fire]:
        """Fire everything that is due, by the database's clock or at *now*; the fires."""
        ...

    def next_after(self, when: str, moment: datetime, tz: str = "UTC") -> datetime:
        """When *when* fires first after *moment*, in UTC; asks no database, and is not awaited."""
        ...

    # Last, because below it ``list`` would mean this method to a type checker.
    def list(self) -> list[Schedule]:
        """All schedules, by name."""
        ...


class Lock(Protocol):
    """A lock that one holder has at a time, among all processes, by the database's clock.

    The holder is the handle that has acquired it, until it releases it or the ttl is over.  A handle that holds it
    already gets it no second time.  Entering it acquires it or raises `LockHeld`; leaving it releases it.
    """

    name: str

    @property
    def fence(self) -> int | None:
        """A number that grows with every holder; None while this handle does not hold the lock.

        Send it along to whatever the lock protects, and have it refuse numbers below the highest it has seen: then a
        holder that stood still for longer than its ttl does no harm.
        """
        ...

    def acquire(self, wait: Duration = 0) -> bool:
        """Take the lock, waiting up to *wait* seconds for it; False if somebody else still holds it."""
        ...

    def renew(self) -> bool:
        """Begin the ttl anew; False if it was over, and the lock is lost."""
        ...

    def release(self) -> bool:
        """Let others have the lock; False if its time was over."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...


class Results(Protocol):
    """What tasks came to, for whoever waits for it; or anything else that has a name.

    An id is the number of a task, or a string of one's own; 7 and ``"7"`` are two ids.
    """

    def save(self, id: int | str, value: Any, ttl: Duration = 3600, tx: Any = None) -> None:
        """Save a value for *ttl* seconds, in place of an earlier one."""
        ...

    def get(self, id: int | str, default: Any = None) -> Any:
        """The value, which may be None; *default* if there is none."""
        ...

    def wait(self, id: int | str, timeout: Duration) -> Any:
        """The value, as soon as it is committed; `TimedOut` if it is not within *timeout* seconds.

        `TaskFailed` with the reason and the error if it is a task's, and the task is dead or dies.
        """
        ...

    def sweep(self) -> int:
        """Delete what has expired; how many results."""
        ...


class Subscription(Protocol[M_co]):
    """An iterator that waits for more; it ends when it or its kit is closed."""

    def __iter__(self) -> Generator[M_co]: ...
    def __next__(self) -> M_co: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

    def close(self) -> None:
        """End the iteration: what was handled is saved, what was not handed out is given back."""
        ...


class AsyncSubscription(Protocol[M_co]):
    """An iterator that waits for more; it ends when it or its kit is closed.

    It attaches at its first step, or when it is awaited.
    """

    def __await__(self) -> Generator[Any, Any, Self]: ...
    def __aiter__(self) -> AsyncGenerator[M_co]: ...
    async def __anext__(self) -> M_co: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: object) -> None: ...

    async def aclose(self) -> None:
        """End the iteration: what was handled is saved, what was not handed out is given back."""
        ...


class AsyncEventKit(Protocol):
    """`EventKit`, awaited."""

    @overload
    def stream(self, topic: str) -> AsyncEventStream[Any]: ...
    @overload
    def stream(self, topic: str, *, type: type[P]) -> AsyncEventStream[P]: ...

    @overload
    def queue(self, name: str) -> AsyncTaskQueue[Any]: ...
    @overload
    def queue(self, name: str, *, type: type[P]) -> AsyncTaskQueue[P]: ...

    @overload
    def channel(self, name: str) -> AsyncNotificationChannel[Any]: ...
    @overload
    def channel(self, name: str, *, type: type[P]) -> AsyncNotificationChannel[P]: ...

    @overload
    def outbox(
        self, name: str, *, deliver: Callable[[Message[Any]], object] | None = None, ordered: bool = False
    ) -> AsyncOutbox[Any]: ...
    @overload
    def outbox(
        self,
        name: str,
        *,
        deliver: Callable[[Message[P]], object] | None = None,
        ordered: bool = False,
        type: type[P],
    ) -> AsyncOutbox[P]: ...

    def work(
        self,
        queues: Iterable[str | tuple[str, float]],
        worker: str | None = None,
        *,
        strict: bool = False,
        batch: int = 1,
        lease: Duration | None = None,
    ) -> AsyncSubscription[Task[Any]]:
        """Iterate over the tasks of several queues for ever, claiming up to *batch* at a time from one of them.

        Names, or names with weights: of two queues that have tasks, the one of twice the weight has twice as many
        handed out, and none waits for ever.  With *strict*, a queue has its turn when those named before it have
        nothing.  Within a queue, the order is that of `TaskQueue.work`.
        """
        ...

    def inbox(self, consumer: str) -> AsyncInbox: ...

    def lock(self, name: str, ttl: Duration = 60) -> AsyncLock: ...

    async def rate_limit(self, name: str, limit: int, per: Duration) -> bool: ...

    async def token_bucket(self, name: str, rate: float, burst: float | None = None) -> bool: ...

    @property
    def results(self) -> AsyncResults: ...

    @property
    def schedules(self) -> AsyncSchedules: ...

    async def run_scheduler(self) -> None: ...

    async def maintain(self) -> Maintained: ...

    async def run_maintenance(self, every: Duration = 60) -> None: ...

    async def overview(self) -> Overview: ...

    def listen(self, *channels: str, start: str | int = "now") -> AsyncSubscription[Notification[Any]]: ...

    def transaction(self) -> AbstractAsyncContextManager[Any]: ...

    async def close(self) -> None: ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: object) -> None: ...


class AsyncEventStream(Protocol[P]):
    """`EventStream`, awaited."""

    topic: str

    async def publish(
        self,
        payload: P,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        dedup: str | None = None,
        tx: Any = None,
    ) -> int: ...

    async def publish_many(self, items: Iterable[P | NewEvent], tx: Any = None) -> list[int]: ...

    async def read(self, after: int = 0, limit: int = 1000, *, on_truncated: str = "raise") -> list[Event[P]]: ...

    def subscribe(
        self,
        consumer: str | None = None,
        *,
        start: str | int | datetime = "committed",
        batch: int = 1000,
        save_every_n: int = 1000,
        save_every_s: Duration = 1.0,
        on_truncated: str = "raise",
    ) -> AsyncSubscription[Event[P]]: ...

    async def offset(self, consumer: str) -> int: ...

    async def save_offset(self, consumer: str, offset: int, tx: Any = None) -> bool: ...

    async def seek(self, consumer: str, offset: int, tx: Any = None) -> None: ...

    async def head(self) -> int: ...

    async def offset_at(self, moment: datetime) -> int: ...

    async def consumers(self) -> list[Consumer]: ...

    async def prune(
        self, *, older_than: Duration | None = None, max_keep: int | None = None, keep_unconsumed: bool = True
    ) -> int: ...

    async def configure(
        self,
        *,
        retain: Duration | None = _KEEP,
        max_keep: int | None = _KEEP,
        keep_unconsumed: bool | None = _KEEP,
    ) -> None: ...

    async def settings(self) -> StreamSettings: ...


class AsyncTaskQueue(Protocol[P]):
    """`TaskQueue`, awaited."""

    name: str

    async def enqueue(
        self,
        payload: P,
        *,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        expires: Duration | datetime | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        wait: Duration | None = None,
        tx: Any = None,
    ) -> Enqueued: ...

    async def enqueue_many(self, items: Iterable[P | NewTask], tx: Any = None) -> list[Enqueued]: ...

    async def claim(
        self,
        worker: str,
        limit: int = 1,
        *,
        lease: Duration | None = None,
        wait: Duration = 0,
        tx: Any = None,
    ) -> list[Task[P]]: ...

    async def receive(self, limit: int = 1, tx: Any = None) -> list[Task[P]]: ...

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
        headers: Mapping[str, str] | None = None,
    ) -> NewTask: ...

    async def ack(
        self, task: Task[Any], *, result: Any = _NO_RESULT, then: Iterable[NewTask] = (), tx: Any = None
    ) -> bool: ...

    async def ack_many(
        self, tasks: Iterable[Task[Any]], tx: Any = None, *, results: Mapping[int, Any] | None = None
    ) -> Ids: ...

    async def retry(
        self, task: Task[Any], *, delay: Duration | None = None, error: str | None = None, tx: Any = None
    ) -> bool: ...

    async def fail(self, task: Task[Any], error: str, tx: Any = None) -> bool: ...

    async def release(self, task: Task[Any], tx: Any = None) -> bool: ...

    async def snooze(self, task: Task[Any], delay: Duration, tx: Any = None) -> bool: ...

    async def extend(self, task: Task[Any], seconds: Duration, tx: Any = None) -> bool: ...

    async def cancel(self, id: int, running: bool = False, tx: Any = None) -> bool: ...

    def work(
        self, worker: str | None = None, *, batch: int = 1, lease: Duration | None = None
    ) -> AsyncSubscription[Task[P]]: ...

    def handling(self, task: Task[P]) -> AbstractAsyncContextManager[Task[P], bool]: ...

    async def get(self, id: int) -> TaskInfo[P] | None: ...

    async def peek(self, limit: int = 1) -> TaskInfos[P]: ...

    async def dead(self, limit: int = 100) -> TaskInfos[P]: ...

    async def dead_by_error(self, limit: int = 100) -> list[DeadLetters]: ...

    async def stats(self) -> QueueStats: ...

    async def size(self) -> int: ...

    async def next_due(self) -> datetime | None: ...

    async def sweep(self) -> int: ...

    async def purge(self, state: str = "ready") -> int: ...

    async def purge_dead(self, older_than: Duration | None = None) -> int: ...

    async def requeue(self, ids: Iterable[int] | None = None) -> int: ...

    async def pause(self) -> None: ...

    async def resume(self) -> None: ...

    async def configure(
        self,
        *,
        max_attempts: int | None = _KEEP,
        lease: Duration | None = _KEEP,
        retry: Policy | str | Sequence[float] | None = _KEEP,
        max_size: int | None = _KEEP,
        rate: float | None = _KEEP,
        burst: float | None = _KEEP,
        max_running: int | None = _KEEP,
        keep_done: Duration | None = _KEEP,
        keep_dead: Duration | None = _KEEP,
        key_ttl: Duration | None = _KEEP,
        dead_letter_to: str | None = _KEEP,
    ) -> None: ...

    async def settings(self) -> QueueSettings: ...

    async def drop(self, *, force: bool = False) -> bool: ...

    # Last, because below it ``list`` would mean this method to a type checker.
    async def list(self, state: str | None = None, limit: int = 100, after: int = 0) -> TaskInfos[P]: ...


class AsyncNotificationChannel(Protocol[P]):
    """`NotificationChannel`, awaited."""

    name: str

    async def notify(self, payload: P, *, headers: Mapping[str, str] | None = None, tx: Any = None) -> int: ...

    def listen(self, *, start: str | int = "now") -> AsyncSubscription[Notification[P]]: ...

    async def prune(self, *, older_than: Duration | None = None, max_keep: int | None = None) -> int: ...

    async def configure(self, *, retain: Duration | None = _KEEP, max_keep: int | None = _KEEP) -> None: ...

    async def settings(self) -> ChannelSettings: ...


class AsyncOutbox(Protocol[P]):
    """`Outbox`, awaited.  *deliver* may be a coroutine function; a callable that blocks runs in a thread."""

    name: str

    @property
    def queue(self) -> AsyncTaskQueue[P]: ...

    async def add(
        self, tx: Any, payload: P, *, key: str | None = None, headers: Mapping[str, str] | None = None
    ) -> str: ...

    async def run(self, worker: str | None = None, *, batch: int = 1) -> None: ...

    def stop(self) -> None: ...

    async def stats(self) -> OutboxStats: ...


class AsyncInbox(Protocol):
    """`Inbox`, awaited."""

    consumer: str

    async def once(self, message_id: str, tx: Any) -> bool: ...

    async def prune(self, *, older_than: Duration) -> int: ...

    async def configure(self, *, retain: Duration | None = _KEEP) -> None: ...

    async def settings(self) -> InboxSettings: ...


class AsyncSchedules(Protocol):
    """`Schedules`, awaited."""

    async def add(
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
        catch_up: str = "all",
        paused: bool = False,
        headers: Mapping[str, str] | None = None,
        tx: Any = None,
    ) -> None: ...

    async def remove(self, name: str, tx: Any = None) -> bool: ...

    async def pause(self, name: str, tx: Any = None) -> bool: ...

    async def resume(self, name: str, tx: Any = None) -> bool: ...

    async def update(
        self,
        name: str,
        *,
        when: str = _KEEP,
        tz: str = _KEEP,
        queue: str = _KEEP,
        payload: Any = _KEEP,
        priority: int = _KEEP,
        expires: Duration | None = _KEEP,
        max_attempts: int | None = _KEEP,
        catch_up: str = _KEEP,
        paused: bool = _KEEP,
        headers: Mapping[str, str] | None = _KEEP,
        tx: Any = None,
    ) -> bool: ...

    async def get(self, name: str) -> Schedule | None: ...

    async def soonest(self) -> datetime | None: ...

    async def upcoming(self, name: str, count: int = 10) -> list[datetime]: ...

    async def tick(self, now: datetime | None = None) -> list[Fire]: ...

    def next_after(self, when: str, moment: datetime, tz: str = "UTC") -> datetime: ...

    # Last, because below it ``list`` would mean this method to a type checker.
    async def list(self) -> list[Schedule]: ...


class AsyncLock(Protocol):
    """`Lock`, awaited."""

    name: str

    @property
    def fence(self) -> int | None: ...

    async def acquire(self, wait: Duration = 0) -> bool: ...

    async def renew(self) -> bool: ...

    async def release(self) -> bool: ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: object) -> None: ...


class AsyncResults(Protocol):
    """`Results`, awaited."""

    async def save(self, id: int | str, value: Any, ttl: Duration = 3600, tx: Any = None) -> None: ...

    async def get(self, id: int | str, default: Any = None) -> Any: ...

    async def wait(self, id: int | str, timeout: Duration) -> Any: ...

    async def sweep(self) -> int: ...


class Connection(Protocol):
    """A backend's connection: it executes operations, and sleeps on probes."""

    @property
    def max_payload(self) -> int:
        """The most bytes of JSON text that a payload may have."""
        ...

    @property
    def closing(self) -> bool:
        """Whether `end_sleep` was called."""
        ...

    def execute(self, operation: Operation[T], tx: Any = None) -> T:
        """The answer to *operation*: its plan, run in *tx* or in a transaction of its own, whole or not at all."""
        ...

    def sleep(self, probe: Probe, timeout: float | None = None) -> bool:
        """Wait until *probe* is ready; False when *timeout* seconds have passed, or sleeping has ended.

        No commit after the call goes unnoticed, whoever makes it.
        """
        ...

    def transaction(self) -> AbstractContextManager[Any]:
        """What `EventKit.transaction` gives."""
        ...

    def rouse(self) -> None:
        """Let every `sleep` that is under way look at its probe again."""
        ...

    def end_sleep(self) -> None:
        """Let every `sleep` return False, now and from now on."""
        ...

    def close(self) -> None:
        """Let go of the database; every call after that raises `Closed`."""
        ...


class AsyncConnection(Protocol):
    """`Connection`, awaited."""

    @property
    def max_payload(self) -> int: ...

    @property
    def closing(self) -> bool: ...

    async def execute(self, operation: Operation[T], tx: Any = None) -> T: ...

    async def sleep(self, probe: Probe, timeout: float | None = None) -> bool: ...

    def transaction(self) -> AbstractAsyncContextManager[Any]: ...

    def rouse(self) -> None: ...

    def end_sleep(self) -> None: ...

    async def close(self) -> None: ...


class Backend(Protocol):
    """A package that serves a URL scheme, found by the entry point group ``eventkit.backends``.

    A module with these names is one.
    """

    capabilities: frozenset[str]

    def connect(self, url: str, *, create: bool = True) -> Connection:
        """A connection; the schema is made first if there is none and *create* is true."""
        ...

    def connect_async(self, url: str, *, create: bool = True) -> Awaitable[AsyncConnection]:
        """`connect`, awaited."""
        ...


class Care(Protocol):
    """What a backend's package may have beside that, for whoever looks after its databases by the command line."""

    def diagnose(self, url: str) -> list[Finding]:
        """What stands well and ill with the database, and what to do about it."""
        ...

    def compact(self, url: str) -> tuple[int, int]:
        """Give space that nothing takes any more back to the system; how many bytes there were, and are."""
        ...

    def backup(self, url: str, path: str, progress: Callable[[int, int], object]) -> None:
        """Copy the database to a new file while others use it; *progress* is told how far it is, and how much it is."""
        ...


class Bulk(Protocol):
    """What a backend's package may have beside that, for whoever reads millions of rows."""

    def arrow(self, url: str) -> AbstractContextManager[Callable[[Operation[Any], Sequence[str]], Any]]:
        """What executes an operation that reads; its answer is a ``pyarrow.Table`` with those columns."""
        ...

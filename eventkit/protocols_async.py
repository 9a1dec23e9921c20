"""The types of an asyncio kit: those of `protocols`, awaited.

The methods are documented there; a docstring here says what differs.  The signatures are written out, because type
checkers cannot derive them.
"""

# A method of a protocol has no body, for which pyright would ask for an ellipsis after the docstring.
# pyright: reportReturnType=false

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, overload

from .checks import KEEP, NO_RESULT, Duration, Headers
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

if TYPE_CHECKING:
    from .protocols import EventKit

P = TypeVar("P")
M_co = TypeVar("M_co", covariant=True)


class AsyncSubscription(Protocol[M_co]):
    """`Subscription`, awaited.

    It attaches at its first step, or when it is awaited.  Cancelling a step loses no item: the next step returns it.
    """

    def __await__(self) -> Generator[Any, Any, Self]: ...
    def __aiter__(self) -> AsyncIterator[M_co]: ...
    async def __anext__(self) -> M_co: ...
    async def next(self, timeout: Duration | None = None) -> M_co: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: object) -> None: ...
    async def aclose(self) -> None: ...


class AsyncEventKit(Protocol):
    """`EventKit`, awaited."""

    @overload
    def stream(self, name: str) -> AsyncEventStream[Any]: ...
    @overload
    def stream(self, name: str, *, type: type[P]) -> AsyncEventStream[P]: ...
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
        self, name: str, *, deliver: Callable[[Message[P]], object] | None = None, ordered: bool = False, type: type[P]
    ) -> AsyncOutbox[P]: ...
    def work(
        self,
        queues: Iterable[str | tuple[str, float]],
        worker: str | None = None,
        *,
        strict: bool = False,
        batch: int = 1,
        lease: Duration | None = None,
    ) -> AsyncSubscription[Task[Any]]: ...
    def inbox(self, consumer: str) -> AsyncInbox: ...
    def lock(self, name: str, ttl: Duration = 60, *, holder: str | None = None) -> AsyncLock: ...
    @overload
    def limit(self, name: str, *, count: int, per: Duration) -> AsyncLimit: ...
    @overload
    def limit(self, name: str, *, rate: float, burst: float | None = None) -> AsyncLimit: ...
    @property
    def results(self) -> AsyncResults: ...
    @property
    def schedules(self) -> AsyncSchedules: ...
    async def run_scheduler(self) -> None: ...
    async def maintain(self) -> Maintained: ...
    async def run_maintenance(self, every: Duration = 60) -> None: ...
    def changes(self) -> AsyncSubscription[None]: ...
    async def channels(self) -> list[ChannelInfo]: ...
    async def prune_channels(self, *, older_than: Duration | None = None, keep_count: int | None = None) -> int: ...
    async def overview(self) -> Overview: ...
    async def workers(self) -> list[WorkerInfo]: ...
    async def cluster_limit(self, name: str, max_running: int | None, *, queues: Iterable[str] = ()) -> None: ...
    async def cluster_limits(self) -> list[ClusterLimit]: ...
    async def limits(self, limit: int = 1000) -> list[LimitInfo]: ...
    def listen(self, *channels: str, start: ChannelStart | int = "latest") -> AsyncSubscription[Notification[Any]]: ...
    def transaction(self) -> AbstractAsyncContextManager[Any]: ...
    def sync(self) -> EventKit:
        """Return a sync view of this kit for other threads, which makes each call on this kit's connections.

        To be called in the event loop, which must go on running.  Closing the view leaves this kit open.
        """

    async def close(self) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: object) -> None: ...


class AsyncEventStream(Protocol[P]):
    """`EventStream`, awaited."""

    name: str

    async def publish(
        self, payload: P, *, key: str | None = None, headers: Headers = None, dedup: str | None = None, tx: Any = None
    ) -> int: ...
    async def publish_many(self, items: Iterable[P | NewEvent], *, tx: Any = None) -> list[int]: ...
    async def read(
        self, after: int = 0, limit: int = 1000, *, on_truncated: OnTruncated = "raise"
    ) -> list[Event[P]]: ...
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
    ) -> AsyncSubscription[Event[P]]: ...
    async def offset(self, consumer: str) -> int: ...
    async def save_offset(self, consumer: str, offset: int, *, tx: Any = None) -> bool: ...
    async def seek(self, consumer: str, offset: int, *, tx: Any = None) -> None: ...
    async def remove_consumer(self, consumer: str, *, tx: Any = None) -> bool: ...
    async def head(self) -> int: ...
    async def offset_at(self, moment: datetime) -> int: ...
    async def consumers(self) -> list[Consumer]: ...
    async def prune(
        self, *, older_than: Duration | None = None, keep_count: int | None = None, keep_unconsumed: bool = True
    ) -> int: ...
    async def configure(
        self, *, keep: Duration | None = KEEP, keep_count: int | None = KEEP, keep_unconsumed: bool | None = KEEP
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
        headers: Headers = None,
        group: str | None = None,
        wait: Duration | None = None,
        tx: Any = None,
    ) -> Enqueued: ...
    async def enqueue_many(
        self, items: Iterable[P | NewTask], *, wait: Duration | None = None, tx: Any = None
    ) -> list[Enqueued]: ...
    async def claim(
        self, worker: str, limit: int = 1, *, lease: Duration | None = None, wait: Duration = 0, tx: Any = None
    ) -> list[Task[P]]: ...
    async def receive(self, limit: int = 1, *, tx: Any = None) -> list[Task[P]]: ...
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
    ) -> NewTask: ...
    async def ack(
        self, task: Claimed, *, result: Any = NO_RESULT, then: Iterable[NewTask] = (), tx: Any = None
    ) -> bool: ...
    async def ack_many(
        self, tasks: Iterable[Claimed], *, results: Mapping[int, Any] | None = None, tx: Any = None
    ) -> list[int]: ...
    async def retry(
        self,
        task: Claimed,
        *,
        delay: Duration | None = None,
        error: str | None = None,
        code: str | None = None,
        tx: Any = None,
    ) -> bool: ...
    async def fail(self, task: Claimed, error: str, *, code: str | None = None, tx: Any = None) -> bool: ...
    async def release(self, task: Claimed, *, tx: Any = None) -> bool: ...
    async def snooze(self, task: Claimed, delay: Duration, *, tx: Any = None) -> bool: ...
    async def extend(self, task: Claimed, seconds: Duration, *, tx: Any = None) -> bool: ...
    async def cancel(self, id: int, running: bool = False, *, tx: Any = None) -> bool: ...
    def work(
        self, worker: str | None = None, *, batch: int = 1, lease: Duration | None = None
    ) -> AsyncSubscription[Task[P]]: ...
    def handling(self, task: Task[P]) -> AbstractAsyncContextManager[Task[P], bool]: ...
    async def get(self, id: int) -> TaskInfo[P] | None: ...
    async def peek(self, limit: int = 1) -> list[TaskInfo[P]]: ...
    async def dead(self, limit: int = 100) -> list[TaskInfo[P]]: ...
    async def dead_by_error(self, limit: int = 100) -> list[DeadTasks]: ...
    async def stats(self) -> QueueStats: ...
    async def size(self) -> int: ...
    async def next_due(self) -> datetime | None: ...
    async def sweep(self) -> int: ...
    async def purge(self, state: TaskState = "ready") -> int: ...
    async def purge_dead(self, older_than: Duration | None = None) -> int: ...
    async def requeue(self, ids: Iterable[int] | None = None) -> int: ...
    async def pause(self) -> None: ...
    async def resume(self) -> None: ...
    async def configure(
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
    ) -> None: ...
    async def settings(self) -> QueueSettings: ...
    async def drop(self, *, force: bool = False) -> bool: ...
    async def tasks(
        self, state: TaskState | None = None, limit: int = 100, after: int = 0, *, group: str | None = None
    ) -> list[TaskInfo[P]]: ...


class AsyncNotificationChannel(Protocol[P]):
    """`NotificationChannel`, awaited."""

    name: str

    async def notify(self, payload: P, *, headers: Headers = None, tx: Any = None) -> int: ...
    def listen(self, *, start: ChannelStart | int = "latest") -> AsyncSubscription[Notification[P]]: ...
    async def head(self) -> int: ...
    async def prune(self, *, older_than: Duration | None = None, keep_count: int | None = None) -> int: ...
    async def configure(self, *, keep: Duration | None = KEEP, keep_count: int | None = KEEP) -> None: ...
    async def settings(self) -> ChannelSettings: ...


class AsyncOutbox(Protocol[P]):
    """`Outbox`, awaited.  *deliver* may be a coroutine function; a callable that blocks runs in a thread."""

    name: str

    @property
    def queue(self) -> AsyncTaskQueue[P]: ...
    async def add(
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
    ) -> str: ...
    async def run(self, worker: str | None = None, *, batch: int = 1) -> None: ...
    def stop(self) -> None: ...
    async def stats(self) -> OutboxStats: ...


class AsyncInbox(Protocol):
    """`Inbox`, awaited."""

    consumer: str

    async def once(self, message_id: str, *, tx: Any) -> bool: ...
    async def prune(self, *, older_than: Duration) -> int: ...
    async def configure(self, *, keep: Duration | None = KEEP) -> None: ...
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
        catch_up: CatchUp = "all",
        paused: bool = False,
        headers: Headers = None,
        tx: Any = None,
    ) -> None: ...
    async def remove(self, name: str, *, tx: Any = None) -> bool: ...
    async def pause(self, name: str, *, tx: Any = None) -> bool: ...
    async def resume(self, name: str, *, tx: Any = None) -> bool: ...
    async def update(
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
    ) -> bool: ...
    async def get(self, name: str) -> Schedule | None: ...
    async def soonest(self) -> datetime | None: ...
    async def upcoming(self, name: str, count: int = 10) -> list[datetime]: ...
    async def tick(self, now: datetime | None = None, *, tx: Any = None) -> list[Fire]: ...
    def next_after(self, when: str, moment: datetime, tz: str = "UTC") -> datetime: ...
    # Last, because a type checker would take ``list`` for this method below it.
    async def list(self) -> list[Schedule]: ...


class AsyncLock(Protocol):
    """`Lock`, awaited."""

    name: str

    @property
    def fence(self) -> int | None: ...
    async def acquire(self, wait: Duration = 0) -> bool: ...
    async def renew(self, ttl: Duration | None = None) -> bool: ...
    async def release(self) -> bool: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: object) -> None: ...


class AsyncLimit(Protocol):
    """`Limit`, awaited."""

    name: str

    async def acquire(self) -> bool: ...


class AsyncResults(Protocol):
    """`Results`, awaited."""

    async def save(self, id: int | str, value: Any, ttl: Duration = 3600, *, tx: Any = None) -> None: ...
    async def get(self, id: int | str, default: Any = None) -> Any: ...
    async def wait(self, id: int | str, timeout: Duration | None = None) -> Any: ...
    async def sweep(self) -> int: ...

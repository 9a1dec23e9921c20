"""The kit: a database with eventkit in it, and the way to all handles."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, Self, overload

from ..checks import Duration
from ..stats import LimitInfo, Maintained, Overview, WorkerInfo
from ..values import Message, Notification, Task
from .coordination import AsyncLock, AsyncResults, AsyncSchedules, Lock, Results, Schedules
from .iterators import AsyncSubscription, P, Subscription
from .outboxes import AsyncInbox, AsyncOutbox, Inbox, Outbox
from .queues import AsyncTaskQueue, TaskQueue
from .streams import AsyncEventStream, AsyncNotificationChannel, EventStream, NotificationChannel


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

        *queues* are names, or names with weights: of two queues that have tasks, the one with twice the weight gets
        twice as many claims, and no queue starves.  With *strict*, a queue is served only while the queues listed
        before it are empty.  Within a queue, the order is that of `TaskQueue.work`.
        """
        ...

    def inbox(self, consumer: str) -> Inbox: ...

    def lock(self, name: str, ttl: Duration = 60) -> Lock:
        """Return a lock among all processes, not acquired yet.

        Its holder loses it after *ttl* seconds unless it renews it.
        """
        ...

    def rate_limit(self, name: str, limit: int, per: Duration) -> bool:
        """Return whether this is one of the first *limit* calls, in any process, in the current *per* seconds.

        Windows follow the database's clock.  Refused calls do not count.
        """
        ...

    def token_bucket(self, name: str, rate: float, burst: float | None = None) -> bool:
        """Take a token from a bucket that all processes share; return False if it is empty.

        The bucket gains *rate* tokens a second and holds at most *burst*: by default one second's worth, and at least
        one.
        """
        ...

    @property
    def results(self) -> Results:
        """The results of tasks, and other named values."""
        ...

    @property
    def schedules(self) -> Schedules:
        """The schedules of the database."""
        ...

    def run_scheduler(self) -> None:
        """Fire schedules when they are due, until the kit is closed.  Any number of processes may run it."""
        ...

    def maintain(self) -> Maintained:
        """Move due and expired tasks in all queues, and delete expired rows.

        Each transaction changes at most 1,000 rows, so that other writers can proceed.  Any number of processes may run
        it.
        """
        ...

    def run_maintenance(self, every: Duration = 60) -> None:
        """Call `maintain` once in *every* seconds until the kit is closed; of several processes, one does it."""
        ...

    def overview(self) -> Overview:
        """Return the numbers of all queues, topics, schedules, locks and results, from one statement."""
        ...

    def workers(self) -> list[WorkerInfo]:
        """Return the workers by name: those of an `App`, which report every ten seconds, and holders of leases."""
        ...

    def limits(self, limit: int = 1000) -> list[LimitInfo]:
        """Return the rate limit windows and token buckets that hold a count at present, by name."""
        ...

    def listen(self, *channels: str, start: str | int = "now") -> Subscription[Notification[Any]]:
        """Listen to several channels at once."""
        ...

    def transaction(self) -> AbstractContextManager[Any]:
        """Open a transaction for ``tx=`` without SQLAlchemy: it commits at the end, and rolls back on an error."""
        ...

    def close(self) -> None:
        """Save the consumers' offsets, end every iterator, and close the database.  May be called again."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...


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

        *queues* are names, or names with weights: of two queues that have tasks, the one with twice the weight gets
        twice as many claims, and no queue starves.  With *strict*, a queue is served only while the queues listed
        before it are empty.  Within a queue, the order is that of `TaskQueue.work`.
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

    async def workers(self) -> list[WorkerInfo]: ...

    async def limits(self, limit: int = 1000) -> list[LimitInfo]: ...

    def listen(self, *channels: str, start: str | int = "now") -> AsyncSubscription[Notification[Any]]: ...

    def transaction(self) -> AbstractAsyncContextManager[Any]: ...

    async def close(self) -> None: ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: object) -> None: ...

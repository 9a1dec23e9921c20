"""The kit: a database with eventkit in it, and the way to all handles."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, Self, overload

from ..arguments import Duration
from ..findings import Maintained
from ..looks import LimitInfo, WorkerInfo
from ..records import Message, Notification, Task
from ..stats import Overview
from .channels import AsyncNotificationChannel, NotificationChannel
from .locks import AsyncLock, Lock
from .outboxes import AsyncInbox, AsyncOutbox, Inbox, Outbox
from .queues import AsyncTaskQueue, TaskQueue
from .results import AsyncResults, Results
from .schedules import AsyncSchedules, Schedules
from .streams import AsyncEventStream, EventStream
from .subscriptions import AsyncSubscription, Subscription
from .terms import P


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

    def workers(self) -> list[WorkerInfo]:
        """Who works, by name: each `App`'s worker, heard of every ten seconds, and whoever has tasks leased."""
        ...

    def limits(self, limit: int = 1000) -> list[LimitInfo]:
        """The windows and buckets that have something to say, by name."""
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

    async def workers(self) -> list[WorkerInfo]: ...

    async def limits(self, limit: int = 1000) -> list[LimitInfo]: ...

    def listen(self, *channels: str, start: str | int = "now") -> AsyncSubscription[Notification[Any]]: ...

    def transaction(self) -> AbstractAsyncContextManager[Any]: ...

    async def close(self) -> None: ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *error: object) -> None: ...

"""Queues: tasks that are leased, retried, and done once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

from ..arguments import Duration
from ..findings import DeadLetters
from ..records import Enqueued, NewTask, Task, TaskInfo
from ..retry import Policy
from ..settings import QueueSettings
from ..stats import QueueStats
from .subscriptions import AsyncSubscription, Subscription
from .terms import KEEP, NO_RESULT, Ids, P, TaskInfos


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

    def enqueue_many(
        self, items: Iterable[P | NewTask], tx: Any = None, *, wait: Duration | None = None
    ) -> list[Enqueued]:
        """Add tasks, all or none; an answer for each.

        `QueueFull` if there is no room for all of them after up to *wait* seconds; at once for more than ``max_size``.
        """
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

    def ack(self, task: Task[Any], *, result: Any = NO_RESULT, then: Iterable[NewTask] = (), tx: Any = None) -> bool:
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
        max_attempts: int | None = KEEP,
        lease: Duration | None = KEEP,
        retry: Policy | str | Sequence[float] | None = KEEP,
        max_size: int | None = KEEP,
        rate: float | None = KEEP,
        burst: float | None = KEEP,
        max_running: int | None = KEEP,
        keep_done: Duration | None = KEEP,
        keep_dead: Duration | None = KEEP,
        key_ttl: Duration | None = KEEP,
        dead_letter_to: str | None = KEEP,
        history: bool | None = KEEP,
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

    async def enqueue_many(
        self, items: Iterable[P | NewTask], tx: Any = None, *, wait: Duration | None = None
    ) -> list[Enqueued]: ...

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
        self, task: Task[Any], *, result: Any = NO_RESULT, then: Iterable[NewTask] = (), tx: Any = None
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
        max_attempts: int | None = KEEP,
        lease: Duration | None = KEEP,
        retry: Policy | str | Sequence[float] | None = KEEP,
        max_size: int | None = KEEP,
        rate: float | None = KEEP,
        burst: float | None = KEEP,
        max_running: int | None = KEEP,
        keep_done: Duration | None = KEEP,
        keep_dead: Duration | None = KEEP,
        key_ttl: Duration | None = KEEP,
        dead_letter_to: str | None = KEEP,
        history: bool | None = KEEP,
    ) -> None: ...

    async def settings(self) -> QueueSettings: ...

    async def drop(self, *, force: bool = False) -> bool: ...

    # Last, because below it ``list`` would mean this method to a type checker.
    async def list(self, state: str | None = None, limit: int = 100, after: int = 0) -> TaskInfos[P]: ...

"""Queues: tasks that are leased, retried, and done once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

from ..checks import Duration
from ..retry import Policy
from ..stats import DeadLetters, QueueStats
from ..values import Enqueued, NewTask, QueueSettings, Task, TaskInfo
from .iterators import KEEP, NO_RESULT, AsyncSubscription, Ids, P, Subscription, TaskInfos


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
        headers: Mapping[str, str] | None = None,
        wait: Duration | None = None,
        tx: Any = None,
    ) -> Enqueued:
        """Add a task; return its id, and whether this call created it.

        The task is due after *delay*, or at *run_at*, or now; no worker gets it after *expires*.  While a task with the
        same *key* is live or dead, and for the queue's ``key_ttl`` after it was enqueued, no second one is created.  If
        the queue is full, wait up to *wait* seconds for room, then raise `QueueFull`.
        """
        ...

    def enqueue_many(
        self, items: Iterable[P | NewTask], tx: Any = None, *, wait: Duration | None = None
    ) -> list[Enqueued]:
        """Add tasks, all or none; return one answer for each.

        If there is no room for all of them, wait up to *wait* seconds, then raise `QueueFull`; for more tasks than
        ``max_size``, raise it at once.
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

        Wait up to *wait* seconds for the first one.  Another worker can claim a task once its lease has run out.
        """
        ...

    def receive(self, limit: int = 1, tx: Any = None) -> list[Task[P]]:
        """Claim and delete tasks in one step: each is delivered at most once, and is lost if this process dies."""
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
        """Return a validated task of this queue, not enqueued yet, for ``ack(then=)`` or the queue's `enqueue_many`."""
        ...

    def ack(self, task: Task[Any], *, result: Any = NO_RESULT, then: Iterable[NewTask] = (), tx: Any = None) -> bool:
        """Finish a task; return False if its lease has run out.

        The task is deleted, or kept for the queue's ``keep_done``.  A *result*, which may be None, is saved under the
        task's id for `Results.get` and `Results.wait`: for an hour, or for as long as the task is kept if that is
        longer.  The tasks in *then*, made by `new` and of any queue, are enqueued in the same step; a task whose key is
        taken is not enqueued again.
        """
        ...

    def ack_many(self, tasks: Iterable[Task[Any]], tx: Any = None, *, results: Mapping[int, Any] | None = None) -> Ids:
        """Finish tasks; return the ids of those whose lease had not run out.

        *results* maps the ids of tasks to the results to save.
        """
        ...

    def retry(
        self, task: Task[Any], *, delay: Duration | None = None, error: str | None = None, tx: Any = None
    ) -> bool:
        """Put a task back for another attempt, after *delay* or by the queue's retry policy.

        A task that has used up its attempts is dead.  Return False if its lease has run out.
        """
        ...

    def fail(self, task: Task[Any], error: str, tx: Any = None) -> bool:
        """Make a task a dead letter now; return False if its lease has run out."""
        ...

    def release(self, task: Task[Any], tx: Any = None) -> bool:
        """Put a task back as if it had not been claimed; return False if its lease has run out."""
        ...

    def snooze(self, task: Task[Any], delay: Duration, tx: Any = None) -> bool:
        """Put a task back, due in *delay* seconds, as if it had not been claimed; False if its lease has run out."""
        ...

    def extend(self, task: Task[Any], seconds: Duration, tx: Any = None) -> bool:
        """Set the lease to end *seconds* from now; return False if it has run out."""
        ...

    def cancel(self, id: int, running: bool = False, tx: Any = None) -> bool:
        """Delete a waiting task, or with *running* a leased one; return False if there is none.

        For a leased task, a notification with its *queue* and *id* goes to the channel ``eventkit:cancelled``.
        """
        ...

    def work(
        self, worker: str | None = None, *, batch: int = 1, lease: Duration | None = None
    ) -> Subscription[Task[P]]:
        """Iterate over tasks for ever, claiming up to *batch* at a time."""
        ...

    def handling(self, task: Task[P]) -> AbstractContextManager[Task[P], bool]:
        """Extend the task's lease while the body runs, and ack the task at the end.

        The body raises `Retry`, `Snooze` or `Permanent` to choose another outcome.  Any other `Exception` is logged and
        suppressed, and the task is retried by the queue's policy.  A `BaseException` releases the task and propagates.
        """
        ...

    def get(self, id: int) -> TaskInfo[P] | None:
        """Return the task with this id, in any state; None if there is none."""
        ...

    def peek(self, limit: int = 1) -> TaskInfos[P]:
        """Return the tasks that a claim would return, in its order."""
        ...

    def dead(self, limit: int = 100) -> TaskInfos[P]:
        """Return dead letters, newest first."""
        ...

    def dead_by_error(self, limit: int = 100) -> list[DeadLetters]:
        """Return the number of dead letters for each reason and error, highest first."""
        ...

    def stats(self) -> QueueStats:
        """Return the queue's numbers."""
        ...

    def size(self) -> int:
        """Return the number of scheduled, ready and leased tasks."""
        ...

    def next_due(self) -> datetime | None:
        """Return when the next waiting task is or was due; None if no task waits."""
        ...

    def sweep(self) -> int:
        """Move due and expired tasks, as the next claim would; return their number."""
        ...

    def purge(self, state: str = "ready") -> int:
        """Delete the tasks in one state; return their number."""
        ...

    def purge_dead(self, older_than: Duration | None = None) -> int:
        """Delete dead letters, or only those that died longer ago than *older_than*; return their number."""
        ...

    def requeue(self, ids: Iterable[int] | None = None) -> int:
        """Make dead tasks, all or those with these ids, ready again with their attempts reset; return their number."""
        ...

    def pause(self) -> None:
        """Stop handing out tasks until `resume`; the queue still accepts them."""
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
        """Store settings of the queue, which every process follows from then on.

        None restores the default.  Omitted settings stay as they are.
        """
        ...

    def settings(self) -> QueueSettings:
        """Return the queue's settings."""
        ...

    def drop(self, *, force: bool = False) -> bool:
        """Delete the queue: its settings, its keys, and its finished tasks.

        If it has other tasks, change nothing and return False, unless *force* deletes those too.
        """
        ...

    # Last, because below it ``list`` would mean this method to a type checker.
    def list(self, state: str | None = None, limit: int = 100, after: int = 0) -> TaskInfos[P]:
        """Return tasks in the order of their ids, from after the id *after*, all or those in one state."""
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

"""`TaskQueue`: one queue of the database, as a handle."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any

import msgspec

from . import arguments, retry, task_rows
from .arguments import KEEP, Duration
from .codec import Codec, Encoded, encode_headers
from .feeds import Tasks
from .operations import Operation, finish, queue_settings
from .operations import queue as operations
from .operations.chain import AckThen
from .operations.claim import Claim, ReadOutlook, Receive, Sweep, fresh_token
from .operations.enqueue import Enqueue, EnqueueMany, EnqueueOne, EnqueuePlain, RoomAhead
from .operations.result import AckManyWithResults, AckWithResult, TaskResult
from .records import NewTask, Task
from .rota import Rota
from .task_rows import following_row, task_row
from .telemetry import with_trace

_NO_RESULT: Any = object()
_STATES = ("scheduled", "ready", "leased", "dead", "done")


class Queue:
    """Behaves as `eventkit.protocols.TaskQueue` and `AsyncTaskQueue` say."""

    def __init__(self, execute: Callable[..., Any], loops: Any, name: str, codec: Codec) -> None:
        self.name = arguments.name("queue", name)
        self._execute = execute
        self._loops = loops
        self._codec = codec

    def enqueue(
        self,
        payload: Any,
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
    ) -> Any:
        """Add a task; its id, and whether it is new."""
        operation: Any
        if delay is None and run_at is None and expires is None and key is None:
            if priority != 0:
                task_rows.priority(priority)
            if max_attempts is not None:
                arguments.count("max_attempts", max_attempts, least=1)
            headers = with_trace(headers)
            text = encode_headers(headers) if headers else None
            operation = Enqueue(self.name, self._codec.encode(payload), text, priority, max_attempts)
        else:
            task = NewTask(payload, delay, run_at, priority, max_attempts, expires, key, headers)
            operation = EnqueueOne(self.name, task_row(self._codec, self.name, task))
        return self._enqueue(operation, 1, wait, tx)

    def enqueue_many(self, items: Iterable[Any], tx: Any = None, *, wait: Duration | None = None) -> Any:
        """Add tasks in one transaction, after waiting for room for all of them; an answer for each, in order."""
        items = list(items)
        headers = with_trace(None)
        operation: Any
        if headers is None and NewTask not in set(map(type, items)):
            operation = EnqueuePlain(self.name, self._codec.encode_many(items))
        else:
            tasks = [item if isinstance(item, NewTask) else NewTask(item) for item in items]
            operation = EnqueueMany(self.name, [task_row(self._codec, self.name, task) for task in tasks])
        return self._enqueue(operation, len(items), wait, tx)

    def _enqueue(self, operation: Operation[Any], count: int, wait: Duration | None, tx: Any) -> Any:
        if wait is None:
            return self._execute(operation, tx)
        if tx is not None:
            raise ValueError("wait= cannot be combined with tx=: what makes room may be waiting for that transaction")
        seconds = arguments.milliseconds("wait", wait) / 1000
        return self._loops.enqueue(operation, RoomAhead(self.name, count), seconds)

    def new(
        self,
        payload: Any,
        *,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        expires: Duration | datetime | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> NewTask:
        """A task of this queue that is not enqueued yet."""
        task = NewTask(payload, delay, run_at, priority, max_attempts, expires, key, headers, self.name)
        text, *_ = task_row(self._codec, self.name, task)
        return msgspec.structs.replace(task, payload=Encoded(text))

    def claim(
        self,
        worker: str,
        limit: int = 1,
        *,
        lease: Duration | None = None,
        wait: Duration = 0,
        tx: Any = None,
    ) -> Any:
        """Lease the best tasks that are ready, waiting for the first if asked to."""
        arguments.name("worker", worker)
        arguments.count("limit", limit, least=1)
        length = None if lease is None else arguments.milliseconds("lease", lease)
        operation = Claim(self.name, worker, limit, length, fresh_token(), self._codec)
        if not wait:
            return self._execute(operation, tx)
        if tx is not None:
            raise ValueError("wait= cannot be combined with tx=: what is waited for may be waiting for it")
        seconds = arguments.milliseconds("wait", wait) / 1000
        return self._loops.attempt(operation, ReadOutlook(self.name), seconds)

    def receive(self, limit: int = 1, tx: Any = None) -> Any:
        """Claim and delete in one step."""
        arguments.count("limit", limit, least=1)
        return self._execute(Receive(self.name, limit, fresh_token(), self._codec), tx)

    def ack(self, task: Task[Any], *, result: Any = _NO_RESULT, then: Iterable[NewTask] = (), tx: Any = None) -> Any:
        """Finish a task, save its result and enqueue what follows; False if it is no longer ours."""
        operation: Operation[bool] = finish.Ack(task.id, task.token)
        if result is not _NO_RESULT:
            operation = AckWithResult(task.id, task.token, task.queue, self._any.encode(result))
        if following := [following_row(self._any, task) for task in then]:
            operation = AckThen(operation, following)
        return self._execute(operation, tx)

    def ack_many(self, tasks: Iterable[Task[Any]], tx: Any = None, *, results: Mapping[int, Any] | None = None) -> Any:
        """Finish tasks, and save the results of some; the ids of those that were still ours."""
        batch = sorted(tasks, key=attrgetter("id"))
        careful = tx is not None or any(task.key is not None for task in batch)
        held = [(task.id, task.token) for task in batch]
        if results:
            return self._execute(AckManyWithResults(held, _result_rows(self._any, batch, results), careful), tx)
        operation = finish.FinishMany if careful else finish.AckMany
        return self._execute(operation(held), tx)

    def retry(self, task: Task[Any], *, delay: Duration | None = None, error: str | None = None, tx: Any = None) -> Any:
        """Put a task back for another attempt; dead if it has had them all."""
        pause = None if delay is None else arguments.milliseconds("delay", delay)
        return self._execute(
            finish.Retry(task.id, task.token, pause, None if error is None else arguments.text(error)), tx
        )

    def fail(self, task: Task[Any], error: str, tx: Any = None) -> Any:
        """Make a task a dead letter now."""
        return self._execute(finish.Fail(task.id, task.token, arguments.text(error)), tx)

    def release(self, task: Task[Any], tx: Any = None) -> Any:
        """Put a task back as if it had not been claimed."""
        return self._execute(finish.Release(task.id, task.token), tx)

    def snooze(self, task: Task[Any], delay: Duration, tx: Any = None) -> Any:
        """Put a task back for later as if it had not been claimed."""
        pause = arguments.milliseconds("delay", delay)
        return self._execute(finish.Snooze(task.id, task.token, pause), tx)

    def extend(self, task: Task[Any], seconds: Duration, tx: Any = None) -> Any:
        """Let the lease end so many seconds from now."""
        lease = arguments.milliseconds("seconds", seconds)
        return self._execute(finish.Extend(task.id, task.token, lease), tx)

    def cancel(self, id: int, running: bool = False, tx: Any = None) -> Any:
        """Delete a task that waits, or one that is running too."""
        return self._execute(operations.Cancel(self.name, arguments.count("id", id), running), tx)

    def work(self, worker: str | None = None, *, batch: int = 1, lease: Duration | None = None) -> Any:
        """Iterate over the queue's tasks for ever."""
        rota = Rota.of({self.name: 1}, worker, batch, lease, self._codec)
        return self._loops.iterate(Tasks(rota, ReadOutlook(self.name)))

    def handling(self, task: Task[Any]) -> Any:
        """Around the work on a task: keeps the lease, then acks or retries."""
        return self._loops.handling(task)

    def get(self, id: int) -> Any:
        """A task, in whatever state."""
        return self._execute(operations.GetTask(self.name, arguments.count("id", id), self._codec))

    def list(self, state: str | None = None, limit: int = 100, after: int = 0) -> Any:
        """Tasks by id."""
        if state is not None:
            arguments.choice("state", state, _STATES)
        arguments.count("limit", limit, least=1)
        return self._execute(
            operations.ListTasks(self.name, limit, self._codec, state, arguments.count("after", after))
        )

    def peek(self, limit: int = 1) -> Any:
        """What a claim would hand out, best first."""
        return self._execute(operations.PeekTasks(self.name, arguments.count("limit", limit, least=1), self._codec))

    def dead(self, limit: int = 100) -> Any:
        """The dead letters, newest first."""
        return self._execute(operations.ListDead(self.name, arguments.count("limit", limit, least=1), self._codec))

    def stats(self) -> Any:
        """The queue in numbers."""
        return self._execute(operations.ReadStats(self.name))

    def size(self) -> Any:
        """How many tasks are scheduled, ready or leased."""
        return self._execute(operations.ReadSize(self.name))

    def next_due(self) -> Any:
        """When the next task is due."""
        return self._execute(operations.ReadNextDue(self.name))

    def sweep(self) -> Any:
        """Move everything that is due or expired; how many tasks."""
        return self._execute(Sweep(self.name))

    def purge(self, state: str = "ready") -> Any:
        """Delete the tasks in one state; how many."""
        return self._execute(operations.Purge(self.name, arguments.choice("state", state, _STATES), None))

    def purge_dead(self, older_than: Duration | None = None) -> Any:
        """Delete dead letters; how many."""
        age = None if older_than is None else arguments.milliseconds("older_than", older_than)
        return self._execute(operations.Purge(self.name, "dead", age))

    def requeue(self, ids: Iterable[int] | None = None) -> Any:
        """Give dead tasks a new life; how many."""
        chosen = [] if ids is None else [arguments.count("id", id) for id in ids]
        return self._execute(operations.Requeue(self.name, ids is None, chosen))

    def pause(self) -> Any:
        """Hand out nothing until `resume`."""
        return self._execute(queue_settings.SetPaused(self.name, True))

    def resume(self) -> Any:
        """Hand out tasks again."""
        return self._execute(queue_settings.SetPaused(self.name, False))

    def configure(
        self,
        *,
        max_attempts: int | None = KEEP,
        lease: Duration | None = KEEP,
        retry: Any = KEEP,
        max_size: int | None = KEEP,
        rate: float | None = KEEP,
        burst: float | None = KEEP,
        max_running: int | None = KEEP,
        keep_done: Duration | None = KEEP,
        keep_dead: Duration | None = KEEP,
        key_ttl: Duration | None = KEEP,
        dead_letter_to: str | None = KEEP,
        history: bool | None = KEEP,
    ) -> Any:
        """Store settings for every process; None is the default again, what is left out stays."""
        changes = changes_of(
            self.name,
            max_attempts=max_attempts,
            lease=lease,
            retry=retry,
            max_size=max_size,
            rate=rate,
            burst=burst,
            max_running=max_running,
            keep_done=keep_done,
            keep_dead=keep_dead,
            key_ttl=key_ttl,
            dead_letter_to=dead_letter_to,
            history=history,
        )
        return self._execute(queue_settings.Configure(self.name, changes))

    def settings(self) -> Any:
        """What the queue is configured to."""
        return self._execute(queue_settings.ReadSettings(self.name))

    def dead_by_error(self, limit: int = 100) -> Any:
        """How many dead letters there are of each error."""
        return self._execute(operations.ListDeadByError(self.name, arguments.count("limit", limit, least=1)))

    def drop(self, *, force: bool = False) -> Any:
        """Forget the queue; False if there are tasks in it, and not *force*."""
        return self._execute(operations.Drop(self.name, bool(force)))

    @property
    def _any(self) -> Codec:
        """For what is not of the handle's type."""
        return Codec(largest=self._codec.largest)


def changes_of(queue: str, **given: Any) -> dict[str, Any]:
    """What `configure` of *queue* is given, checked, as the database gets it; `KEEP` is not given."""
    checks: dict[str, Callable[[str, Any], Any]] = {
        "max_attempts": _at_least_one,
        "lease": lambda name, value: arguments.milliseconds(name, value, least=1),
        "retry": _policy,
        "max_size": _at_least_one,
        "rate": arguments.positive,
        "burst": lambda name, value: arguments.burst(value),
        "max_running": _at_least_one,
        "keep_done": arguments.milliseconds,
        "keep_dead": arguments.milliseconds,
        "key_ttl": arguments.milliseconds,
        "dead_letter_to": lambda name, value: _other_queue(queue, value),
        "history": arguments.flag,
    }
    return arguments.settings(**{name: (value, checks[name]) for name, value in given.items()})


def _other_queue(queue: str, name: str) -> str:
    if arguments.name("queue", name) == queue:
        raise ValueError(f"dead letters of queue {name!r} cannot be copied to itself: name another queue")
    return name


def _at_least_one(setting: str, value: Any) -> int:
    return arguments.count(setting, value, least=1)


def _policy(setting: str, value: Any) -> str:
    return retry.encode(retry.policy(value))


def _result_rows(codec: Codec, tasks: list[Task[Any]], results: Mapping[int, Any]) -> list[TaskResult]:
    queues = {task.id: task.queue for task in tasks}
    if strangers := results.keys() - queues.keys():
        raise ValueError(f"results= is for the tasks that the call acks, by their ids, not for {sorted(strangers)}")
    return [(id, codec.encode(results[id]), queues[id]) for id in sorted(results)]

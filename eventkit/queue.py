"""`TaskQueue`: one queue of the database, as a handle."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any

from . import arguments, retry
from .arguments import Duration
from .codec import Codec, encode_headers
from .operations import finish
from .operations import queue as operations
from .operations.claim import Claim, ReadOutlook, Receive, Sweep, fresh_token
from .operations.enqueue import Enqueue, EnqueueMany, EnqueueOne, EnqueuePlain, RoomAhead, TaskRow
from .operations.result import AckWithResult
from .records import NewTask, Task
from .rota import Rota
from .telemetry import with_trace

_KEEP: Any = object()
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
                _priority(priority)
            if max_attempts is not None:
                arguments.count("max_attempts", max_attempts, least=1)
            headers = with_trace(headers)
            text = encode_headers(headers) if headers else None
            operation = Enqueue(self.name, self._codec.encode(payload), text, priority, max_attempts)
        else:
            task = NewTask(payload, delay, run_at, priority, max_attempts, expires, key, headers)
            operation = EnqueueOne(self.name, task_row(self._codec, task))
        if wait is None:
            return self._execute(operation, tx)
        if tx is not None:
            raise ValueError("wait= cannot be combined with tx=: what makes room may be waiting for that transaction")
        seconds = arguments.milliseconds("wait", wait) / 1000
        return self._loops.enqueue(operation, RoomAhead(self.name, 1), seconds)

    def enqueue_many(self, items: Iterable[Any], tx: Any = None) -> Any:
        """Add tasks in one transaction; an answer for each, in order."""
        items = list(items)
        headers = with_trace(None)
        if headers is None and NewTask not in set(map(type, items)):
            return self._execute(EnqueuePlain(self.name, self._codec.encode_many(items)), tx)
        rows = [task_row(self._codec, item if isinstance(item, NewTask) else NewTask(item)) for item in items]
        return self._execute(EnqueueMany(self.name, rows), tx)

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

    def ack(self, task: Task[Any], *, result: Any = _NO_RESULT, tx: Any = None) -> Any:
        """Finish a task, and save its result; False if it is no longer ours."""
        if result is _NO_RESULT:
            return self._execute(finish.Ack(task.id, task.token), tx)
        text = Codec(largest=self._codec.largest).encode(result)
        return self._execute(AckWithResult(task.id, task.token, task.queue, text), tx)

    def ack_many(self, tasks: Iterable[Task[Any]], tx: Any = None) -> Any:
        """Finish tasks; the ids of those that were still ours."""
        batch = sorted(tasks, key=attrgetter("id"))
        careful = tx is not None or any(task.key is not None for task in batch)
        operation = finish.FinishMany if careful else finish.AckMany
        return self._execute(operation([(task.id, task.token) for task in batch]), tx)

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

    def extend(self, task: Task[Any], seconds: Duration, tx: Any = None) -> Any:
        """Let the lease end so many seconds from now."""
        lease = arguments.milliseconds("seconds", seconds)
        return self._execute(finish.Extend(task.id, task.token, lease), tx)

    def cancel(self, id: int, running: bool = False, tx: Any = None) -> Any:
        """Delete a task that waits, or one that is running too."""
        return self._execute(operations.Cancel(self.name, arguments.count("id", id), running), tx)

    def work(self, worker: str | None = None, *, batch: int = 1, lease: Duration | None = None) -> Any:
        """Iterate over the queue's tasks for ever."""
        return self._loops.work(Rota.of({self.name: 1}, worker, batch, lease, self._codec), ReadOutlook(self.name))

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
        return self._execute(operations.SetPaused(self.name, True))

    def resume(self) -> Any:
        """Hand out tasks again."""
        return self._execute(operations.SetPaused(self.name, False))

    def configure(
        self,
        *,
        max_attempts: int | None = _KEEP,
        lease: Duration | None = _KEEP,
        retry: Any = _KEEP,
        max_size: int | None = _KEEP,
        rate: float | None = _KEEP,
        burst: float | None = _KEEP,
        max_running: int | None = _KEEP,
        keep_done: Duration | None = _KEEP,
        key_ttl: Duration | None = _KEEP,
        dead_letter_to: str | None = _KEEP,
    ) -> Any:
        """Store settings for every process; None is the default again, what is left out stays."""
        given: dict[str, tuple[Any, Callable[[Any], Any]]] = {
            "max_attempts": (max_attempts, lambda value: arguments.count("max_attempts", value, least=1)),
            "lease": (lease, lambda value: arguments.milliseconds("lease", value, least=1)),
            "retry": (retry, _policy),
            "max_size": (max_size, lambda value: arguments.count("max_size", value, least=1)),
            "rate": (rate, lambda value: arguments.positive("rate", value)),
            "burst": (burst, arguments.burst),
            "max_running": (max_running, lambda value: arguments.count("max_running", value, least=1)),
            "keep_done": (keep_done, lambda value: arguments.milliseconds("keep_done", value)),
            "key_ttl": (key_ttl, lambda value: arguments.milliseconds("key_ttl", value)),
            "dead_letter_to": (dead_letter_to, self._other_queue),
        }
        changes = {
            name: None if value is None else check(value)
            for name, (value, check) in given.items()
            if value is not _KEEP
        }
        return self._execute(operations.Configure(self.name, changes))

    def _other_queue(self, name: str) -> str:
        if arguments.name("queue", name) == self.name:
            raise ValueError(f"dead letters of queue {name!r} cannot be copied to itself: name another queue")
        return name


def task_row(codec: Codec, task: NewTask) -> TaskRow:
    """*task*, checked, as the database gets it."""
    run_at = expires_in = expires_at = None
    if task.delay is None and task.run_at is not None:
        run_at = arguments.moment("run_at", task.run_at)
    if isinstance(task.expires, datetime):
        expires_at = arguments.moment("expires", task.expires)
    elif task.expires is not None:
        expires_in = arguments.milliseconds("expires", task.expires)
    return (
        codec.encode(task.payload),
        encode_headers(with_trace(task.headers)),
        _priority(task.priority),
        None if task.max_attempts is None else arguments.count("max_attempts", task.max_attempts, least=1),
        None if task.key is None else arguments.key(task.key),
        None if task.delay is None else arguments.milliseconds("delay", task.delay, least=-arguments.FOREVER),
        run_at,
        expires_in,
        expires_at,
    )


def _priority(value: Any) -> int:
    return arguments.count("priority", value, least=-(2**31), most=2**31 - 1)


def _policy(value: Any) -> str:
    return retry.encode(retry.policy(value))

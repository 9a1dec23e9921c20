"""`TaskQueue`: one queue of the database, as a handle, and the tasks that its workers claim."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from time import monotonic
from typing import Any

import msgspec

from . import checks, protocols, retry
from .checks import NO_RESULT, Duration, Headers
from .codec import Codec, Encoded, encode_json, traced_headers
from .errors import PASSING, QueueFull
from .handling import APPS, Lease, logger
from .loops import Feed
from .operations import Operation, Probe, finish
from .operations import queue as operations
from .operations.bulk import AckThen, CollectedTask
from .operations.claim import Ack, AckMany, Claim, QueueOrder, Receive, Sweep, TasksAhead, fresh_token
from .operations.coordination import AckWithResult, FinishMany, TaskResult
from .operations.enqueue import Enqueue, EnqueueMany, EnqueueOne, EnqueuePlain, RoomAhead, TaskRow
from .plans import HAND, Plan, Sleep
from .values import Claimed, NewTask, OnDead, Task, TaskState


def task_row(codec: Codec, queue: str, task: NewTask) -> TaskRow:
    """Return the row of *task*, for *queue*, whose payloads *codec* encodes."""
    if task.queue is not None and task.queue != queue:
        raise ValueError(f"the task is for queue {task.queue!r}, not for {queue!r}: enqueue it there")
    run_at = expires_in = expires_at = None
    if task.delay is not None and task.run_at is not None:
        raise ValueError("a task is due after delay= seconds or at run_at=: pass one of them")
    if task.run_at is not None:
        run_at = checks.moment("run_at", task.run_at)
    if isinstance(task.expires, datetime):
        expires_at = checks.moment("expires", task.expires)
    elif task.expires is not None:
        expires_in = checks.milliseconds("expires", task.expires, least=-checks.FOREVER)
    return (
        task.payload.text if isinstance(task.payload, Encoded) else codec.encode(task.payload),
        traced_headers(task.headers),
        checked_priority(task.priority),
        None if task.max_attempts is None else checks.count("max_attempts", task.max_attempts, least=1),
        None if task.key is None else checks.key(task.key),
        None if task.delay is None else checks.milliseconds("delay", task.delay, least=-checks.FOREVER),
        run_at,
        expires_in,
        expires_at,
        None if task.group is None else checks.key(task.group),
    )


def following_row(codec: Codec, task: Any) -> CollectedTask:
    """Return the row of a task that names its queue."""
    if not isinstance(task, NewTask) or task.queue is None:
        raise TypeError(f"then= takes tasks that name their queue, made by queue.new(payload), not {task!r}")
    return (checks.name("queue", task.queue), *task_row(codec, task.queue, task))


def checked_priority(value: Any) -> int:
    """Return a priority that any database can store."""
    return checks.count("priority", value, least=-(2**31), most=2**31 - 1)


def cluster_limit(name: str, max_running: int | None, queues: Iterable[str]) -> operations.SetClusterLimit:
    """Return the operation that stores a limit over several queues, or deletes it."""
    if isinstance(queues, str):
        raise TypeError("queues is a list of names, not a str: queues=['one', 'two']")
    names = sorted({checks.name("queue", queue) for queue in queues})
    if (max_running is None) is bool(names):
        raise ValueError("a limit has a number and queues=[…]; None without queues= deletes it")
    most = 0 if max_running is None else checks.count("max_running", max_running, least=1)
    return operations.SetClusterLimit(checks.name("limit", name), most, names)


def plain_claims(
    weights: Mapping[str, float],
    worker: str | None,
    batch: int,
    lease: Duration | None,
    codec: Codec,
    strict: bool = False,
) -> QueueOrder:
    """Return plain claims, of up to *batch* tasks each."""
    worker = checks.default_worker() if worker is None else checks.name("worker", worker)
    checks.count("batch", batch, least=1)
    length = None if lease is None else checks.milliseconds("lease", lease)
    for queue in weights:
        if any(app.declares(queue) for app in APPS):
            logger.warning(
                "work() takes from queue %r, for which an App declares tasks: run eventkit worker for those, and "
                "put plain payloads into another queue",
                queue,
            )
    return QueueOrder(weights, lambda queue: Claim(queue, worker, batch, length, fresh_token(), codec), strict)


@protocols.documented(protocols.TaskQueue)
class Queue:
    """The implementation of `protocols.TaskQueue` and `AsyncTaskQueue`."""

    def __init__(self, execute: Callable[..., Any], loops: Any, name: str, codec: Codec) -> None:
        self.name = checks.name("queue", name)
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
        headers: Headers = None,
        group: str | None = None,
        wait: Duration | None = None,
        tx: Any = None,
    ) -> Any:
        operation: Any
        if delay is None and run_at is None and expires is None and key is None and group is None:
            if priority != 0:
                checked_priority(priority)
            if max_attempts is not None:
                checks.count("max_attempts", max_attempts, least=1)
            text = traced_headers(headers)
            operation = Enqueue(self.name, self._codec.encode(payload), text, priority, max_attempts)
        else:
            task = NewTask(payload, delay, run_at, priority, max_attempts, expires, key, headers, group)
            operation = EnqueueOne(self.name, task_row(self._codec, self.name, task))
        return self._enqueue(operation, 1, wait, tx)

    def enqueue_many(self, items: Iterable[Any], *, wait: Duration | None = None, tx: Any = None) -> Any:
        items = list(items)
        operation: Any
        if traced_headers(None) is None and NewTask not in set(map(type, items)):
            operation = EnqueuePlain(self.name, self._codec.encode_many(items))
        else:
            tasks = [item if isinstance(item, NewTask) else NewTask(item) for item in items]
            operation = EnqueueMany(self.name, [task_row(self._codec, self.name, task) for task in tasks])
        return self._enqueue(operation, len(items), wait, tx)

    def _enqueue(self, operation: Operation[Any], count: int, wait: Duration | None, tx: Any) -> Any:
        if wait is None:
            return self._execute(operation, tx)
        if tx is not None:
            raise ValueError("wait= cannot be combined with tx=: a worker that makes room may wait for it")
        seconds = checks.milliseconds("wait", wait) / 1000
        return self._loops.run(_enqueue(operation, RoomAhead(self.name, count), monotonic() + seconds))

    def new(self, payload: Any, **given: Any) -> NewTask:
        task = NewTask(payload, queue=self.name, **given)
        text, *_ = task_row(self._codec, self.name, task)
        return msgspec.structs.replace(task, payload=Encoded(text))

    def claim(
        self, worker: str, limit: int = 1, *, lease: Duration | None = None, wait: Duration = 0, tx: Any = None
    ) -> Any:
        checks.name("worker", worker)
        checks.count("limit", limit, least=1)
        length = None if lease is None else checks.milliseconds("lease", lease)
        operation = Claim(self.name, worker, limit, length, fresh_token(), self._codec)
        if not wait:
            return self._execute(operation, tx)
        if tx is not None:
            raise ValueError("wait= cannot be combined with tx=: the task waited for may depend on that transaction")
        seconds = checks.milliseconds("wait", wait) / 1000
        return self._loops.attempt(operation, TasksAhead(self.name), seconds)

    def receive(self, limit: int = 1, *, tx: Any = None) -> Any:
        checks.count("limit", limit, least=1)
        return self._execute(Receive(self.name, limit, fresh_token(), self._codec), tx)

    def ack(self, task: Claimed, *, result: Any = NO_RESULT, then: Iterable[NewTask] = (), tx: Any = None) -> Any:
        operation: Operation[bool] = Ack(*held(task))
        if result is not NO_RESULT:
            queue = self.name if isinstance(task, tuple) else task.queue
            operation = AckWithResult(*held(task), queue, self._any.encode(result))
        if following := [following_row(self._any, task) for task in then]:
            operation = AckThen(operation, following)
        return self._execute(operation, tx)

    def ack_many(self, tasks: Iterable[Claimed], *, results: Mapping[int, Any] | None = None, tx: Any = None) -> Any:
        batch = list(tasks)
        pairs = sorted(map(held, batch))
        # A task that is given by id and token may have a key.
        careful = tx is not None or any(isinstance(task, tuple) or task.key is not None for task in batch)
        if careful or results:
            queues = {id: self.name for id, _ in pairs}
            queues |= {task.id: task.queue for task in batch if not isinstance(task, tuple)}
            return self._execute(FinishMany(pairs, _result_rows(self._any, queues, results or {}), careful), tx)
        return self._execute(AckMany(pairs), tx)

    def retry(
        self,
        task: Claimed,
        *,
        delay: Duration | None = None,
        error: str | None = None,
        code: str | None = None,
        tx: Any = None,
    ) -> Any:
        pause = None if delay is None else checks.milliseconds("delay", delay)
        text = None if error is None else checks.text(error)
        return self._execute(finish.Retry(*held(task), pause, text, checks.code(code)), tx)

    def fail(self, task: Claimed, error: str, *, code: str | None = None, tx: Any = None) -> Any:
        return self._execute(finish.Fail(*held(task), checks.text(error), code=checks.code(code)), tx)

    def release(self, task: Claimed, *, tx: Any = None) -> Any:
        return self._execute(finish.Release(*held(task)), tx)

    def snooze(self, task: Claimed, delay: Duration, *, tx: Any = None) -> Any:
        return self._execute(finish.Snooze(*held(task), checks.milliseconds("delay", delay)), tx)

    def extend(self, task: Claimed, seconds: Duration, *, tx: Any = None) -> Any:
        return self._execute(finish.Extend(*held(task), checks.milliseconds("seconds", seconds)), tx)

    def cancel(self, id: int, running: bool = False, *, tx: Any = None) -> Any:
        return self._execute(operations.Cancel(self.name, checks.count("id", id), running), tx)

    def work(self, worker: str | None = None, *, batch: int = 1, lease: Duration | None = None) -> Any:
        order = plain_claims({self.name: 1}, worker, batch, lease, self._codec)
        return self._loops.iterate(Tasks(order, TasksAhead(self.name)))

    def handling(self, task: Task[Any]) -> Any:
        return self._loops.handling(self._loops, task)

    def get(self, id: int) -> Any:
        return self._execute(operations.GetTask(self.name, checks.count("id", id), self._codec))

    def tasks(
        self, state: TaskState | None = None, limit: int = 100, after: int = 0, *, group: str | None = None
    ) -> Any:
        stored = None if state is None else checks.state(state)
        checks.count("limit", limit, least=1)
        checks.count("after", after)
        return self._execute(operations.ListTasks(self.name, limit, self._codec, stored, after, group))

    def peek(self, limit: int = 1) -> Any:
        return self._execute(operations.PeekTasks(self.name, checks.count("limit", limit, least=1), self._codec))

    def dead(self, limit: int = 100) -> Any:
        return self._execute(operations.ListDead(self.name, checks.count("limit", limit, least=1), self._codec))

    def stats(self) -> Any:
        return self._execute(operations.ReadStats(self.name))

    def size(self) -> Any:
        return self._execute(operations.ReadSize(self.name))

    def next_due(self) -> Any:
        return self._execute(operations.ReadNextDue(self.name))

    def sweep(self) -> Any:
        return self._execute(Sweep(self.name))

    def purge(self, state: TaskState = "ready") -> Any:
        return self._execute(operations.Purge(self.name, checks.state(state), None))

    def purge_dead(self, older_than: Duration | None = None) -> Any:
        age = None if older_than is None else checks.milliseconds("older_than", older_than)
        return self._execute(operations.Purge(self.name, "dead", age))

    def requeue(self, ids: Iterable[int] | None = None) -> Any:
        chosen = [] if ids is None else [checks.count("id", id) for id in ids]
        return self._execute(operations.Requeue(self.name, ids is None, chosen))

    def pause(self) -> Any:
        return self._execute(operations.SetPaused(self.name, True))

    def resume(self) -> Any:
        return self._execute(operations.SetPaused(self.name, False))

    def configure(self, **given: Any) -> Any:
        return self._execute(operations.Configure(self.name, changes_of(self.name, **given)))

    def settings(self) -> Any:
        return self._execute(operations.ReadSettings(self.name))

    def dead_by_error(self, limit: int = 100) -> Any:
        return self._execute(operations.ListDeadByError(self.name, checks.count("limit", limit, least=1)))

    def drop(self, *, force: bool = False) -> Any:
        return self._execute(operations.Drop(self.name, bool(force)))

    @property
    def _any(self) -> Codec:
        """Return a codec for payloads without the handle's type."""
        return Codec(largest=self._codec.largest)


def _enqueue(operation: Operation[Any], probe: Probe, until: float) -> Plan[Any]:
    """Enqueue, retrying until then when there may be room."""
    while True:
        try:
            return (yield operation)
        except QueueFull as error:
            if not (error.fits and (yield Sleep(probe, until))):
                raise


def changes_of(queue: str, **given: Any) -> dict[str, Any]:
    """Return the validated arguments of `configure` for the database; those that are `KEEP` are left out."""

    def at_least_one(setting: str, value: Any) -> int:
        return checks.count(setting, value, least=1)

    def other_queue(setting: str, name: Any) -> str:
        if checks.name("queue", name) == queue:
            raise ValueError(f"dead tasks of queue {name!r} cannot be copied to itself: name another queue")
        return str(name)

    parsers: dict[str, Callable[[str, Any], Any]] = {
        "max_attempts": at_least_one,
        "lease": lambda name, value: checks.milliseconds(name, value, least=1),
        "retry": lambda name, value: retry.encode(retry.policy(value)),
        "max_size": at_least_one,
        "rate": checks.positive,
        "burst": lambda name, value: checks.burst(value),
        "max_running": at_least_one,
        "keep_done": checks.milliseconds,
        "keep_dead": checks.milliseconds,
        "key_ttl": checks.milliseconds,
        "dead_letter_to": other_queue,
        "history": checks.flag,
        "max_bytes": at_least_one,
        "strict_keys": checks.flag,
        "enqueue_rate": checks.positive,
        "enqueue_burst": lambda name, value: checks.burst(value, name),
        "ordered": checks.flag,
        "on_dead": lambda name, value: checks.choice(name, value, OnDead),
        "fair": checks.flag,
        "group_max_running": at_least_one,
        "group_rate": checks.positive,
        "weights": lambda name, value: encode_json(checks.group_weights(value)),
    }
    if unknown := given.keys() - parsers.keys():
        raise TypeError(f"a queue has no setting {min(unknown)!r}: it has {', '.join(parsers)}")
    return checks.settings(**{name: (value, parsers[name]) for name, value in given.items()})


def held(task: Claimed) -> finish.Held:
    """Return the id and the token of a claimed task, or those that are given in its place."""
    if isinstance(task, Task):
        return task.id, task.token
    if isinstance(task, tuple) and len(task) == 2:
        id, token = task
        return checks.count("id", id), checks.count("token", token)
    raise TypeError(f"pass a claimed task, or its id and its token as a pair, not {task!r}")


def _result_rows(codec: Codec, queues: Mapping[int, str], results: Mapping[int, Any]) -> list[TaskResult]:
    if strangers := results.keys() - queues.keys():
        raise ValueError(f"results= is for the tasks that the call acks, by their ids, not for {sorted(strangers)}")
    return [(id, codec.encode(results[id]), queues[id], None) for id in sorted(results)]


class Tasks(Feed[Task[Any]]):
    """The tasks of the queues of *order*, claimed as needed.

    While the first tasks of a batch are processed, the leases of the others are renewed; a task whose lease may have
    run out, because this process was suspended, is not handed out.
    """

    def __init__(self, order: QueueOrder, probe: Probe) -> None:
        super().__init__()
        self._order = order
        self._probe = probe
        self._lease: _BatchLease | None = None

    def steps(self) -> Plan[None]:
        """Claim and hand out."""
        while True:
            try:
                for claim in self._order:
                    tasks = yield claim
                    self._order.record(claim, len(tasks))
                    if tasks:
                        self._hold(tasks)
                        break
                else:
                    yield Sleep(self._probe)
                while self.items:
                    yield HAND
                    if self.items:
                        self._drop_lapsed()
            except PASSING:
                continue

    def leave(self) -> Plan[None]:
        """Release tasks that were claimed and not handed out."""
        self._end_lease()
        held = []
        while (task := self._first()) is not None:
            held.append((task.id, task.token))
        if held:
            yield finish.ReleaseMany(held)

    def _hold(self, tasks: list[Task[Any]]) -> None:
        """Hand out *tasks* next, and renew the leases of those that wait for it."""
        self._end_lease()
        self.look_at = self.asked_at + tasks[0].lease_ms / 1000
        self.items.extend(tasks)
        if len(tasks) > 1:
            self._lease = _BatchLease(self, tasks[0].lease_ms)
            self.heartbeat.add(self._lease)

    def _drop_lapsed(self) -> None:
        """Drop the tasks that may be another worker's by now, and set when to check the others."""
        lease = self._lease
        until = self.look_at if lease is None else lease.until
        self.look_at = until  # Set before `lost` is read; a lease lost later would otherwise wait for that time.
        now, lost, kept = monotonic(), () if lease is None else lease.lost, list[Task[Any]]()
        if now < until and not lost:
            return
        while (task := self._first()) is not None:
            if now < until and task.id not in lost:
                kept.append(task)
            else:
                logger.warning("the lease of task %s of queue %r was lost before it began", task.id, task.queue)
        self.items.extend(kept)

    def _end_lease(self) -> None:
        if self._lease is not None:
            self.heartbeat.remove(self._lease)
            self._lease = None

    def _first(self) -> Task[Any] | None:
        """Return the next task, unless another thread has taken it."""
        try:
            return self.items.popleft()
        except IndexError:
            return None


class _BatchLease(Lease):
    """The leases of the tasks of a batch that were not handed out."""

    def __init__(self, tasks: Tasks, milliseconds: int) -> None:
        seconds = milliseconds / 1000
        super().__init__(self._extend, seconds, tasks.asked_at + seconds - monotonic(), lambda: None)
        self._milliseconds = milliseconds
        self._tasks = tasks
        self.lost: frozenset[int] = frozenset()

    def answered(self, began: float, held: list[int]) -> bool:
        """Continue with the held tasks; let the plan drop the others."""
        super().answered(began, True)
        lost = {task.id for task in self._held()}.difference(held)
        if lost:
            self.lost |= lost
            self._tasks.look_at = 0.0
        return bool(held)

    def _extend(self) -> finish.ExtendMany:
        return finish.ExtendMany(sorted((task.id, task.token) for task in self._held()), self._milliseconds)

    def _held(self) -> list[Task[Any]]:
        return [task for task in list(self._tasks.items) if task.id not in self.lost]

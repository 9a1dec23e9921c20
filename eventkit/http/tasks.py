"""Tasks, and dead tasks."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec
from litestar import Response
from msgspec import UNSET, Meta, UnsetType

from .. import checks, values
from ..operations import Operation, finish
from ..operations.bulk import AckThen
from ..operations.claim import Ack, AckMany, Claim, TasksAhead, fresh_token
from ..operations.coordination import AckWithResult
from ..operations.queue import FindTokens
from ..protocols import AsyncTaskQueue
from ..queue import following_row
from ..values import DeadTasks, Enqueued, Task, TaskInfo, TaskState
from .bodies import PRINTABLE, Attempts, Code, Key, Milliseconds, Name, Number, Priority, Refusal, Seconds, Token
from .keys import require
from .routing import Answer, Count, HTTPRequest, Listed, route, token
from .service import KnownQueue, ServiceContext

WORKER = "http"  # The default name of a polling worker.

MaybeInState = Annotated[TaskState | None, "Only tasks in this state."]
IdempotencyKey = Annotated[
    str | None,
    Meta(min_length=1, max_length=990, extra_json_schema=PRINTABLE),
    "Key of the task; in an array KEY/0, KEY/1, …",
]
AfterId = Annotated[Number, "Only tasks after this id."]
Batch = Annotated[int, Meta(ge=1, le=256), "Maximum number of tasks."]
Wait = Annotated[float, Meta(ge=0, le=3600), "Seconds to wait for a task."]
Lease = Annotated[Milliseconds | None, "Lease; the queue's by default."]
Worker = Annotated[Name, "Name of the worker."]
Peeked = Annotated[int, Meta(ge=1, le=256)]
InGroup = Annotated[Key | None, "Group of the tasks."]
OlderThan = Annotated[Seconds | None, "Only those dead for this long."]


class NewTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task for a queue.

    It is delivered after *delay_ms* or at *run_at*, and not after *expires_ms*, which counts from now; a known
    *idempotency_key* creates no second task.  The queue may hand out the tasks of a *group* in order.
    """

    payload: Annotated[msgspec.Raw, Meta(examples=[{"to": "ann@example.com"}])]
    priority: Priority = 0
    delay_ms: Milliseconds | None = None
    expires_ms: Annotated[int, Meta(ge=-checks.FOREVER, le=checks.FOREVER)] | None = None
    idempotency_key: Annotated[Key, Meta(examples=["order-42"])] | None = None
    run_at: Annotated[datetime, Meta(tz=True, examples=["2030-01-31T09:00:00Z"])] | UnsetType = UNSET
    max_attempts: Attempts | None = None
    headers: dict[str, str] | None = None
    group: Key | None = None

    def task(self) -> Any:
        """Return the task for the queue: its payload alone, if it has nothing else."""
        return self.payload if self == NewTask(self.payload) else self.new(None)

    def new(self, queue: str | None) -> values.NewTask:
        """Return the task, for *queue*."""
        return values.NewTask(
            self.payload,
            delay=None if self.delay_ms is None else self.delay_ms / 1000,
            run_at=None if self.run_at is UNSET else self.run_at,
            expires=None if self.expires_ms is None else self.expires_ms / 1000,
            priority=self.priority,
            max_attempts=self.max_attempts,
            key=self.idempotency_key,
            headers=self.headers,
            group=self.group,
            queue=queue,
        )


class FollowingTask(NewTask, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task to enqueue when another one is acknowledged."""

    queue: Name


class Accepted(msgspec.Struct, frozen=True):
    """The id of a task; *created* is false if an earlier task has its key."""

    id: int
    created: bool


@route("POST", "/queues/{queue:str}/tasks", "produce", 404, 409, status=201, also=200)
async def add_tasks(
    service: ServiceContext,
    queue: KnownQueue,
    data: NewTask | Annotated[list[NewTask], Meta(max_length=10_000)],
    idempotency_key: IdempotencyKey = None,
) -> Response[Accepted | list[Accepted]]:
    """Enqueue a task, or an array atomically.  201 if one is new, 200 if all keys were known."""
    new = _listed(data)
    if idempotency_key is not None:
        keys = [f"{idempotency_key}/{n}" for n in range(len(new))] if isinstance(data, list) else [idempotency_key]
        new = [msgspec.structs.replace(one, idempotency_key=key) for one, key in zip(new, keys, strict=True)]
    tasks = [one.task() for one in new]
    with service.pressure.write():
        answers: list[Enqueued] = await queue.enqueue_many(tasks)
    accepted = [Accepted(id, created) for id, created in answers]
    status = 201 if any(answer.created for answer in answers) or not answers else 200
    return Answer(accepted if isinstance(data, list) else accepted[0], status_code=status)


class ReceivedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that was handed out."""

    id: int
    payload: Any
    key: str | None
    headers: dict[str, str]
    priority: int
    attempt: int
    max_attempts: int
    enqueued_ms: int
    expires_ms: int | None
    group: str | None


class ClaimedTask(ReceivedTask, frozen=True, kw_only=True):
    """A claimed task: *token* is needed to finish it, until *lease_expires_at*."""

    token: str
    lease_expires_at: datetime


def _shown(task: Task[Any]) -> dict[str, Any]:
    return {name: getattr(task, name) for name in ReceivedTask.__struct_fields__}


@route("POST", "/queues/{queue:str}/poll", "consume", 404)
async def poll(
    request: HTTPRequest,
    service: ServiceContext,
    queue: KnownQueue,
    batch: Batch = 1,
    wait_s: Wait = 0.0,
    lease_ms: Lease = None,
    worker: Worker = WORKER,
) -> list[ClaimedTask]:
    """Claim tasks, waiting up to *wait_s* seconds for one."""

    async def release(late: list[Task[Any]]) -> None:
        await service.execute(finish.ReleaseMany([(task.id, task.token) for task in late]))

    claim = Claim(queue.name, checks.name("worker", worker), batch, lease_ms, fresh_token(), service.raw)
    tasks = await service.awaited(request, claim, TasksAhead(queue.name), wait_s, release)
    # Tasks of one claim share a lease.
    until = {milliseconds: checks.as_datetime(milliseconds) for milliseconds in {t.lease_expires_ms for t in tasks}}
    return [
        ClaimedTask(token=str(task.token), lease_expires_at=until[task.lease_expires_ms], **_shown(task))
        for task in tasks
    ]


@route("POST", "/queues/{queue:str}/receive", "consume", 404)
async def receive(queue: KnownQueue, batch: Batch = 1) -> list[ReceivedTask]:
    """Claim tasks and delete them at once: each is handed out at most once."""
    return [ReceivedTask(**_shown(task)) for task in await queue.receive(batch)]


class Held(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A claimed task, by its id and token."""

    id: Number
    token: Token


class Acked(Held, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task that is done, with its result if it has one, and the tasks to enqueue *then*, in the same transaction."""

    result: msgspec.Raw | UnsetType = UNSET
    then: Annotated[list[FollowingTask], Meta(max_length=1_000)] = []


class Refused(Held, frozen=True, forbid_unknown_fields=True):
    """A task to retry after *delay_ms*, by default after that of the queue's policy, with its *error* and *code*."""

    delay_ms: Milliseconds | None = None
    error: str | None = None
    code: Code | None = None


class Failed(Held, frozen=True, forbid_unknown_fields=True):
    """A task that is dead, because of *error*."""

    error: str
    code: Code | None = None


class Snoozed(Held, frozen=True, forbid_unknown_fields=True):
    """A task to put back for *delay_ms*."""

    delay_ms: Milliseconds


class Extended(Held, frozen=True, forbid_unknown_fields=True):
    """A task whose lease is extended to *lease_ms* from now, by default the queue's lease."""

    lease_ms: Milliseconds | None = None


class Outcome(msgspec.Struct, frozen=True):
    """Whether it was done; false if the lease had expired or the token is wrong."""

    id: int
    done: bool


T = TypeVar("T")
H = TypeVar("H", bound=Held)
AtOnce = Annotated[list[H], Meta(max_length=1_000)]


@route("POST", "/queues/{queue:str}/ack", "consume", 404, 409)
async def ack(
    request: HTTPRequest, service: ServiceContext, queue: KnownQueue, data: Acked | AtOnce[Acked]
) -> list[Outcome]:
    """Acknowledge tasks; return an outcome for each."""
    held = _listed(data)
    for name in {task.queue for one in held for task in one.then}:
        require(request, "produce", "queue", name=name)
        await service.known(name)
    simple = not any(one.result is not UNSET or one.then for one in held)
    if simple and len({one.id for one in held}) == len(held):
        own = await _own(service, queue.name, held)
        done = set(await service.execute(AckMany(sorted((one.id, token(one.token)) for one in held if one.id in own))))
        return [Outcome(one.id, one.id in done) for one in held]

    def acked(one: Acked) -> Operation[bool]:
        ended: Operation[bool] = Ack(one.id, token(one.token))
        if one.result is not UNSET:
            ended = AckWithResult(one.id, token(one.token), queue.name, service.raw.encode(one.result))
        following = [following_row(service.raw, task.new(task.queue)) for task in one.then]
        return AckThen(ended, following) if following else ended

    with service.pressure.write():
        return await _each(service, queue, held, acked)


@route("POST", "/queues/{queue:str}/nack", "consume", 404)
async def nack(service: ServiceContext, queue: KnownQueue, data: Refused | AtOnce[Refused]) -> list[Outcome]:
    """Return tasks for another attempt, or mark them dead after the last; return an outcome for each."""

    def retry(one: Refused) -> Operation[bool]:
        error = None if one.error is None else checks.text(one.error)
        return finish.Retry(one.id, token(one.token), one.delay_ms, error, checks.code(one.code))

    return await _each(service, queue, data, retry)


@route("POST", "/queues/{queue:str}/fail", "consume", 404)
async def fail(service: ServiceContext, queue: KnownQueue, data: Failed | AtOnce[Failed]) -> list[Outcome]:
    """Mark tasks dead, even with attempts left; return an outcome for each."""

    def failed(one: Failed) -> Operation[bool]:
        return finish.Fail(one.id, token(one.token), checks.text(one.error), code=checks.code(one.code))

    return await _each(service, queue, data, failed)


@route("POST", "/queues/{queue:str}/release", "consume", 404)
async def release(service: ServiceContext, queue: KnownQueue, data: Held | AtOnce[Held]) -> list[Outcome]:
    """Put tasks back as if they had not been claimed; return an outcome for each."""
    return await _each(service, queue, data, lambda one: finish.Release(one.id, token(one.token)))


@route("POST", "/queues/{queue:str}/snooze", "consume", 404)
async def snooze(service: ServiceContext, queue: KnownQueue, data: Snoozed | AtOnce[Snoozed]) -> list[Outcome]:
    """Put tasks back for some time, without losing an attempt; return an outcome for each."""
    return await _each(service, queue, data, lambda one: finish.Snooze(one.id, token(one.token), one.delay_ms))


@route("POST", "/queues/{queue:str}/extend", "consume", 404)
async def extend(service: ServiceContext, queue: KnownQueue, data: Extended | AtOnce[Extended]) -> list[Outcome]:
    """Extend the lease of tasks; return an outcome for each."""
    lease = round(1000 * ((await queue.settings()).lease or 300))

    def extended(one: Extended) -> Operation[bool]:
        return finish.Extend(one.id, token(one.token), lease if one.lease_ms is None else one.lease_ms)

    return await _each(service, queue, data, extended)


def _listed(data: T | list[T]) -> list[T]:
    return data if isinstance(data, list) else [data]


async def _own(service: ServiceContext, queue: str, held: Sequence[Held]) -> set[int]:
    """Return the ids of the tasks that belong to the queue of the path, to which the caller has a right."""
    found = await service.execute(FindTokens([one.id for one in held]))
    return {id for id, (name, _) in found.items() if name == queue}


async def _each(
    service: ServiceContext, queue: AsyncTaskQueue[Any], data: H | list[H], operation: Callable[[H], Operation[bool]]
) -> list[Outcome]:
    """Execute the operation of each task, those of an array in one transaction; return an outcome for each."""
    held = _listed(data)
    operations = [operation(one) for one in held]  # All are valid before the first is executed.
    own = await _own(service, queue.name, held)
    done: dict[int, bool] = {}
    async with service.kit.transaction() if len(held) > 1 else nullcontext() as tx:
        for n, one in sorted(enumerate(held), key=lambda item: item[1].id):  # Another order could deadlock.
            done[n] = one.id in own and await service.execute(operations[n], tx)
    return [Outcome(one.id, done[n]) for n, one in enumerate(held)]


@route("GET", "/queues/{queue:str}/peek", "consume", 404)
async def peek(queue: KnownQueue, limit: Peeked = 1) -> list[TaskInfo[Any]]:
    """Return the tasks that a poll would claim next, without claiming them."""
    return await queue.peek(limit)


@route("GET", "/queues/{queue:str}/tasks", "consume", 404)
async def list_tasks(
    queue: KnownQueue,
    state: MaybeInState = None,
    group: InGroup = None,
    after: AfterId = 0,
    limit: Listed = 100,
) -> list[TaskInfo[Any]]:
    """List tasks by id, in any state or in one, of all groups or of one."""
    return await queue.tasks(state, limit, after, group=group)


@route("GET", "/queues/{queue:str}/tasks/{id:int}", "consume", 404)
async def get_task(queue: KnownQueue, id: Number) -> TaskInfo[Any]:
    """Return a task in any state."""
    return await _found(queue, id)


async def _found(queue: AsyncTaskQueue[Any], id: int) -> TaskInfo[Any]:
    if (found := await queue.get(id)) is None:
        raise Refusal(404, "unknown_task", f"queue {queue.name!r} has no task {id}: it is done, or never existed")
    return found


@route("DELETE", "/queues/{queue:str}/tasks/{id:int}", "admin", 404, 409, status=204)
async def delete_task(queue: KnownQueue, id: Number, running: bool = False) -> None:
    """Delete a waiting task, or with *running* also a claimed one."""
    if not await queue.cancel(id, running):
        found = await _found(queue, id)
        remedy = "add ?running=true" if found.state == "running" else "purge the queue's tasks of that state"
        raise Refusal(409, f"task_{found.state}", f"task {id} is {found.state}: {remedy}")


class Chosen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ids of dead tasks; all if omitted."""

    ids: Annotated[list[Number], Meta(max_length=10_000)] | None = None


@route("GET", "/queues/{queue:str}/dead", "consume", 404)
async def list_dead(queue: KnownQueue, limit: Listed = 100) -> list[TaskInfo[Any]]:
    """List dead tasks, newest first, with reason and error."""
    return await queue.dead(limit)


@route("GET", "/queues/{queue:str}/dead/errors", "consume", 404)
async def list_dead_by_error(queue: KnownQueue, limit: Listed = 100) -> list[DeadTasks]:
    """List dead tasks by reason and error, the most frequent first."""
    return await queue.dead_by_error(limit)


@route("DELETE", "/queues/{queue:str}/dead", "admin", 404)
async def purge_dead(queue: KnownQueue, older_than_s: OlderThan = None) -> Count:
    """Delete dead tasks."""
    return Count(await queue.purge_dead(older_than_s))


@route("POST", "/queues/{queue:str}/dead/requeue", "admin", 404)
async def requeue_dead(queue: KnownQueue, data: Chosen) -> Count:
    """Requeue dead tasks, with their attempts reset."""
    return Count(await queue.requeue(data.ids))

"""Queues, their tasks, and dead tasks."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec
from litestar import Response
from litestar.params import FromPath, FromQuery, HeaderParameter, JSONBody, QueryParameter
from msgspec import UNSET, Meta, UnsetType

from .. import checks, values
from ..operations import Operation, finish
from ..operations.claim import AckMany, Claim, TasksAhead, fresh_token
from ..operations.queue import CreateQueue, FindTokens
from ..queue import changes_of
from ..retry import Policy
from ..values import Enqueued, QueueSettings, QueueStats, Task, TaskInfo, TaskState
from .keys import require
from .routing import (
    Answer,
    AtLeastOne,
    Burst,
    Count,
    HTTPRequest,
    Id,
    Key,
    Milliseconds,
    Name,
    Number,
    Priority,
    Rate,
    Refusal,
    Seconds,
    SignedMilliseconds,
    Token,
    bounds,
    route,
    sent,
    token,
)
from .service import Service, ServiceContext

WORKER = "http"  # The default name of a polling worker.

InState = Annotated[TaskState, QueryParameter(name="state", description="State of the tasks.")]
IdempotencyKey = Annotated[
    str | None, HeaderParameter(**bounds(Key), name="Idempotency-Key", description="Key of a single task.")
]
Batch = Annotated[int, QueryParameter(ge=1, le=256, description="Maximum number of tasks.")]
Wait = Annotated[float, QueryParameter(ge=0, le=3600, description="Seconds to wait for a task.")]
Lease = Annotated[int | None, QueryParameter(**bounds(Milliseconds), description="Lease; the queue's by default.")]
Worker = Annotated[str, QueryParameter(**bounds(Name), description="Name of the worker.")]
Peeked = Annotated[int, QueryParameter(ge=1, le=256)]
Listed = Annotated[int, QueryParameter(ge=1, le=1000)]
OlderThan = Annotated[float | None, QueryParameter(**bounds(Seconds), description="Only those dead for this long.")]


class Queue(msgspec.Struct, frozen=True):
    """A queue with its settings and statistics."""

    name: str
    settings: QueueSettings
    stats: QueueStats


class QueueChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a queue; null restores the default, omitted settings are kept.  Durations are in seconds."""

    max_attempts: AtLeastOne | UnsetType | None = UNSET
    lease: Seconds | UnsetType | None = UNSET
    retry: Policy | str | list[Seconds] | UnsetType | None = UNSET
    max_size: AtLeastOne | UnsetType | None = UNSET
    rate: Rate | UnsetType | None = UNSET
    burst: Burst | UnsetType | None = UNSET
    max_running: AtLeastOne | UnsetType | None = UNSET
    keep_done: Seconds | UnsetType | None = UNSET
    keep_dead: Seconds | UnsetType | None = UNSET
    key_ttl: Seconds | UnsetType | None = UNSET
    dead_letter_to: Name | UnsetType | None = UNSET
    history: bool | UnsetType = UNSET


class NewQueue(QueueChanges, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue to create, with its settings."""

    name: Name


def _given(request: HTTPRequest, changes: QueueChanges) -> dict[str, Any]:
    """Return the settings that were sent; refuse a caller who may not produce into *dead_letter_to*."""
    if isinstance(changes.dead_letter_to, str):
        require(request, "produce", "queue", name=changes.dead_letter_to)
    return sent(changes)


async def _shown(service: ServiceContext, queue: str) -> Queue:
    handle = service.queue(queue)
    return Queue(queue, await handle.settings(), await handle.stats())


@route("GET", "/queues", "consume")
async def list_queues(service: Service) -> dict[str, QueueStats]:
    """List all queues with their statistics."""
    return (await service.kit.overview()).queues


@route("POST", "/queues", "admin", 409, status=201)
async def create_queue(request: HTTPRequest, service: Service, data: JSONBody[NewQueue]) -> Queue:
    """Create a queue; 409 if it exists."""
    given = _given(request, data)
    changes = changes_of(checks.name("queue", given.pop("name")), **given)
    if not await service.execute(CreateQueue(data.name, changes)):
        raise Refusal(409, "queue_exists", f"queue {data.name!r} already exists: change its settings with PATCH")
    return await _shown(service, data.name)


@route("GET", "/queues/{queue:str}", "consume", 404)
async def get_queue(service: Service, queue: FromPath[str]) -> Queue:
    """Return a queue with its settings and statistics."""
    await service.known(queue)
    return await _shown(service, queue)


@route("PATCH", "/queues/{queue:str}", "admin", 404)
async def change_queue(
    request: HTTPRequest, service: Service, queue: FromPath[str], data: JSONBody[QueueChanges]
) -> Queue:
    """Change settings of a queue, for all processes at once."""
    given = _given(request, data)
    await (await service.known(queue)).configure(**given)
    return await _shown(service, queue)


@route("DELETE", "/queues/{queue:str}", "admin", 404, 409, status=204)
async def delete_queue(service: Service, queue: FromPath[str], force: FromQuery[bool] = False) -> None:
    """Delete a queue; *force* also deletes tasks that are not done."""
    handle = await service.known(queue)
    service.forget(queue)
    if not await handle.drop(force=force):
        raise Refusal(409, "queue_not_empty", f"queue {queue!r} has tasks: add ?force=true to delete them")


@route("GET", "/queues/{queue:str}/stats", "consume", 404)
async def queue_stats(service: Service, queue: FromPath[str]) -> QueueStats:
    """Return statistics of a queue, with counts up to 10,000."""
    return await (await service.known(queue)).stats()


@route("POST", "/queues/{queue:str}/purge", "admin", 404)
async def purge_queue(service: Service, queue: FromPath[str], in_state: InState = "ready") -> Count:
    """Delete all tasks in one state."""
    return Count(await (await service.known(queue)).purge(in_state))


@route("POST", "/queues/{queue:str}/pause", "admin", 404)
async def pause_queue(service: Service, queue: FromPath[str]) -> Queue:
    """Pause a queue: it accepts tasks, but delivers none."""
    await (await service.known(queue)).pause()
    return await _shown(service, queue)


@route("POST", "/queues/{queue:str}/resume", "admin", 404)
async def resume_queue(service: Service, queue: FromPath[str]) -> Queue:
    """Resume a paused queue."""
    await (await service.known(queue)).resume()
    return await _shown(service, queue)


@route("POST", "/queues/{queue:str}/compact", "admin", 404)
async def compact_queue(service: Service, queue: FromPath[str]) -> Count:
    """Move due and expired tasks of the queue now, and run housekeeping."""
    moved = await (await service.known(queue)).sweep()
    await service.kit.maintain()
    return Count(moved)


class NewTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task for a queue.

    It is delivered after *delay_ms*, and not after *expires_ms*; a known *idempotency_key* creates no second task.
    """

    payload: msgspec.Raw
    priority: Priority = 0
    delay_ms: Milliseconds | None = None
    expires_ms: SignedMilliseconds | None = None
    idempotency_key: Key | None = None

    def task(self) -> Any:
        """Return the task for the queue."""
        if self.priority == 0 and self.delay_ms is None and self.expires_ms is None and self.idempotency_key is None:
            return self.payload
        return values.NewTask(
            self.payload,
            delay=None if self.delay_ms is None else self.delay_ms / 1000,
            expires=None if self.expires_ms is None else self.expires_ms / 1000,
            priority=self.priority,
            key=self.idempotency_key,
        )


class Accepted(msgspec.Struct, frozen=True):
    """The id of a task; *created* is false if an earlier task has its key."""

    id: int
    created: bool


@route("POST", "/queues/{queue:str}/tasks", "produce", 404, status=201, also=200)
async def add_tasks(
    service: Service,
    queue: FromPath[str],
    data: JSONBody[NewTask | Annotated[list[NewTask], Meta(max_length=10_000)]],
    idempotency_key: IdempotencyKey = None,
) -> Response[Accepted | list[Accepted]]:
    """Enqueue a task, or an array atomically.  201 if one is new, 200 if all keys were known."""
    handle = await service.known(queue)
    new = data if isinstance(data, list) else [data]
    if idempotency_key is not None:
        if isinstance(data, list):
            raise Refusal(422, "invalid", "Idempotency-Key is for a single task: set idempotency_key of each")
        new = [msgspec.structs.replace(data, idempotency_key=idempotency_key)]
    tasks = [one.task() for one in new]
    with service.pressure.write():
        answers: list[Enqueued] = await handle.enqueue_many(tasks)
    accepted = [Accepted(id, created) for id, created in answers]
    status = 201 if any(answer.created for answer in answers) or not answers else 200
    return Answer(accepted if isinstance(data, list) else accepted[0], status_code=status)


class ClaimedTask(msgspec.Struct, frozen=True):
    """A claimed task: *token* is needed to finish it, until *lease_expires_at*."""

    id: int
    token: str
    payload: Any
    key: str | None
    headers: dict[str, str]
    priority: int
    attempt: int
    max_attempts: int
    enqueued_ms: int
    expires_ms: int | None
    lease_expires_at: datetime


_SAME = {*ClaimedTask.__struct_fields__} & {*Task.__struct_fields__} - {"token"}


@route("POST", "/queues/{queue:str}/poll", "consume", 404)
async def poll(
    request: HTTPRequest,
    service: Service,
    queue: FromPath[str],
    batch: Batch = 1,
    wait_s: Wait = 0.0,
    lease_ms: Lease = None,
    worker: Worker = WORKER,
) -> list[ClaimedTask]:
    """Claim tasks, waiting up to *wait_s* seconds for one."""
    await service.known(queue)

    async def release(late: list[Task[Any]]) -> None:
        await service.execute(finish.ReleaseMany([(task.id, task.token) for task in late]))

    claim = Claim(queue, checks.name("worker", worker), batch, lease_ms, fresh_token(), service.raw)
    tasks = await service.awaited(request, claim, TasksAhead(queue), wait_s, release)
    # Tasks of one claim share a lease.
    until = {milliseconds: checks.as_datetime(milliseconds) for milliseconds in {t.lease_expires_ms for t in tasks}}
    same = ({name: getattr(task, name) for name in _SAME} for task in tasks)
    return [
        ClaimedTask(token=str(task.token), lease_expires_at=until[task.lease_expires_ms], **fields)
        for task, fields in zip(tasks, same, strict=True)
    ]


class Held(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A claimed task, by its id and token."""

    id: Number
    token: Token


class Refused(Held, frozen=True, forbid_unknown_fields=True):
    """A task to retry after *delay_ms*, by default after the delay of the queue's policy; *error* is stored."""

    delay_ms: Milliseconds | None = None
    error: str | None = None


class Extended(Held, frozen=True, forbid_unknown_fields=True):
    """A task whose lease is extended to *lease_ms* from now, by default the queue's lease."""

    lease_ms: Milliseconds | None = None


class Outcome(msgspec.Struct, frozen=True):
    """Whether it was done; false if the lease had expired or the token is wrong."""

    id: int
    done: bool


H = TypeVar("H", bound=Held)


@route("POST", "/queues/{queue:str}/ack", "consume", 404)
async def ack(
    service: Service, queue: FromPath[str], data: JSONBody[Held | Annotated[list[Held], Meta(max_length=1_000)]]
) -> list[Outcome]:
    """Acknowledge tasks; return an outcome for each."""
    await service.known(queue)
    held = data if isinstance(data, list) else [data]
    own = await _own(service, queue, held)
    done = set(await service.execute(AckMany(sorted({(one.id, token(one.token)) for one in own}))))
    return [Outcome(one.id, one.id in done) for one in held]


@route("POST", "/queues/{queue:str}/nack", "consume", 404)
async def nack(
    service: Service, queue: FromPath[str], data: JSONBody[Refused | Annotated[list[Refused], Meta(max_length=1_000)]]
) -> list[Outcome]:
    """Return tasks for another attempt, or mark them dead after the last; return an outcome for each."""
    await service.known(queue)

    def retry(one: Refused) -> Operation[bool]:
        error = None if one.error is None else checks.text(one.error)
        return finish.Retry(one.id, token(one.token), one.delay_ms, error)

    return await _each(service, queue, data, retry)


@route("POST", "/queues/{queue:str}/extend", "consume", 404)
async def extend(
    service: Service, queue: FromPath[str], data: JSONBody[Extended | Annotated[list[Extended], Meta(max_length=1_000)]]
) -> list[Outcome]:
    """Extend the lease of tasks; return an outcome for each."""
    lease = round(1000 * ((await (await service.known(queue)).settings()).lease or 300))

    def extended(one: Extended) -> Operation[bool]:
        return finish.Extend(one.id, token(one.token), lease if one.lease_ms is None else one.lease_ms)

    return await _each(service, queue, data, extended)


async def _own(service: ServiceContext, queue: str, held: Sequence[H]) -> list[H]:
    """Return the tasks that belong to the queue of the path, to which the caller has a right."""
    found = await service.execute(FindTokens([one.id for one in held]))
    return [one for one in held if one.id in found and found[one.id][0] == queue]


async def _each(
    service: ServiceContext, queue: str, data: H | list[H], operation: Callable[[H], Operation[bool]]
) -> list[Outcome]:
    """Execute the operation of each task; return an outcome for each."""
    held = data if isinstance(data, list) else [data]
    own = await _own(service, queue, held)
    return [Outcome(one.id, one in own and await service.execute(operation(one))) for one in held]


@route("GET", "/queues/{queue:str}/peek", "consume", 404)
async def peek(service: Service, queue: FromPath[str], limit: Peeked = 1) -> list[TaskInfo[Any]]:
    """Return the tasks that a poll would claim next, without claiming them."""
    return await (await service.known(queue)).peek(limit)


@route("GET", "/queues/{queue:str}/tasks/{id:int}", "consume", 404)
async def get_task(service: Service, queue: FromPath[str], id: Id) -> TaskInfo[Any]:
    """Return a task in any state."""
    found = await (await service.known(queue)).get(id)
    if found is None:
        raise Refusal(404, "unknown_task", f"there is no task {id} in queue {queue!r}: it is done, or never existed")
    return found


@route("DELETE", "/queues/{queue:str}/tasks/{id:int}", "admin", 404, 409, status=204)
async def delete_task(service: Service, queue: FromPath[str], id: Id, running: FromQuery[bool] = False) -> None:
    """Delete a waiting task, or with *running* also a claimed one."""
    handle = await service.known(queue)
    if not await handle.cancel(id, running):
        found = await handle.get(id)
        if found is None:
            raise Refusal(404, "unknown_task", f"there is no task {id} in queue {queue!r}")
        remedy = "add ?running=true" if found.state == "running" else "purge the queue's tasks of that state"
        raise Refusal(409, f"task_{found.state}", f"task {id} is {found.state}: {remedy}")


class Chosen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ids of dead tasks; all if omitted."""

    ids: Annotated[list[Number], Meta(max_length=10_000)] | None = None


@route("GET", "/queues/{queue:str}/dead", "consume", 404)
async def list_dead(service: Service, queue: FromPath[str], limit: Listed = 100) -> list[TaskInfo[Any]]:
    """List dead tasks, newest first, with reason and error."""
    return await (await service.known(queue)).dead(limit)


@route("DELETE", "/queues/{queue:str}/dead", "admin", 404)
async def purge_dead(service: Service, queue: FromPath[str], older_than_s: OlderThan = None) -> Count:
    """Delete dead tasks."""
    return Count(await (await service.known(queue)).purge_dead(older_than_s))


@route("POST", "/queues/{queue:str}/dead/requeue", "admin", 404)
async def requeue_dead(service: Service, queue: FromPath[str], data: JSONBody[Chosen]) -> Count:
    """Requeue dead tasks, with their attempts reset."""
    return Count(await (await service.known(queue)).requeue(data.ids))

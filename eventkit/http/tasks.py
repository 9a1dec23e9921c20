"""Messages of a queue, dead letters and results."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec
from litestar import Request, Response
from litestar.params import FromPath, FromQuery, HeaderParameter, JSONBody, QueryParameter

from .. import checks
from ..errors import TaskFailed
from ..operations import finish
from ..operations.claim import Claim, ReadOutlook, fresh_token
from ..operations.coordination import AwaitResult, ResultAhead, SaveResult
from ..operations.queue import FindQueues
from ..results import key_of
from ..values import Enqueued, NewTask, Task, TaskInfo
from .events import while_connected
from .keys import require
from .requests import (
    IS_KEY,
    IS_MILLISECONDS,
    IS_NAME,
    IS_SECONDS,
    Answer,
    Count,
    Id,
    Key,
    Milliseconds,
    Number,
    Priority,
    Refusal,
    SignedMilliseconds,
    Token,
    token,
)
from .routing import route
from .service import Service, ServiceContext

WORKER = "http"
"""The default name of a polling worker."""


class NewMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message for a queue.

    It is delivered after *delay_ms*, and not after *expires_ms*; a known *idempotency_key* creates no second message.
    """

    payload: msgspec.Raw
    priority: Priority = 0
    delay_ms: Milliseconds | None = None
    expires_ms: SignedMilliseconds | None = None
    idempotency_key: Key | None = None

    def task(self) -> Any:
        """Return the message for the queue."""
        if self.priority == 0 and self.delay_ms is None and self.expires_ms is None and self.idempotency_key is None:
            return self.payload
        return NewTask(
            self.payload,
            delay=None if self.delay_ms is None else self.delay_ms / 1000,
            expires=None if self.expires_ms is None else self.expires_ms / 1000,
            priority=self.priority,
            key=self.idempotency_key,
        )


class Accepted(msgspec.Struct, frozen=True):
    """The id of a message; *created* is false if an earlier message has its key."""

    id: int
    created: bool


class Message(msgspec.Struct, frozen=True):
    """A claimed message: *token* is needed to finish it, until *lease_expires_at*."""

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


class Held(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A claimed message, by its id and token."""

    id: Annotated[int, msgspec.Meta(ge=0, le=checks.MOST)]
    token: Token


H = TypeVar("H", bound=Held)


class Refused(Held, frozen=True, forbid_unknown_fields=True):
    """A message to retry after *delay_ms*, by default after the delay of the queue's policy; *error* is stored."""

    delay_ms: Milliseconds | None = None
    error: str | None = None


class Extended(Held, frozen=True, forbid_unknown_fields=True):
    """A message whose lease is extended to *lease_ms* from now, by default the queue's lease."""

    lease_ms: Milliseconds | None = None


class Outcome(msgspec.Struct, frozen=True):
    """Whether it was done; false if the lease had expired or the token is wrong."""

    id: int
    done: bool


IdempotencyKey = Annotated[
    str | None, HeaderParameter(**IS_KEY, name="Idempotency-Key", description="Key of a single message.")
]
Batch = Annotated[int, QueryParameter(ge=1, le=256, description="Maximum number of messages.")]
Wait = Annotated[float, QueryParameter(ge=0, le=3600, description="Seconds to wait for a message.")]
Lease = Annotated[int | None, QueryParameter(**IS_MILLISECONDS, description="Lease; the queue's by default.")]
Worker = Annotated[str, QueryParameter(**IS_NAME, description="Name of the worker.")]


@route("POST", "/queues/{queue:str}/messages", scope="produce", on="queue", status=201, problems=(404,), also=200)
async def add_messages(
    service: Service,
    queue: FromPath[str],
    data: JSONBody[NewMessage | Annotated[list[NewMessage], msgspec.Meta(max_length=10_000)]],
    idempotency_key: IdempotencyKey = None,
) -> Response[Accepted | list[Accepted]]:
    """Enqueue a message, or an array atomically.  201 if one is new, 200 if all keys were known."""
    handle = await service.known(queue)
    messages = data if isinstance(data, list) else [data]
    if idempotency_key is not None:
        if isinstance(data, list):
            raise Refusal(422, "invalid", "Idempotency-Key is for a single message: set idempotency_key of each")
        messages = [msgspec.structs.replace(data, idempotency_key=idempotency_key)]
    tasks = [message.task() for message in messages]
    with service.pressure.write():
        answers: list[Enqueued] = await handle.enqueue_many(tasks)
    accepted = [Accepted(id, created) for id, created in answers]
    status = 201 if any(answer.created for answer in answers) or not answers else 200
    return Answer(accepted if isinstance(data, list) else accepted[0], status_code=status)


@route("POST", "/queues/{queue:str}/poll", scope="consume", on="queue", problems=(404,))
async def poll(
    request: Request[Any, Any, Any],
    service: Service,
    queue: FromPath[str],
    batch: Batch = 1,
    wait_s: Wait = 0.0,
    lease_ms: Lease = None,
    worker: Worker = WORKER,
) -> list[Message]:
    """Claim messages, waiting up to *wait_s* seconds for one."""
    await service.known(queue)
    claim = Claim(queue, checks.name("worker", worker), batch, lease_ms, fresh_token(), service.raw)
    tasks = await service.execute(claim)
    if not tasks and wait_s:
        waiting = service.attempt(claim, ReadOutlook(queue), service.capped(wait_s))
        tasks = await while_connected(request, waiting, lambda late: service.execute(finish.ReleaseMany(_held(late))))
    # Messages of one claim share a lease.
    until = {milliseconds: checks.as_datetime(milliseconds) for milliseconds in {t.lease_expires_ms for t in tasks}}
    return [_message(task, until[task.lease_expires_ms]) for task in tasks]


@route("POST", "/queues/{queue:str}/ack", scope="consume", on="queue", problems=(404,))
async def ack(
    service: Service,
    queue: FromPath[str],
    data: JSONBody[Held | Annotated[list[Held], msgspec.Meta(max_length=1_000)]],
) -> list[Outcome]:
    """Acknowledge messages; return an outcome for each."""
    await service.known(queue)
    held = data if isinstance(data, list) else [data]
    own = await _own(service, queue, held)
    done = set(await service.execute(finish.AckMany(sorted({(one.id, token(one.token)) for one in own}))))
    return [Outcome(one.id, one.id in done) for one in held]


@route("POST", "/queues/{queue:str}/nack", scope="consume", on="queue", problems=(404,))
async def nack(
    service: Service,
    queue: FromPath[str],
    data: JSONBody[Refused | Annotated[list[Refused], msgspec.Meta(max_length=1_000)]],
) -> list[Outcome]:
    """Return messages for another attempt, or to the dead letters after the last; return an outcome for each."""
    await service.known(queue)
    held = data if isinstance(data, list) else [data]
    own, outcomes = await _own(service, queue, held), []
    for one in held:
        error = None if one.error is None else checks.text(one.error)
        retry = finish.Retry(one.id, token(one.token), one.delay_ms, error)
        outcomes.append(Outcome(one.id, one in own and await service.execute(retry)))
    return outcomes


@route("POST", "/queues/{queue:str}/extend", scope="consume", on="queue", problems=(404,))
async def extend(
    service: Service,
    queue: FromPath[str],
    data: JSONBody[Extended | Annotated[list[Extended], msgspec.Meta(max_length=1_000)]],
) -> list[Outcome]:
    """Extend the lease of messages; return an outcome for each."""
    lease = round(1000 * ((await (await service.known(queue)).settings()).lease or 300))
    held = data if isinstance(data, list) else [data]
    own, outcomes = await _own(service, queue, held), []
    for one in held:
        extend = finish.Extend(one.id, token(one.token), lease if one.lease_ms is None else one.lease_ms)
        outcomes.append(Outcome(one.id, one in own and await service.execute(extend)))
    return outcomes


@route("GET", "/queues/{queue:str}/peek", scope="consume", on="queue", problems=(404,))
async def peek(
    service: Service, queue: FromPath[str], limit: Annotated[int, QueryParameter(ge=1, le=256)] = 1
) -> list[TaskInfo[Any]]:
    """Return the messages that a poll would claim next, without claiming them."""
    return await (await service.known(queue)).peek(limit)


@route("GET", "/queues/{queue:str}/messages/{id:int}", scope="consume", on="queue", problems=(404,))
async def get_message(service: Service, queue: FromPath[str], id: Id) -> TaskInfo[Any]:
    """Return a message in any state."""
    found = await (await service.known(queue)).get(id)
    if found is None:
        raise Refusal(
            404, "unknown_message", f"there is no message {id} in queue {queue!r}: it is done, or never existed"
        )
    return found


@route("DELETE", "/queues/{queue:str}/messages/{id:int}", scope="admin", on="queue", status=204, problems=(404, 409))
async def delete_message(service: Service, queue: FromPath[str], id: Id, running: FromQuery[bool] = False) -> None:
    """Delete a waiting message, or with *running* also a claimed one."""
    handle = await service.known(queue)
    if not await handle.cancel(id, running):
        found = await handle.get(id)
        if found is None:
            raise Refusal(404, "unknown_message", f"there is no message {id} in queue {queue!r}")
        remedy = "add ?running=true" if found.state == "leased" else "purge the queue's messages of that state"
        raise Refusal(409, f"message_{found.state}", f"message {id} is {found.state}: {remedy}")


async def _own(service: ServiceContext, queue: str, held: Sequence[H]) -> list[H]:
    """Return the messages that belong to the queue of the path, to which the caller has a right."""
    queues = await service.execute(FindQueues([one.id for one in held]))
    return [one for one in held if queues.get(one.id) == queue]


def _held(tasks: list[Task[Any]]) -> list[finish.Held]:
    return [(task.id, task.token) for task in tasks]


def _message(task: Task[Any], until: datetime) -> Message:
    return Message(
        task.id,
        str(task.token),
        task.payload,
        task.key,
        task.headers,
        task.priority,
        task.attempt,
        task.max_attempts,
        task.enqueued_ms,
        task.expires_ms,
        until,
    )


class Chosen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ids of dead letters; all if omitted."""

    ids: Annotated[list[Number], msgspec.Meta(max_length=10_000)] | None = None


OlderThan = Annotated[float | None, QueryParameter(**IS_SECONDS, description="Only those dead for this long.")]


@route("GET", "/queues/{queue:str}/dlq", scope="consume", on="queue", problems=(404,))
async def list_dead(
    service: Service, queue: FromPath[str], limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 100
) -> list[TaskInfo[Any]]:
    """List dead letters, newest first, with reason and error."""
    return await (await service.known(queue)).dead(limit)


@route("DELETE", "/queues/{queue:str}/dlq", scope="admin", on="queue", problems=(404,))
async def purge_dead(service: Service, queue: FromPath[str], older_than_s: OlderThan = None) -> Count:
    """Delete dead letters."""
    return Count(await (await service.known(queue)).purge_dead(older_than_s))


@route("POST", "/queues/{queue:str}/dlq/requeue", scope="admin", on="queue", problems=(404,))
async def requeue_dead(service: Service, queue: FromPath[str], data: JSONBody[Chosen]) -> Count:
    """Requeue dead letters, with their attempts reset."""
    return Count(await (await service.known(queue)).requeue(data.ids))


class NewResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value to store until its ttl."""

    value: msgspec.Raw
    ttl_s: Annotated[float, msgspec.Meta(ge=0.001, le=3_162_240_000)] = 3600.0


class Result(msgspec.Struct, frozen=True):
    """The result of a task, or a value under a name."""

    id: int | str
    value: Any


ResultWait = Annotated[float, QueryParameter(ge=0, le=3600, description="Seconds to wait for the result.")]


def identity(text: str) -> int | str:
    """Return the id of a task, or a name."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 18 else text


@route("GET", "/results/{result:str}", scope="consume", on="result", problems=(404, 410))
async def get_result(
    request: Request[Any, Any, Any], service: Service, result: FromPath[str], wait_s: ResultWait = 0.0
) -> Result:
    """Return the result of a task by its id, or a value by its name; 410 if the task is dead."""
    id = identity(result)
    key, task = key_of(id), id if isinstance(id, int) else None
    found = await service.execute(AwaitResult(key, task))
    if found is None and wait_s:
        waiting = service.attempt(AwaitResult(key, task), ResultAhead(key, task), service.capped(wait_s))
        found = await while_connected(request, waiting)
    if found is None:
        raise Refusal(404, "no_result", f"there is no result {result!r}: wait for it with ?wait_s=20")
    if isinstance(found, TaskFailed):
        raise found
    return Result(id, found[0])


@route("PUT", "/results/{result:str}", scope="produce", on="result", status=204)
async def save_result(
    request: Request[Any, Any, Any], service: Service, result: FromPath[str], data: JSONBody[NewResult]
) -> None:
    """Store a value; that of a task, by its id, needs the right to consume from its queue."""
    id = identity(result)
    if isinstance(id, int):  # A deleted task may have been in any queue.
        require(request, "consume", "queue", name=(await service.execute(FindQueues([id]))).get(id))
    lasts = checks.milliseconds("ttl_s", data.ttl_s, least=1)
    save = SaveResult(key_of(id), service.raw.encode(data.value), lasts)
    with service.pressure.write():
        await service.execute(save)


routes = [
    add_messages,
    poll,
    ack,
    nack,
    extend,
    peek,
    get_message,
    delete_message,
    list_dead,
    purge_dead,
    requeue_dead,
    get_result,
    save_result,
]

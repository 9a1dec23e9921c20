"""Messages of a queue: in, out, and what became of them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec
from litestar import Request, Response
from litestar.params import FromPath, FromQuery, HeaderParameter, JSONBody, QueryParameter

from .. import arguments
from ..operations import finish
from ..operations.claim import Claim, ReadOutlook, fresh_token
from ..operations.queue import FindQueues
from ..records import Enqueued, NewTask, Task, TaskInfo
from .answers import Answer
from .problems import Refusal
from .routing import route
from .service import Desk, Service
from .terms import IS_KEY, IS_MILLISECONDS, IS_NAME, Id, Key, Milliseconds, Priority, SignedMilliseconds, Token, token
from .waiting import while_there

WORKER = "http"
"""The name of the worker that polls, where it says none."""


class NewMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message for a queue.

    It is handed out after *delay_ms*, and never after *expires_ms*; a known *idempotency_key* makes no second one.
    """

    payload: msgspec.Raw
    priority: Priority = 0
    delay_ms: Milliseconds | None = None
    expires_ms: SignedMilliseconds | None = None
    idempotency_key: Key | None = None

    def task(self) -> Any:
        """The message as the queue takes it."""
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
    """A message's id, and whether it is new; if not, its key was taken by that id."""

    id: int
    created: bool


class Message(msgspec.Struct, frozen=True):
    """A message that was handed out: *token* is the right to it until `lease_expires_at`."""

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
    """A message that was handed out, by its id and token."""

    id: Annotated[int, msgspec.Meta(ge=0, le=arguments.MOST)]
    token: Token


H = TypeVar("H", bound=Held)


class Refused(Held, frozen=True, forbid_unknown_fields=True):
    """A message to be tried again: after *delay_ms*, or when the queue's policy says; *error* is kept with it."""

    delay_ms: Milliseconds | None = None
    error: str | None = None


class Extended(Held, frozen=True, forbid_unknown_fields=True):
    """A message that is to be held *lease_ms* longer from now, or as long as the queue says."""

    lease_ms: Milliseconds | None = None


class Outcome(msgspec.Struct, frozen=True):
    """Whether it was done; it was not if the lease had run out, and the message is somebody else's."""

    id: int
    done: bool


IdempotencyKey = Annotated[
    str | None, HeaderParameter(**IS_KEY, name="Idempotency-Key", description="Of the one message sent.")
]
Batch = Annotated[int, QueryParameter(ge=1, le=256, description="How many messages at most.")]
Wait = Annotated[float, QueryParameter(ge=0, le=3600, description="Seconds to wait for the first, if there is none.")]
Lease = Annotated[
    int | None, QueryParameter(**IS_MILLISECONDS, description="How long they are held; the queue's by default.")
]
Worker = Annotated[str, QueryParameter(**IS_NAME, description="Who polls, for whoever looks.")]


@route("POST", "/queues/{queue:str}/messages", scope="produce", on="queue", status=201, problems=(404,), also=200)
async def add_messages(
    service: Service,
    queue: FromPath[str],
    data: JSONBody[NewMessage | Annotated[list[NewMessage], msgspec.Meta(max_length=10_000)]],
    idempotency_key: IdempotencyKey = None,
) -> Response[Accepted | list[Accepted]]:
    """Add a message, or an array of them: all or none.  201 if there is a new one, 200 if all were known."""
    handle = await service.known(queue)
    messages = data if isinstance(data, list) else [data]
    if idempotency_key is not None:
        if isinstance(data, list):
            raise Refusal(422, "invalid", "the header Idempotency-Key is for one message: give each an idempotency_key")
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
    """Take messages, each for as long as its lease; as soon as there is one, and none after *wait_s* seconds."""
    await service.known(queue)
    claim = Claim(queue, arguments.name("worker", worker), batch, lease_ms, fresh_token(), service.raw)
    tasks = await service.execute(claim)
    if not tasks and wait_s:
        waiting = service.attempt(claim, ReadOutlook(queue), service.patience(wait_s))
        tasks = await while_there(request, waiting, lambda late: service.execute(finish.ReleaseMany(_held(late))))
    # Those of one claim are held until the same moment.
    until = {milliseconds: arguments.as_datetime(milliseconds) for milliseconds in {t.lease_expires_ms for t in tasks}}
    return [_message(task, until[task.lease_expires_ms]) for task in tasks]


@route("POST", "/queues/{queue:str}/ack", scope="consume", on="queue", problems=(404,))
async def ack(
    service: Service,
    queue: FromPath[str],
    data: JSONBody[Held | Annotated[list[Held], msgspec.Meta(max_length=1_000)]],
) -> list[Outcome]:
    """Finish messages; an outcome for each."""
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
    """Put messages back for another attempt, or to the dead letters if they have had them all; an outcome for each."""
    await service.known(queue)
    held = data if isinstance(data, list) else [data]
    own, outcomes = await _own(service, queue, held), []
    for one in held:
        error = None if one.error is None else arguments.text(one.error)
        retry = finish.Retry(one.id, token(one.token), one.delay_ms, error)
        outcomes.append(Outcome(one.id, one in own and await service.execute(retry)))
    return outcomes


@route("POST", "/queues/{queue:str}/extend", scope="consume", on="queue", problems=(404,))
async def extend(
    service: Service,
    queue: FromPath[str],
    data: JSONBody[Extended | Annotated[list[Extended], msgspec.Meta(max_length=1_000)]],
) -> list[Outcome]:
    """Hold messages longer; an outcome for each."""
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
    """What a poll would hand out, best first; nothing is taken."""
    return await (await service.known(queue)).peek(limit)


@route("GET", "/queues/{queue:str}/messages/{id:int}", scope="consume", on="queue", problems=(404,))
async def get_message(service: Service, queue: FromPath[str], id: Id) -> TaskInfo[Any]:
    """A message, in whatever state."""
    found = await (await service.known(queue)).get(id)
    if found is None:
        raise Refusal(404, "unknown_message", f"there is no message {id} in queue {queue!r}: it is done, or never was")
    return found


@route("DELETE", "/queues/{queue:str}/messages/{id:int}", scope="admin", on="queue", status=204, problems=(404, 409))
async def delete_message(service: Service, queue: FromPath[str], id: Id, running: FromQuery[bool] = False) -> None:
    """Delete a message that waits, or with *running* one that somebody holds."""
    handle = await service.known(queue)
    if not await handle.cancel(id, running):
        found = await handle.get(id)
        if found is None:
            raise Refusal(404, "unknown_message", f"there is no message {id} in queue {queue!r}")
        remedy = "add ?running=true" if found.state == "leased" else "purge the queue's messages of that state"
        raise Refusal(409, f"message_{found.state}", f"message {id} is {found.state}: {remedy}")


async def _own(service: Desk, queue: str, held: Sequence[H]) -> list[H]:
    """Those that are of the queue in the path, whose right the caller has."""
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


routes = [add_messages, poll, ack, nack, extend, peek, get_message, delete_message]

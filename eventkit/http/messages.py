"""Messages of a queue: those that come in."""

from typing import Annotated, Any

import msgspec
from litestar import Response
from litestar.params import FromPath, HeaderParameter, JSONBody

from ..records import Enqueued, NewTask
from .problems import Refusal
from .queues import known
from .routing import route
from .service import Service

Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=3_162_240_000_000)]
Priority = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class NewMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message for a queue.

    It is handed out after *delay_ms*, and never after *expires_ms*; a known *idempotency_key* makes no second one.
    """

    payload: msgspec.Raw
    priority: Priority = 0
    delay_ms: Milliseconds | None = None
    expires_ms: Milliseconds | None = None
    idempotency_key: Key | None = None

    def task(self) -> Any:
        """The message as the queue takes it."""
        if (self.delay_ms, self.expires_ms, self.idempotency_key, self.priority) == (None, None, None, 0):
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


IdempotencyKey = Annotated[str | None, HeaderParameter(name="Idempotency-Key", description="Of the one message sent.")]


@route("POST", "/queues/{queue:str}/messages", scope="produce", on="queue", status=201, problems=(404,))
async def add_messages(
    service: Service,
    queue: FromPath[str],
    data: JSONBody[NewMessage | list[NewMessage]],
    idempotency_key: IdempotencyKey = None,
) -> Response[Accepted | list[Accepted]]:
    """Add a message, or an array of them: all or none.  201 if there is a new one, 200 if all were known."""
    await known(service, queue)
    messages = data if isinstance(data, list) else [data]
    if idempotency_key is not None:
        if isinstance(data, list):
            raise Refusal(422, "invalid", "the header Idempotency-Key is for one message: give each an idempotency_key")
        messages = [msgspec.structs.replace(data, idempotency_key=idempotency_key)]
    answers: list[Enqueued] = await service.queue(queue).enqueue_many([message.task() for message in messages])
    accepted = [Accepted(*answer) for answer in answers]
    status = 201 if any(answer.created for answer in answers) or not answers else 200
    return Response(accepted if isinstance(data, list) else accepted[0], status_code=status)


routes = [add_messages]

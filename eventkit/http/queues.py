"""Queues: create, configure, purge and delete them."""

from typing import Annotated, Any, Literal

import msgspec
from litestar import Request
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import UNSET, UnsetType

from .. import checks
from ..operations.queue import CreateQueue
from ..queue import changes_of
from ..retry import Policy
from ..values import QueueSettings, QueueStats
from .keys import require
from .requests import AtLeastOne, Count, Name, Refusal, Seconds
from .routing import route
from .service import Service, ServiceContext

State = Literal["scheduled", "ready", "leased", "dead", "done"]

InState = Annotated[State, QueryParameter(name="state", description="State of the messages.")]


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
    rate: Annotated[float, msgspec.Meta(ge=1e-9, le=1e12)] | UnsetType | None = UNSET
    burst: Annotated[float, msgspec.Meta(ge=1, le=1e12)] | UnsetType | None = UNSET
    max_running: AtLeastOne | UnsetType | None = UNSET
    keep_done: Seconds | UnsetType | None = UNSET
    keep_dead: Seconds | UnsetType | None = UNSET
    key_ttl: Seconds | UnsetType | None = UNSET
    dead_letter_to: Name | UnsetType | None = UNSET
    history: bool | UnsetType = UNSET

    def given(self) -> dict[str, Any]:
        """Return the settings that were sent."""
        given = ((name, getattr(self, name)) for name in QueueChanges.__struct_fields__)
        return {name: value for name, value in given if value is not UNSET}


class NewQueue(QueueChanges, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue to create, with its settings."""

    name: Name


def _check_dead_letter_queue(request: Request[Any, Any, Any], changes: QueueChanges) -> None:
    """Refuse a caller without the right to produce into the dead-letter queue."""
    if isinstance(changes.dead_letter_to, str):
        require(request, "produce", "queue", name=changes.dead_letter_to)


async def shown(service: ServiceContext, queue: str) -> Queue:
    """Return the queue for a response."""
    handle = service.queue(queue)
    return Queue(queue, await handle.settings(), await handle.stats())


@route("GET", "/queues", scope="consume")
async def list_queues(service: Service) -> dict[str, QueueStats]:
    """List all queues with their statistics."""
    return (await service.kit.overview()).queues


@route("POST", "/queues", scope="admin", status=201, problems=(409,))
async def create_queue(request: Request[Any, Any, Any], service: Service, data: JSONBody[NewQueue]) -> Queue:
    """Create a queue; 409 if it exists."""
    _check_dead_letter_queue(request, data)
    changes = changes_of(checks.name("queue", data.name), **data.given())
    if not await service.execute(CreateQueue(data.name, changes)):
        raise Refusal(409, "queue_exists", f"queue {data.name!r} already exists: change its settings with PATCH")
    return await shown(service, data.name)


@route("GET", "/queues/{queue:str}", scope="consume", on="queue", problems=(404,))
async def get_queue(service: Service, queue: FromPath[str]) -> Queue:
    """Return a queue with its settings and statistics."""
    await service.known(queue)
    return await shown(service, queue)


@route("PATCH", "/queues/{queue:str}", scope="admin", on="queue", problems=(404,))
async def change_queue(
    request: Request[Any, Any, Any], service: Service, queue: FromPath[str], data: JSONBody[QueueChanges]
) -> Queue:
    """Change settings of a queue, for all processes at once."""
    _check_dead_letter_queue(request, data)
    await (await service.known(queue)).configure(**data.given())
    return await shown(service, queue)


@route("DELETE", "/queues/{queue:str}", scope="admin", on="queue", status=204, problems=(404, 409))
async def delete_queue(service: Service, queue: FromPath[str], force: FromQuery[bool] = False) -> None:
    """Delete a queue; *force* also deletes tasks that are not done."""
    handle = await service.known(queue)
    service.forget(queue)
    if not await handle.drop(force=force):
        raise Refusal(409, "queue_not_empty", f"queue {queue!r} has tasks: add ?force=true to delete them")


@route("GET", "/queues/{queue:str}/stats", scope="consume", on="queue", problems=(404,))
async def queue_stats(service: Service, queue: FromPath[str]) -> QueueStats:
    """Return statistics of a queue, with counts up to 10,000."""
    return await (await service.known(queue)).stats()


@route("POST", "/queues/{queue:str}/purge", scope="admin", on="queue", problems=(404,))
async def purge_queue(service: Service, queue: FromPath[str], in_state: InState = "ready") -> Count:
    """Delete all messages in one state."""
    return Count(await (await service.known(queue)).purge(in_state))


@route("POST", "/queues/{queue:str}/pause", scope="admin", on="queue", problems=(404,))
async def pause_queue(service: Service, queue: FromPath[str]) -> Queue:
    """Pause a queue: it accepts messages, but delivers none."""
    await (await service.known(queue)).pause()
    return await shown(service, queue)


@route("POST", "/queues/{queue:str}/resume", scope="admin", on="queue", problems=(404,))
async def resume_queue(service: Service, queue: FromPath[str]) -> Queue:
    """Resume a paused queue."""
    await (await service.known(queue)).resume()
    return await shown(service, queue)


@route("POST", "/queues/{queue:str}/compact", scope="admin", on="queue", problems=(404,))
async def compact_queue(service: Service, queue: FromPath[str]) -> Count:
    """Move due and expired messages of the queue now, and run housekeeping."""
    moved = await (await service.known(queue)).sweep()
    await service.kit.maintain()
    return Count(moved)


routes = [
    list_queues,
    create_queue,
    get_queue,
    change_queue,
    delete_queue,
    queue_stats,
    purge_queue,
    pause_queue,
    resume_queue,
    compact_queue,
]

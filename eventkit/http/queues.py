"""Queues and their settings."""

from typing import Annotated, Any

import msgspec
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import UNSET, Meta, UnsetType

from .. import checks
from ..operations.queue import CreateQueue
from ..queue import changes_of
from ..retry import Policy, PolicyName
from ..values import QueueSettings, QueueStats, TaskState
from .bodies import Refusal
from .keys import require
from .routing import (
    AfterName,
    AtLeastOne,
    Burst,
    Count,
    HTTPRequest,
    Lifetime,
    Listed,
    Name,
    Rate,
    Seconds,
    page,
    route,
    sent,
)
from .service import Service, ServiceContext

InState = Annotated[TaskState, QueryParameter(name="state", description="State of the tasks.")]


class Queue(msgspec.Struct, frozen=True):
    """A queue with its settings and statistics."""

    name: str
    settings: QueueSettings
    stats: QueueStats


class QueueChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a queue; null restores the default, omitted settings are kept.  Durations are in seconds."""

    max_attempts: AtLeastOne | UnsetType | None = UNSET
    lease: Lifetime | UnsetType | None = UNSET
    retry: Policy | PolicyName | Annotated[list[Seconds], Meta(min_length=1)] | UnsetType | None = UNSET
    max_size: AtLeastOne | UnsetType | None = UNSET
    rate: Rate | UnsetType | None = UNSET
    burst: Burst | UnsetType | None = UNSET
    max_running: AtLeastOne | UnsetType | None = UNSET
    keep_done: Seconds | UnsetType | None = UNSET
    keep_dead: Seconds | UnsetType | None = UNSET
    key_ttl: Seconds | UnsetType | None = UNSET
    dead_letter_to: Name | UnsetType | None = UNSET
    history: bool | UnsetType = UNSET
    max_bytes: AtLeastOne | UnsetType | None = UNSET
    strict_keys: bool | UnsetType = UNSET
    enqueue_rate: Rate | UnsetType | None = UNSET
    enqueue_burst: Burst | UnsetType | None = UNSET


class QueueInput(QueueChanges, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue to create, with its settings."""

    name: Name


def _given(request: HTTPRequest, queue: str, changes: QueueChanges) -> dict[str, Any]:
    """Return the settings that were sent; refuse a caller who may not produce into *dead_letter_to*."""
    if isinstance(changes.dead_letter_to, str):
        if changes.dead_letter_to == queue:
            raise Refusal(
                409, "conflict", f"dead tasks of queue {queue!r} cannot be copied to itself: name another one"
            )
        require(request, "produce", "queue", name=changes.dead_letter_to)
    return sent(changes)


async def _shown(service: ServiceContext, queue: str) -> Queue:
    handle = service.queue(queue)
    return Queue(queue, await handle.settings(), await handle.stats())


@route("GET", "/queues", "consume")
async def list_queues(service: Service, after: AfterName = None, limit: Listed = 100) -> dict[str, QueueStats]:
    """List queues with their statistics, by name."""
    return page((await service.kit.overview()).queues, after, limit)


@route("POST", "/queues", "admin", 409, status=201)
async def create_queue(request: HTTPRequest, service: Service, data: JSONBody[QueueInput]) -> Queue:
    """Create a queue; 409 if it exists."""
    given = _given(request, data.name, data)
    changes = changes_of(checks.name("queue", given.pop("name")), **given)
    if not await service.execute(CreateQueue(data.name, changes)):
        raise Refusal(409, "queue_exists", f"queue {data.name!r} already exists: change its settings with PATCH")
    return await _shown(service, data.name)


@route("GET", "/queues/{queue:str}", "consume", 404)
async def get_queue(service: Service, queue: FromPath[str]) -> Queue:
    """Return a queue with its settings and statistics."""
    await service.known(queue)
    return await _shown(service, queue)


@route("PATCH", "/queues/{queue:str}", "admin", 404, 409)
async def change_queue(
    request: HTTPRequest, service: Service, queue: FromPath[str], data: JSONBody[QueueChanges]
) -> Queue:
    """Change settings of a queue, for all processes at once."""
    given = _given(request, queue, data)
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

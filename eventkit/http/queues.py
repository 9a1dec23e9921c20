"""Queues and their settings."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from .. import checks
from ..operations.queue import CreateQueue
from ..protocols import AsyncTaskQueue
from ..queue import changes_of
from ..retry import Policy, PolicyName
from ..values import OnDead, QueueSettings, QueueStats, TaskState
from .bodies import AtLeastOne, Burst, Key, Lifetime, Name, Rate, Refusal, Seconds, Weight
from .keys import require
from .routing import AfterName, Count, HTTPRequest, Listed, page, route, sent
from .service import KnownQueue, ServiceContext

InState = Annotated[TaskState, "State of the tasks."]


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
    ordered: bool | UnsetType = UNSET
    on_dead: OnDead | UnsetType = UNSET
    fair: bool | UnsetType = UNSET
    group_max_running: AtLeastOne | UnsetType | None = UNSET
    group_rate: Rate | UnsetType | None = UNSET
    weights: dict[Key, Weight] | UnsetType | None = UNSET


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


async def _shown(queue: AsyncTaskQueue[Any]) -> Queue:
    return Queue(queue.name, await queue.settings(), await queue.stats())


@route("GET", "/queues", "consume")
async def list_queues(service: ServiceContext, after: AfterName = None, limit: Listed = 100) -> dict[str, QueueStats]:
    """List queues with their statistics, by name."""
    return page((await service.kit.overview()).queues, after, limit)


@route("POST", "/queues", "admin", 409, status=201)
async def create_queue(request: HTTPRequest, service: ServiceContext, data: QueueInput) -> Queue:
    """Create a queue; 409 if it exists."""
    given = _given(request, data.name, data)
    changes = changes_of(checks.name("queue", given.pop("name")), **given)
    if not await service.execute(CreateQueue(data.name, changes)):
        raise Refusal(409, "queue_exists", f"queue {data.name!r} already exists: change its settings with PATCH")
    return await _shown(service.queue(data.name))


@route("GET", "/queues/{queue:str}", "consume", 404)
async def get_queue(queue: KnownQueue) -> Queue:
    """Return a queue with its settings and statistics."""
    return await _shown(queue)


@route("PATCH", "/queues/{queue:str}", "admin", 404, 409)
async def change_queue(request: HTTPRequest, queue: KnownQueue, data: QueueChanges) -> Queue:
    """Change settings of a queue, for all processes at once."""
    await queue.configure(**_given(request, queue.name, data))
    return await _shown(queue)


@route("DELETE", "/queues/{queue:str}", "admin", 404, 409, status=204)
async def delete_queue(service: ServiceContext, queue: KnownQueue, force: bool = False) -> None:
    """Delete a queue; *force* also deletes tasks that are not done."""
    service.forget(queue.name)
    if not await queue.drop(force=force):
        raise Refusal(409, "queue_not_empty", f"queue {queue.name!r} has tasks: add ?force=true to delete them")


@route("GET", "/queues/{queue:str}/stats", "consume", 404)
async def queue_stats(queue: KnownQueue) -> QueueStats:
    """Return statistics of a queue, with counts up to 10,000."""
    return await queue.stats()


@route("POST", "/queues/{queue:str}/purge", "admin", 404)
async def purge_queue(queue: KnownQueue, state: InState = "ready") -> Count:
    """Delete all tasks in one state."""
    return Count(await queue.purge(state))


@route("POST", "/queues/{queue:str}/pause", "admin", 404)
async def pause_queue(queue: KnownQueue) -> Queue:
    """Pause a queue: it accepts tasks, but delivers none."""
    await queue.pause()
    return await _shown(queue)


@route("POST", "/queues/{queue:str}/resume", "admin", 404)
async def resume_queue(queue: KnownQueue) -> Queue:
    """Resume a paused queue."""
    await queue.resume()
    return await _shown(queue)


@route("POST", "/queues/{queue:str}/compact", "admin", 404)
async def compact_queue(service: ServiceContext, queue: KnownQueue) -> Count:
    """Move due and expired tasks of the queue now, and run housekeeping."""
    moved = await queue.sweep()
    await service.kit.maintain()
    return Count(moved)

"""Queues: making, configuring, emptying and forgetting them."""

from typing import Annotated, Any, Literal

import msgspec
from litestar import Request
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import UNSET, UnsetType

from .. import arguments
from ..operations.queue_settings import CreateQueue
from ..queue import changes_of
from ..retry import Policy
from ..settings import QueueSettings
from ..stats import QueueStats
from .keys import require
from .problems import Refusal
from .routing import route
from .service import Desk, Service
from .terms import AtLeastOne, Count, Name, Seconds

State = Literal["scheduled", "ready", "leased", "dead", "done"]

InState = Annotated[State, QueryParameter(name="state", description="Which of them.")]


class Queue(msgspec.Struct, frozen=True):
    """A queue: what it is configured to, and how many tasks it has."""

    name: str
    settings: QueueSettings
    stats: QueueStats


class QueueChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a queue: null is the default again, and what is left out stays.  Durations are seconds."""

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
        """What is said."""
        said = ((name, getattr(self, name)) for name in QueueChanges.__struct_fields__)
        return {name: value for name, value in said if value is not UNSET}


class NewQueue(QueueChanges, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue to be made, with what is to be set of it."""

    name: Name


def _may_bury(request: Request[Any, Any, Any], changes: QueueChanges) -> None:
    """Refuse a caller who may not produce where the dead letters are to go."""
    if isinstance(changes.dead_letter_to, str):
        require(request, "produce", "queue", name=changes.dead_letter_to)


async def shown(service: Desk, queue: str) -> Queue:
    """The queue as it is answered."""
    handle = service.queue(queue)
    return Queue(queue, await handle.settings(), await handle.stats())


@route("GET", "/queues", scope="consume")
async def list_queues(service: Service) -> dict[str, QueueStats]:
    """All queues in numbers, by name."""
    return (await service.kit.overview()).queues


@route("POST", "/queues", scope="admin", status=201, problems=(409,))
async def create_queue(request: Request[Any, Any, Any], service: Service, data: JSONBody[NewQueue]) -> Queue:
    """Make a queue; one that is there already stays as it is, and the answer is 409."""
    _may_bury(request, data)
    changes = changes_of(arguments.name("queue", data.name), **data.given())
    if not await service.execute(CreateQueue(data.name, changes)):
        raise Refusal(409, "queue_exists", f"there is a queue {data.name!r} already: PATCH it to change its settings")
    return await shown(service, data.name)


@route("GET", "/queues/{queue:str}", scope="consume", on="queue", problems=(404,))
async def get_queue(service: Service, queue: FromPath[str]) -> Queue:
    """One queue: its settings, and how many tasks it has."""
    await service.known(queue)
    return await shown(service, queue)


@route("PATCH", "/queues/{queue:str}", scope="admin", on="queue", problems=(404,))
async def change_queue(
    request: Request[Any, Any, Any], service: Service, queue: FromPath[str], data: JSONBody[QueueChanges]
) -> Queue:
    """Change the settings that are given; every process obeys at once."""
    _may_bury(request, data)
    await (await service.known(queue)).configure(**data.given())
    return await shown(service, queue)


@route("DELETE", "/queues/{queue:str}", scope="admin", on="queue", status=204, problems=(404, 409))
async def delete_queue(service: Service, queue: FromPath[str], force: FromQuery[bool] = False) -> None:
    """Forget a queue; one that has tasks only with *force*."""
    handle = await service.known(queue)
    service.forget(queue)
    if not await handle.drop(force=force):
        raise Refusal(409, "queue_not_empty", f"queue {queue!r} has tasks: add ?force=true to delete them with it")


@route("GET", "/queues/{queue:str}/stats", scope="consume", on="queue", problems=(404,))
async def queue_stats(service: Service, queue: FromPath[str]) -> QueueStats:
    """The queue in numbers, each counted up to 10,000."""
    return await (await service.known(queue)).stats()


@route("POST", "/queues/{queue:str}/purge", scope="admin", on="queue", problems=(404,))
async def purge_queue(service: Service, queue: FromPath[str], in_state: InState = "ready") -> Count:
    """Delete the messages in one state."""
    return Count(await (await service.known(queue)).purge(in_state))


@route("POST", "/queues/{queue:str}/pause", scope="admin", on="queue", problems=(404,))
async def pause_queue(service: Service, queue: FromPath[str]) -> Queue:
    """Take messages in and hand none out, until it is resumed."""
    await (await service.known(queue)).pause()
    return await shown(service, queue)


@route("POST", "/queues/{queue:str}/resume", scope="admin", on="queue", problems=(404,))
async def resume_queue(service: Service, queue: FromPath[str]) -> Queue:
    """Hand messages out again."""
    await (await service.known(queue)).resume()
    return await shown(service, queue)


@route("POST", "/queues/{queue:str}/compact", scope="admin", on="queue", problems=(404,))
async def compact_queue(service: Service, queue: FromPath[str]) -> Count:
    """Move what is due or expired in the queue now, and let housekeeping delete what was kept long enough."""
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

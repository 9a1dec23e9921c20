"""Dead letters of a queue: looking at them, giving them a new life, deleting them."""

from typing import Annotated, Any

import msgspec
from litestar.params import FromPath, JSONBody, QueryParameter

from ..records import TaskInfo
from .routing import route
from .service import Service
from .terms import IS_SECONDS, Count, Number


class Chosen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead letters are meant, by their ids; all of them, if none are named."""

    ids: Annotated[list[Number], msgspec.Meta(max_length=10_000)] | None = None


OlderThan = Annotated[float | None, QueryParameter(**IS_SECONDS, description="Only those that died so long ago.")]


@route("GET", "/queues/{queue:str}/dlq", scope="consume", on="queue", problems=(404,))
async def list_dead(
    service: Service, queue: FromPath[str], limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 100
) -> list[TaskInfo[Any]]:
    """The dead letters, newest first, each with its reason and error."""
    return await (await service.known(queue)).dead(limit)


@route("DELETE", "/queues/{queue:str}/dlq", scope="admin", on="queue", problems=(404,))
async def purge_dead(service: Service, queue: FromPath[str], older_than_s: OlderThan = None) -> Count:
    """Delete dead letters."""
    return Count(await (await service.known(queue)).purge_dead(older_than_s))


@route("POST", "/queues/{queue:str}/dlq/requeue", scope="admin", on="queue", problems=(404,))
async def requeue_dead(service: Service, queue: FromPath[str], data: JSONBody[Chosen]) -> Count:
    """Give dead letters a new life, with no attempt made."""
    return Count(await (await service.known(queue)).requeue(data.ids))


routes = [list_dead, purge_dead, requeue_dead]

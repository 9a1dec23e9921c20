"""The consumer groups of streams: their members, partitions and lag, and changes by an operator."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from .. import checks
from ..values import Group
from .bodies import Milliseconds, Number, Refusal
from .routing import HTTPRequest, route
from .service import AnyStream, while_connected

Seconds = Annotated[float, Meta(ge=0, le=3600), "Seconds to wait."]


class Drained(msgspec.Struct, frozen=True):
    """Whether the group has handled all events that there were, and none is parked."""

    drained: bool


class Place(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a group continues: after an offset, or with the events from a time on."""

    offset: Number | None = None
    at_ms: Milliseconds | None = None


@route("GET", "/streams/{stream:str}/groups", "consume")
async def list_groups(stream: AnyStream) -> list[Group]:
    """List the consumer groups of a stream, with members, partitions, lag and parked events."""
    return await stream.groups()


@route("GET", "/streams/{stream:str}/groups/{group:str}", "consume", 404)
async def get_group(stream: AnyStream, group: str) -> Group:
    """Return a consumer group."""
    return await _found(stream, group)


@route("DELETE", "/streams/{stream:str}/groups/{group:str}", "admin", 404, status=204)
async def remove_group(stream: AnyStream, group: str) -> None:
    """Remove a group with its positions and parked events."""
    if not await stream.remove_group(group):
        _unknown(stream, group)


@route("POST", "/streams/{stream:str}/groups/{group:str}/pause", "admin", 404, status=204)
async def pause_group(stream: AnyStream, group: str) -> None:
    """Stop handing out events to a group."""
    if not await stream.pause_group(group):
        _unknown(stream, group)


@route("POST", "/streams/{stream:str}/groups/{group:str}/resume", "admin", 404, status=204)
async def resume_group(stream: AnyStream, group: str) -> None:
    """Continue a group, with the partitions that were stopped."""
    if not await stream.resume_group(group):
        _unknown(stream, group)


@route("POST", "/streams/{stream:str}/groups/{group:str}/drain", "admin", 404)
async def drain_group(request: HTTPRequest, stream: AnyStream, group: str, wait_s: Seconds = 10.0) -> Drained:
    """Wait until a group has handled all events that there are now, and none is parked."""
    await _found(stream, group)
    return Drained(await while_connected(request, stream.drain_group(group, timeout=wait_s)))


@route("POST", "/streams/{stream:str}/groups/{group:str}/reset", "admin", 404, status=204)
async def reset_group(stream: AnyStream, group: str, data: Place) -> None:
    """Move a group to an offset or a time, and forget its parked events."""
    place: Any = data.offset if data.at_ms is None else checks.as_datetime(data.at_ms)
    if place is None or None not in (data.offset, data.at_ms):
        raise Refusal(422, "invalid", "a group is reset to an offset or to at_ms: give one of them")
    if not await stream.reset_group(group, place):
        _unknown(stream, group)


async def _found(stream: AnyStream, group: str) -> Group:
    return next((one for one in await stream.groups() if one.name == group), None) or _unknown(stream, group)


def _unknown(stream: AnyStream, group: str) -> Any:
    raise Refusal(404, "unknown_group", f"stream {stream.name!r} has no group {group!r}")

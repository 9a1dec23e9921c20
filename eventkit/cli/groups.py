"""``eventkit group``: the consumer groups of streams."""

from typing import Annotated, Any

from ..protocols import EventKit
from ..values import Group
from . import settings
from .output import Failed, Result, Table, answer, listing, plain, tables
from .settings import Stream, argument, audited, command, group, option

groups = group("group", "Consumer groups of streams: members, lag, pause, drain, reset.")

Name = Annotated[str, argument("GROUP", "The name of the group.")]


@command(groups, "list")
def list_groups(kit: EventKit, stream: Annotated[str | None, argument("STREAM", "Only this stream.")] = None) -> Result:
    """List the groups of a stream, or of all streams, with lag and parked events."""
    rows = [
        {
            "stream": name,
            **plain(one),
            "members": len(one.members),
            "partitions": len(one.partitions),
            "waiting": sum(part.state != "open" for part in one.partitions),
        }
        for name in ([stream] if stream is not None else kit.overview().streams)
        for one in kit.stream(name).groups()
    ]
    columns = ("stream", "name", "members", "partitions", "lag", "parked", "waiting", "paused")
    return listing(rows, columns, "there are no groups")


@command(groups)
def show(kit: EventKit, stream: Stream, name: Name) -> Result:
    """Show the members and partitions of a group."""
    found = plain(_found(kit, stream, name))
    title = f"{name}: {found['lag']:,} events behind, {found['parked']:,} parked{', paused' if found['paused'] else ''}"
    members = Table.of(("member", "name", "partitions", "paused"), found["members"], title)
    columns = ("partition", "offset", "lag", "parked", "member", "state")
    return tables(found, (members, Table.of(columns, found["partitions"], "Partitions")), "")


@command(groups)
def pause(kit: EventKit, stream: Stream, name: Name) -> Result:
    """Stop handing out events to a group."""
    handle = audited(kit, "group.pause", stream=stream, group=name).stream(stream)
    return _changed(handle.pause_group(name), name, "paused")


@command(groups)
def resume(kit: EventKit, stream: Stream, name: Name) -> Result:
    """Continue a group, with the partitions that were stopped."""
    handle = audited(kit, "group.resume", stream=stream, group=name).stream(stream)
    return _changed(handle.resume_group(name), name, "resumed")


@command(groups)
def drain(
    kit: EventKit,
    stream: Stream,
    name: Name,
    timeout: Annotated[float | None, option("SECONDS", "Give up after this time.", min=0)] = None,
) -> Result:
    """Wait until a group has handled all events that there are now, and none is parked."""
    _found(kit, stream, name)
    if not kit.stream(stream).drain_group(name, timeout=timeout):
        found = _found(kit, stream, name)
        raise Failed(f"group {name!r} is {found.lag:,} events behind, and {found.parked:,} are parked")
    return answer(f"{name} is drained", {"group": name, "drained": True})


@command(groups)
def reset(
    kit: EventKit,
    stream: Stream,
    name: Name,
    to: Annotated[str, argument("TO", "An offset, earliest, latest, or a time.")],
) -> Result:
    """Move a group to another offset, and forget its parked events."""
    handle = audited(kit, "group.reset", stream=stream, group=name, to=to).stream(stream)
    place: Any = int(to) if to.isdecimal() else to if to in ("earliest", "latest") else settings.moment(to)
    return _changed(handle.reset_group(name, place), name, f"reset to {to}")


@command(groups)
def remove(kit: EventKit, stream: Stream, name: Name) -> Result:
    """Remove a group with its positions, so that it no longer keeps events."""
    handle = audited(kit, "group.remove", stream=stream, group=name).stream(stream)
    return _changed(handle.remove_group(name), name, "removed")


def _found(kit: EventKit, stream: str, name: str) -> Group:
    for one in kit.stream(stream).groups():
        if one.name == name:
            return one
    raise Failed(f"stream {stream!r} has no group {name!r}: see eventkit group list {stream}")


def _changed(known: bool, name: str, what: str) -> Result:
    if not known:
        raise Failed(f"there is no group {name!r}: see eventkit group list")
    return answer(f"{name} {what}", {"group": name, "change": what})

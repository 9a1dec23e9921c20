"""Streams: events that are appended, read, waited for and followed, and the consumers that remember where they are."""

from typing import Annotated, Any

import msgspec
from litestar import Request
from litestar.params import FromPath, HeaderParameter, JSONBody, QueryParameter
from msgspec import UNSET, UnsetType

from .. import arguments
from ..operations import Operation, Probe
from ..operations.position import Position as Proof
from ..operations.position import ReadPosition
from ..operations.stream import EventsAhead, FindLatest, FollowEvents, ReadEvents, ReadOffset, ResumePosition
from ..records import Consumer, Event, NewEvent
from ..settings import StreamSettings
from ..stats import TopicStats
from .live import Live, live
from .routing import route
from .service import Desk, Service
from .terms import IS_NAME, IS_NUMBER, Count, Key, Number, Seconds
from .waiting import while_there


class IncomingEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event for a stream; a *dedup* id that the stream still holds appends nothing."""

    payload: msgspec.Raw
    key: Key | None = None
    headers: dict[str, str] | None = None
    dedup: Key | None = None

    def new(self) -> Any:
        """The event as the stream takes it."""
        if self.key is None and self.headers is None and self.dedup is None:
            return self.payload
        return NewEvent(self.payload, self.key, self.headers, self.dedup)


class Published(msgspec.Struct, frozen=True):
    """Where the events stand, in the order in which they were sent."""

    offsets: list[int]


class Stream(msgspec.Struct, frozen=True):
    """A stream: the highest offset that is settled, how long its events are kept, and who reads them."""

    topic: str
    head: int
    settings: StreamSettings
    consumers: list[Consumer]


class StreamChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For how long events are kept, in seconds, and how many; null is for ever, and what is left out stays."""

    retain: Seconds | UnsetType | None = UNSET
    max_keep: Number | UnsetType | None = UNSET
    keep_unconsumed: bool | UnsetType = UNSET


class Pruning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be dropped: what is older, all but the newest, or both; what a consumer has still to read stays."""

    older_than_s: Seconds | None = None
    max_keep: Number | None = None
    keep_unconsumed: bool = True


class Position(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a consumer is: it has handled everything up to this offset."""

    offset: Number


class Moved(msgspec.Struct, frozen=True):
    """Whether the consumer has moved; it has not if it was there or beyond."""

    moved: bool


class Following:
    """A stream, as `live` follows it."""

    def __init__(self, desk: Desk, topic: str, skip: bool, consumer: str | None = None) -> None:
        self._topic = desk.stream(topic).topic
        self._codec = desk.raw
        self._skip = skip
        self._consumer = consumer

    def place(self, after: int, *, seen: bool) -> Operation[Proof]:
        """The position at an offset."""
        return ResumePosition(self._topic, after) if seen else ReadPosition(self._topic, after)

    def read(self, place: Proof, limit: int) -> Operation[tuple[Any, ...]]:
        """The events after a position."""
        return FollowEvents(self._topic, self._consumer, place, limit, self._codec, self._skip)

    def ahead(self, place: Proof) -> Probe:
        """Whether there is one."""
        return EventsAhead.of(self._topic, place)

    def position(self, item: Event[Any]) -> int:
        """Its offset."""
        return item.offset


Limit = Annotated[int, QueryParameter(ge=1, le=1000, description="How many events at most.")]
After = Annotated[int, QueryParameter(**IS_NUMBER, description="The offset behind which they begin.")]
Wait = Annotated[float, QueryParameter(ge=0, le=3600, description="Seconds to wait for the first, if there is none.")]
Skip = Annotated[bool, QueryParameter(description="Go on behind events that were pruned, instead of a 410.")]
Reader = Annotated[str | None, QueryParameter(**IS_NAME, description="Begin where this consumer has acknowledged.")]
LastEventId = Annotated[str | None, HeaderParameter(name="Last-Event-ID", description="Where to go on; wins over all.")]


@route("GET", "/streams", scope="consume")
async def list_streams(service: Service) -> dict[str, TopicStats]:
    """All streams in numbers, by topic."""
    return (await service.kit.overview()).topics


@route("GET", "/streams/{stream:str}", scope="consume", on="stream")
async def get_stream(service: Service, stream: FromPath[str]) -> Stream:
    """One stream; one of which nothing is known is empty."""
    return await _shown(service, stream)


@route("PATCH", "/streams/{stream:str}", scope="admin", on="stream")
async def change_stream(service: Service, stream: FromPath[str], data: JSONBody[StreamChanges]) -> Stream:
    """Change for how long events are kept."""
    said = ((name, getattr(data, name)) for name in StreamChanges.__struct_fields__)
    await service.stream(stream).configure(**{name: value for name, value in said if value is not UNSET})
    return await _shown(service, stream)


@route("POST", "/streams/{stream:str}/events", scope="produce", on="stream", status=201, lines=True)
async def publish(
    service: Service,
    stream: FromPath[str],
    data: JSONBody[IncomingEvent | Annotated[list[IncomingEvent], msgspec.Meta(max_length=10_000)]],
) -> Published:
    """Append an event, or several: all or none.  As NDJSON (``application/x-ndjson``) an event a line."""
    events = data if isinstance(data, list) else [data]
    handle = service.stream(stream)
    with service.pressure.write():
        return Published(await handle.publish_many([event.new() for event in events]))


@route("GET", "/streams/{stream:str}/events", scope="consume", on="stream", problems=(410,))
async def read_events(
    request: Request[Any, Any, Any],
    service: Service,
    stream: FromPath[str],
    after: After = 0,
    limit: Limit = 100,
    wait_s: Wait = 0.0,
    skip_pruned: Skip = False,
) -> list[Event[Any]]:
    """The events after an offset, in order; as soon as there is one, and none after *wait_s* seconds."""
    reading = ReadEvents(service.stream(stream).topic, after, limit, service.raw, skip_pruned)
    events = await service.execute(reading)
    if not events and wait_s:
        waiting = service.attempt(reading, EventsAhead(stream, after), service.patience(wait_s))
        events = await while_there(request, waiting)
    return events


@route("GET", "/streams/{stream:str}/sse", scope="consume", on="stream", problems=(409, 410), live=True)
async def follow_stream(
    service: Service,
    stream: FromPath[str],
    after: Annotated[int | None, QueryParameter(**IS_NUMBER, description="The offset behind which it begins.")] = None,
    consumer: Reader = None,
    skip_pruned: Skip = False,
    last_event_id: LastEventId = None,
) -> Live:
    """Follow a stream as server-sent events, whose ids are offsets.

    Without *after* and *consumer* it begins with what is published from now on.  Progress is saved by POST
    /streams/{stream}/consumers/{consumer}/ack, and by nothing else.

    Where the database has gone back behind the client, it goes on from where *consumer* is, or is refused without one.
    """
    source = Following(service, stream, skip_pruned, consumer)
    start: Any = after
    if start is None:
        start = FindLatest(stream) if consumer is None else ReadOffset(stream, arguments.name("consumer", consumer))
    return await live(service, source, start, last_event_id)


@route("POST", "/streams/{stream:str}/prune", scope="admin", on="stream")
async def prune_stream(service: Service, stream: FromPath[str], data: JSONBody[Pruning]) -> Count:
    """Drop the oldest events."""
    return Count(
        await service.stream(stream).prune(
            older_than=data.older_than_s, max_keep=data.max_keep, keep_unconsumed=data.keep_unconsumed
        )
    )


@route("GET", "/streams/{stream:str}/consumers", scope="consume", on="stream")
async def list_consumers(service: Service, stream: FromPath[str]) -> list[Consumer]:
    """Who reads the stream, where they are, and how much they have still to read."""
    return await service.stream(stream).consumers()


@route("GET", "/streams/{stream:str}/consumers/{consumer:str}", scope="consume", on="stream")
async def get_position(service: Service, stream: FromPath[str], consumer: FromPath[str]) -> Position:
    """Where a consumer is; 0 for one that has acknowledged nothing."""
    return Position(await service.stream(stream).offset(consumer))


@route("POST", "/streams/{stream:str}/consumers/{consumer:str}/ack", scope="consume", on="stream")
async def acknowledge(
    service: Service, stream: FromPath[str], consumer: FromPath[str], data: JSONBody[Position]
) -> Moved:
    """Save that a consumer has handled everything up to an offset; it moves forward only."""
    return Moved(await service.stream(stream).save_offset(consumer, data.offset))


@route("POST", "/streams/{stream:str}/consumers/{consumer:str}/seek", scope="admin", on="stream")
async def seek(service: Service, stream: FromPath[str], consumer: FromPath[str], data: JSONBody[Position]) -> Position:
    """Move a consumer anywhere."""
    await service.stream(stream).seek(consumer, data.offset)
    return data


async def _shown(service: Desk, topic: str) -> Stream:
    handle = service.stream(topic)
    return Stream(topic, await handle.head(), await handle.settings(), await handle.consumers())


routes = [
    list_streams,
    get_stream,
    change_stream,
    publish,
    read_events,
    follow_stream,
    prune_stream,
    list_consumers,
    get_position,
    acknowledge,
    seek,
]

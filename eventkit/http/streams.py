"""Streams and channels: publish, read and follow events and notifications."""

from typing import Annotated, Any

import msgspec
from litestar import Request
from litestar.params import FromPath, HeaderParameter, JSONBody, QueryParameter
from msgspec import UNSET, UnsetType

from .. import checks
from ..operations import Operation, Probe
from ..operations.channel import FindNotification, FindNow, FollowNotifications, NotificationsAhead
from ..operations.position import Position as Proof
from ..operations.position import ReadPosition
from ..operations.stream import EventsAhead, FindLatest, FollowEvents, ReadEvents, ReadOffset, ResumePosition
from ..values import Consumer, Event, NewEvent, Notification, StreamSettings, TopicStats
from .events import Live, live, while_connected
from .requests import IS_NAME, IS_NUMBER, Count, Key, Number, Seconds
from .routing import route
from .service import Service, ServiceContext


class IncomingEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event to publish; it is skipped if the stream has its *dedup* id."""

    payload: msgspec.Raw
    key: Key | None = None
    headers: dict[str, str] | None = None
    dedup: Key | None = None

    def new(self) -> Any:
        """Return the event for the stream."""
        if self.key is None and self.headers is None and self.dedup is None:
            return self.payload
        return NewEvent(self.payload, self.key, self.headers, self.dedup)


class Published(msgspec.Struct, frozen=True):
    """The offsets of the events, in the order of the request."""

    offsets: list[int]


class Stream(msgspec.Struct, frozen=True):
    """A stream: its highest settled offset, its settings and its consumers."""

    topic: str
    head: int
    settings: StreamSettings
    consumers: list[Consumer]


class StreamChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Retention of events in seconds and by number; null is unlimited, omitted settings are kept."""

    retain: Seconds | UnsetType | None = UNSET
    max_keep: Number | UnsetType | None = UNSET
    keep_unconsumed: bool | UnsetType = UNSET


class Pruning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of age and number beyond which events are dropped; by default unread events are kept."""

    older_than_s: Seconds | None = None
    max_keep: Number | None = None
    keep_unconsumed: bool = True


class Position(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The offset up to which a consumer has handled all events."""

    offset: Number


class Moved(msgspec.Struct, frozen=True):
    """Whether the consumer moved; false if it was already there or beyond."""

    moved: bool


class StreamSource:
    """The `Source` of a stream."""

    def __init__(self, context: ServiceContext, topic: str, skip: bool, consumer: str | None = None) -> None:
        self._topic = context.stream(topic).topic
        self._codec = context.raw
        self._skip = skip
        self._consumer = consumer

    def place(self, after: int, *, seen: bool) -> Operation[Proof]:
        """Return the operation for the position at an offset."""
        return ResumePosition(self._topic, after) if seen else ReadPosition(self._topic, after)

    def read(self, place: Proof, limit: int) -> Operation[tuple[Any, ...]]:
        """Return the operation for the events after a position."""
        return FollowEvents(self._topic, self._consumer, place, limit, self._codec, self._skip)

    def ahead(self, place: Proof) -> Probe:
        """Return the probe for further events."""
        return EventsAhead.of(self._topic, place)

    def position(self, item: Event[Any]) -> int:
        """Return the offset of an event."""
        return item.offset


Limit = Annotated[int, QueryParameter(ge=1, le=1000, description="Maximum number of events.")]
After = Annotated[int, QueryParameter(**IS_NUMBER, description="Only events after this offset.")]
Wait = Annotated[float, QueryParameter(ge=0, le=3600, description="Seconds to wait for an event.")]
Skip = Annotated[bool, QueryParameter(description="Skip pruned events instead of a 410.")]
Reader = Annotated[str | None, QueryParameter(**IS_NAME, description="Continue after the offset of this consumer.")]
LastEventId = Annotated[str | None, HeaderParameter(name="Last-Event-ID", description="Continue after this id.")]


@route("GET", "/streams", scope="consume")
async def list_streams(service: Service) -> dict[str, TopicStats]:
    """List all streams with their statistics."""
    return (await service.kit.overview()).topics


@route("GET", "/streams/{stream:str}", scope="consume", on="stream")
async def get_stream(service: Service, stream: FromPath[str]) -> Stream:
    """Return a stream; an unknown stream is empty."""
    return await _shown(service, stream)


@route("PATCH", "/streams/{stream:str}", scope="admin", on="stream")
async def change_stream(service: Service, stream: FromPath[str], data: JSONBody[StreamChanges]) -> Stream:
    """Change the retention of a stream."""
    sent = ((name, getattr(data, name)) for name in StreamChanges.__struct_fields__)
    await service.stream(stream).configure(**{name: value for name, value in sent if value is not UNSET})
    return await _shown(service, stream)


@route("POST", "/streams/{stream:str}/events", scope="produce", on="stream", status=201, lines=True)
async def publish(
    service: Service,
    stream: FromPath[str],
    data: JSONBody[IncomingEvent | Annotated[list[IncomingEvent], msgspec.Meta(max_length=10_000)]],
) -> Published:
    """Publish an event, or an array of events atomically; NDJSON (``application/x-ndjson``) has one per line."""
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
    """Return the events after an offset, waiting up to *wait_s* seconds for one."""
    reading = ReadEvents(service.stream(stream).topic, after, limit, service.raw, skip_pruned)
    events = await service.execute(reading)
    if not events and wait_s:
        waiting = service.attempt(reading, EventsAhead(stream, after), service.capped(wait_s))
        events = await while_connected(request, waiting)
    return events


@route("GET", "/streams/{stream:str}/sse", scope="consume", on="stream", problems=(409, 410), live=True)
async def follow_stream(
    service: Service,
    stream: FromPath[str],
    after: Annotated[int | None, QueryParameter(**IS_NUMBER, description="Only events after this offset.")] = None,
    consumer: Reader = None,
    skip_pruned: Skip = False,
    last_event_id: LastEventId = None,
) -> Live:
    """Follow a stream as server-sent events, whose ids are offsets.

    Without *after* and *consumer* it begins with new events.  Only POST
    /streams/{stream}/consumers/{consumer}/ack saves progress.

    If the database was restored to a state before the client's position, it continues after the offset of
    *consumer*; without one the request is refused.
    """
    source = StreamSource(service, stream, skip_pruned, consumer)
    start: Any = after
    if start is None:
        start = FindLatest(stream) if consumer is None else ReadOffset(stream, checks.name("consumer", consumer))
    return await live(service, source, start, last_event_id)


@route("POST", "/streams/{stream:str}/prune", scope="admin", on="stream")
async def prune_stream(service: Service, stream: FromPath[str], data: JSONBody[Pruning]) -> Count:
    """Drop the oldest events of a stream."""
    return Count(
        await service.stream(stream).prune(
            older_than=data.older_than_s, max_keep=data.max_keep, keep_unconsumed=data.keep_unconsumed
        )
    )


@route("GET", "/streams/{stream:str}/consumers", scope="consume", on="stream")
async def list_consumers(service: Service, stream: FromPath[str]) -> list[Consumer]:
    """List the consumers of a stream with offset and lag."""
    return await service.stream(stream).consumers()


@route("GET", "/streams/{stream:str}/consumers/{consumer:str}", scope="consume", on="stream")
async def get_position(service: Service, stream: FromPath[str], consumer: FromPath[str]) -> Position:
    """Return the offset of a consumer; 0 if it has acknowledged nothing."""
    return Position(await service.stream(stream).offset(consumer))


@route("POST", "/streams/{stream:str}/consumers/{consumer:str}/ack", scope="consume", on="stream")
async def acknowledge(
    service: Service, stream: FromPath[str], consumer: FromPath[str], data: JSONBody[Position]
) -> Moved:
    """Acknowledge all events up to an offset; a consumer only moves forward."""
    return Moved(await service.stream(stream).save_offset(consumer, data.offset))


@route("POST", "/streams/{stream:str}/consumers/{consumer:str}/seek", scope="admin", on="stream")
async def seek(service: Service, stream: FromPath[str], consumer: FromPath[str], data: JSONBody[Position]) -> Position:
    """Move a consumer to any offset."""
    await service.stream(stream).seek(consumer, data.offset)
    return data


async def _shown(service: ServiceContext, topic: str) -> Stream:
    handle = service.stream(topic)
    return Stream(topic, await handle.head(), await handle.settings(), await handle.consumers())


class NewNotification(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A notification for a channel."""

    payload: msgspec.Raw
    headers: dict[str, str] | None = None


class Notified(msgspec.Struct, frozen=True):
    """The id of the notification."""

    id: int


class ChannelSource:
    """The `Source` of a channel."""

    def __init__(self, context: ServiceContext, channel: str) -> None:
        self._channels = (context.channel(channel).name,)
        self._codec = context.raw

    def place(self, after: int, *, seen: bool) -> Operation[tuple[int, int]]:
        """Return the operation for the last notification up to an id."""
        return FindNotification(self._channels, after, checks.MOST)

    def read(self, place: tuple[int, int], limit: int) -> Operation[tuple[Any, ...]]:
        """Return the operation for the notifications after *place*."""
        return FollowNotifications(self._channels, place, limit, self._codec)

    def ahead(self, place: tuple[int, int]) -> Probe:
        """Return the probe for further notifications."""
        return NotificationsAhead(self._channels, *place)

    def position(self, item: Notification[Any]) -> int:
        """Return the id of a notification."""
        return item.id


LastNotificationId = Annotated[str | None, HeaderParameter(name="Last-Event-ID", description="Continue after this id.")]


@route("POST", "/channels/{channel:str}", scope="produce", on="channel", status=201)
async def notify(service: Service, channel: FromPath[str], data: JSONBody[NewNotification]) -> Notified:
    """Send a notification to all listeners."""
    handle = service.channel(channel)
    with service.pressure.write():
        return Notified(await handle.notify(data.payload, headers=data.headers))


@route("GET", "/channels/{channel:str}/sse", scope="consume", on="channel", live=True)
async def listen(service: Service, channel: FromPath[str], last_event_id: LastNotificationId = None) -> Live:
    """Follow a channel as server-sent events: new notifications, or those after the last id."""
    return await live(service, ChannelSource(service, channel), FindNow((channel,)), last_event_id)


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
    notify,
    listen,
]

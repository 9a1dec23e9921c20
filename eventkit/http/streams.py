"""Streams: publish, read and follow events."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from operator import attrgetter
from time import monotonic
from typing import Annotated, Any, NamedTuple

import msgspec
from litestar import Response
from litestar.types import ASGIApp, Receive, Scope, Send
from msgspec import UNSET, Meta, UnsetType

from .. import checks
from ..codec import encode_json
from ..errors import PASSING, EventkitError
from ..operations import Operation, Origin, Probe
from ..operations.position import ReadPosition
from ..operations.stream import EventsAhead, FindLatest, FollowEvents, ReadEvents, ReadOffset, ResumePosition
from ..protocols import AsyncEventStream
from ..values import Consumer, Event, NewEvent, StreamSettings, StreamStats
from .bodies import Key, Milliseconds, Name, Number, Refusal, Seconds
from .keys import still_permitted
from .routing import EVENTS, AfterName, Count, HTTPRequest, Listed, page, problem_of, route, sent, whole
from .service import AnyStream, ServiceContext, disconnected

AT_ONCE = 100  # Items per read of a response of server-sent events.

Limit = Annotated[int, Meta(ge=1, le=1000), "Maximum number of events."]
After = Annotated[Number, "Only events after this offset."]
Start = Annotated[Number | None, "Only events after this offset."]
Wait = Annotated[float, Meta(ge=0, le=3600), "Seconds to wait for an event."]
Moment = Annotated[Milliseconds, "Milliseconds since 1970."]
Skip = Annotated[bool, "Skip pruned events instead of a 410."]
Reader = Annotated[Name | None, "Continue after this consumer's offset."]
LastEventId = Annotated[str | None, "Continue after this id."]


class Heartbeat:
    """Checks every *seconds* whether the key of a streaming *request* is still valid."""

    def __init__(self, request: HTTPRequest, seconds: float) -> None:
        self._request, self._seconds = request, seconds
        self._checked_at = monotonic()

    async def beat(self) -> None:
        """Raise the `Refusal` that ends the stream, if a check is due and the key is not valid."""
        if monotonic() - self._checked_at >= self._seconds:
            self._checked_at = monotonic()
            with suppress(*PASSING):  # A database that is unavailable revokes no key.
                await still_permitted(self._request)


class SlowReader(Exception):
    """Raised to the server when a client reads too slowly, which ends its connection."""


class Source(NamedTuple):
    """A source of server-sent events: operations to read it, and a probe for new items."""

    place: Callable[[int, bool], Operation[Any]]
    """Find the place after a position, which the client has seen or chosen."""

    read: Callable[[Any], Operation[tuple[Any, ...]]]
    """Read the items after a place, and the next place."""

    ahead: Callable[[Any], Probe]
    position: Callable[[Any], int]


class Live(Response[Any]):
    """A streaming response: the *first* items, which were read so that errors get a status, and all that follow."""

    def __init__(
        self, context: ServiceContext, source: Source, seen: frozenset[int], place: Any, first: Sequence[Any]
    ) -> None:
        super().__init__(None, media_type="text/event-stream")
        self._context, self._source = context, source
        self._seen, self._place, self._first = seen, place, first

    @classmethod
    async def of(
        cls, context: ServiceContext, source: Source, start: Operation[Any] | int, last_id: str | None
    ) -> "Live":
        """Follow *source* from *start*, or after the last id that the client has seen."""
        seen = whole(last_id or "")
        if seen is not None:
            start = seen
        found: Any = await context.execute(start) if isinstance(start, Operation) else start
        origin = found if isinstance(found, Origin) else Origin(found)
        if context.listeners >= context.settings.max_listeners:
            raise Refusal(429, "too_many_listeners", f"too many listeners ({context.listeners:,}): try again later")
        place = await context.execute(source.place(origin.after, seen is not None))
        first, place, *_ = await context.execute(source.read(place))
        return cls(context, source, origin.seen, place, first)

    def to_asgi_response(self, request: HTTPRequest, **more: Any) -> ASGIApp:  # type: ignore[override]
        """Return the ASGI response."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            with self._context.listener():
                sending = asyncio.ensure_future(self._send(request, send))
                leaving = asyncio.ensure_future(disconnected(receive))
                try:
                    await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    sending.cancel()
                    leaving.cancel()
                    await asyncio.wait({sending, leaving})
            if not sending.cancelled() and (error := sending.exception()) is not None:
                raise error

        return answer

    async def _send(self, request: HTTPRequest, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async with aclosing(self._texts(request)) as texts:
                async for text in texts:
                    async with asyncio.timeout(self._context.settings.slow_reader):
                        await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
        except TimeoutError:
            self._context.dropped += 1
            raise SlowReader from None
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _texts(self, request: HTTPRequest) -> AsyncGenerator[str, None]:
        context, found, place = self._context, self._first, self._place
        heartbeat = Heartbeat(request, context.settings.heartbeat)
        yield "retry: 1000\n\n"
        try:
            while True:
                await heartbeat.beat()
                if found:
                    yield "".join(self._framed(found))
                else:
                    # The task outlives heartbeats, because each new sleep would read the database.
                    sleeping = asyncio.create_task(context.connection.sleep(self._source.ahead(place)))
                    try:
                        while not (await asyncio.wait({sleeping}, timeout=context.settings.heartbeat))[0]:
                            await heartbeat.beat()
                            yield ": still here\n\n"
                    finally:
                        sleeping.cancel()
                        await asyncio.wait({sleeping})
                    if not sleeping.result():
                        return
                try:
                    found, place, *_ = await context.execute(self._source.read(place))
                except PASSING:
                    found = ()
        except (EventkitError, Refusal) as error:
            problem, _ = problem_of(error)
            yield f"event: error\ndata: {encode_json(problem)}\n\n"

    def _framed(self, items: Sequence[Any]) -> list[str]:
        """Format items as events; JSON text may have line breaks between its parts."""
        texts = [(self._source.position(one), encode_json(one)) for one in items]
        return [
            "id: {}\ndata: {}\n\n".format(at, text.replace("\r", " ").replace("\n", "\ndata: "))
            for at, text in texts
            if at not in self._seen
        ]


class IncomingEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event to publish; it is skipped if the stream has its *dedup* id."""

    payload: msgspec.Raw
    key: Key | None = None
    headers: dict[str, str] | None = None
    dedup: Key | None = None

    def new(self) -> Any:
        """Return the event for the stream."""
        plain = self == IncomingEvent(self.payload)
        return self.payload if plain else NewEvent(self.payload, self.key, self.headers, self.dedup)


class Published(msgspec.Struct, frozen=True):
    """The offsets of the events, in the order of the request."""

    offsets: list[int]


class Stream(msgspec.Struct, frozen=True):
    """A stream: its highest settled offset, its settings and its consumers."""

    stream: str
    head: int
    settings: StreamSettings
    consumers: list[Consumer]


class ChannelChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Retention of notifications in seconds and by number; null is unlimited, omitted settings are kept."""

    keep: Seconds | UnsetType | None = UNSET
    keep_count: Number | UnsetType | None = UNSET


class StreamChanges(ChannelChanges, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Retention of events in seconds and by number; null is unlimited, omitted settings are kept."""

    keep_unconsumed: bool | UnsetType = UNSET


class ChannelPruning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of age and number beyond which notifications are dropped."""

    older_than_s: Seconds | None = None
    keep_count: Number | None = None


class Pruning(ChannelPruning, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of age and number beyond which events are dropped; by default unread events are kept."""

    keep_unconsumed: bool = True


class Position(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The offset up to which a consumer has handled all events."""

    offset: Number


class Moved(msgspec.Struct, frozen=True):
    """Whether the consumer moved; false if it was already there or beyond."""

    moved: bool


async def _shown(stream: AsyncEventStream[Any]) -> Stream:
    return Stream(stream.name, await stream.head(), await stream.settings(), await stream.consumers())


@route("GET", "/streams", "consume")
async def list_streams(service: ServiceContext, after: AfterName = None, limit: Listed = 100) -> dict[str, StreamStats]:
    """List streams with their statistics, by name."""
    return page((await service.kit.overview()).streams, after, limit)


@route("GET", "/streams/{stream:str}", "consume")
async def get_stream(stream: AnyStream) -> Stream:
    """Return a stream; an unknown stream is empty."""
    return await _shown(stream)


@route("PATCH", "/streams/{stream:str}", "admin")
async def change_stream(stream: AnyStream, data: StreamChanges) -> Stream:
    """Change the retention of a stream."""
    await stream.configure(**sent(data))
    return await _shown(stream)


@route("POST", "/streams/{stream:str}/events", "produce", status=201, lines=True)
async def publish(
    service: ServiceContext,
    stream: AnyStream,
    data: IncomingEvent | Annotated[list[IncomingEvent], Meta(max_length=10_000)],
) -> Published:
    """Publish an event, or an array of events atomically; NDJSON (``application/x-ndjson``) has one per line."""
    events = data if isinstance(data, list) else [data]
    with service.pressure.write():
        return Published(await stream.publish_many([event.new() for event in events]))


@route("GET", "/streams/{stream:str}/events", "consume", 410)
async def read_events(
    request: HTTPRequest,
    service: ServiceContext,
    stream: AnyStream,
    after: After = 0,
    limit: Limit = 100,
    wait_s: Wait = 0.0,
    skip_pruned: Skip = False,
) -> list[Event[Any]]:
    """Return the events after an offset, waiting up to *wait_s* seconds for one."""
    reading = ReadEvents(stream.name, after, limit, service.raw, skip_pruned)
    return await service.awaited(request, reading, EventsAhead(stream.name, after), wait_s)


@route("GET", "/streams/{stream:str}/sse", "consume", 409, 410, media=(EVENTS,))
async def follow_stream(
    service: ServiceContext,
    stream: AnyStream,
    after: Start = None,
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
    name = stream.name
    source = Source(
        place=lambda after, seen: ResumePosition(name, after) if seen else ReadPosition(name, after),
        read=lambda place: FollowEvents(name, consumer, place, AT_ONCE, service.raw, skip_pruned),
        ahead=partial(EventsAhead.of, name),
        position=attrgetter("offset"),
    )
    start: Any = after
    if start is None:
        start = FindLatest(name) if consumer is None else ReadOffset(name, checks.name("consumer", consumer))
    return await Live.of(service, source, start, last_event_id)


@route("GET", "/streams/{stream:str}/offset", "consume")
async def find_offset(stream: AnyStream, at_ms: Moment) -> Position:
    """Return the offset after which all events lie that were created at a time or later."""
    return Position(await stream.offset_at(checks.as_datetime(at_ms)))


@route("POST", "/streams/{stream:str}/prune", "admin")
async def prune_stream(stream: AnyStream, data: Pruning) -> Count:
    """Drop the oldest events of a stream."""
    keep = data.keep_unconsumed
    return Count(await stream.prune(older_than=data.older_than_s, keep_count=data.keep_count, keep_unconsumed=keep))


@route("GET", "/streams/{stream:str}/consumers", "consume")
async def list_consumers(stream: AnyStream) -> list[Consumer]:
    """List the consumers of a stream with offset and lag."""
    return await stream.consumers()


@route("GET", "/streams/{stream:str}/consumers/{consumer:str}", "consume")
async def get_position(stream: AnyStream, consumer: str) -> Position:
    """Return the offset of a consumer; 0 if it has acknowledged nothing."""
    return Position(await stream.offset(consumer))


@route("DELETE", "/streams/{stream:str}/consumers/{consumer:str}", "admin", 404, status=204)
async def remove_consumer(stream: AnyStream, consumer: str) -> None:
    """Remove a consumer with its offset, so that it no longer keeps events."""
    if not await stream.remove_consumer(consumer):
        raise Refusal(404, "unknown_consumer", f"stream {stream.name!r} has no consumer {consumer!r}")


@route("POST", "/streams/{stream:str}/consumers/{consumer:str}/ack", "consume")
async def acknowledge(stream: AnyStream, consumer: str, data: Position) -> Moved:
    """Acknowledge all events up to an offset; a consumer only moves forward."""
    return Moved(await stream.save_offset(consumer, data.offset))


@route("POST", "/streams/{stream:str}/consumers/{consumer:str}/seek", "admin")
async def seek(stream: AnyStream, consumer: str, data: Position) -> Position:
    """Move a consumer to any offset."""
    await stream.seek(consumer, data.offset)
    return data

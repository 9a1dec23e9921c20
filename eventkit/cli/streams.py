"""``eventkit stream`` and ``channel``: events and their consumers, and notifications."""

from collections import deque
from datetime import datetime
from typing import Annotated, Any

from ..protocols import EventKit
from ..values import NewEvent
from . import settings
from .data import File, Payload, one_or_lines
from .output import Failed, Followed, Refused, Result, answer, listing, plain
from .settings import Headers, Limit, OlderThan, Stream, argument, audited, command, flag, group, option

streams = group("stream", "Streams: publish, read, follow, consumers.")
channels = group("channel", "Channels: send and receive notifications.")

After = Annotated[int | None, option("OFFSET", "Only events after this offset.", min=0)]
KeepCount = Annotated[int | None, option("N", "Keep only the newest N.", min=0)]
Since = Annotated[datetime | None, option("MOMENT", "Only events since 2026-01-31T08:00.", parser=settings.moment)]


@command(streams, "list")
def list_streams(kit: EventKit) -> Result:
    """List all streams with their statistics."""
    rows = [
        {"stream": name, **plain(statistics), "lag": max((one.lag for one in statistics.consumers), default=None)}
        for name, statistics in kit.overview().streams.items()
    ]
    return listing(rows, ("stream", "events", "head", "consumers", "lag"), "there are no streams")


@command(streams)
def publish(
    kit: EventKit,
    stream: Stream,
    payload: Payload = None,
    file: File = None,
    key: Annotated[str | None, option("KEY", "Key of the event.")] = None,
    dedup: Annotated[str | None, option("ID", "Skip the event if the stream has this id.")] = None,
    header: Headers = None,
) -> Result:
    """Publish an event, or one for each line of a file.

    A file is committed in batches of 2,000 lines. An invalid line stops the command, which reports its
    number; the lines before it are published.
    """
    handle, extra = kit.stream(stream), settings.headers(header)
    if file is not None and dedup is not None:
        raise Refused("--dedup does not work with --file: all events would have the same id")

    def send(value: Any) -> Result:
        offset = handle.publish(value, key=key, headers=extra, dedup=dedup)
        return answer(f"offset {offset}", {"stream": stream, "offset": offset})

    def send_many(values: list[Any]) -> None:
        bare = key is None and extra is None
        handle.publish_many(values if bare else [NewEvent(value, key, extra) for value in values])

    return one_or_lines(payload, file, "events published", send, send_many)


@command(streams)
def read(kit: EventKit, stream: Stream, after: After = None, since: Since = None, limit: Limit = 100) -> Result:
    """Print the first events of a stream, or those after an offset or time."""
    handle = kit.stream(stream)
    begin = (after or 0) if since is None else handle.offset_at(since)
    events = handle.read(begin, limit, on_truncated="skip")
    return listing(events, ("offset", "created_at", "key", "payload"), f"no events in stream {stream}")


@command(streams)
def tail(
    kit: EventKit,
    stream: Stream,
    last: Annotated[int, option("N", "Begin with the newest N.", "--last", "-n", min=0)] = 10,
    after: Annotated[int | None, option("OFFSET", "Begin after this offset.", min=0)] = None,
    since: Since = None,
    consumer: Annotated[str | None, option("NAME", "Continue as this consumer, and save its offset.")] = None,
) -> Followed:
    """Print events as they arrive, until interrupted."""
    handle = kit.stream(stream)
    start: Any = since if since is not None else after
    if start is None:
        start = "committed" if consumer is not None else _before_last(handle, last)
    return Followed(handle.subscribe(consumer, start=start, on_truncated="skip"), ("offset", "key"))


@command(streams)
def consumers(kit: EventKit, stream: Stream) -> Result:
    """List the consumers of a stream, with offset and lag."""
    rows = [{"stream": stream, **plain(one)} for one in kit.stream(stream).consumers()]
    return listing(rows, ("stream", "name", "offset", "lag", "updated_at"), f"stream {stream} has no consumers")


@command(streams)
def seek(
    kit: EventKit,
    stream: Stream,
    consumer: Annotated[str, argument("CONSUMER", "The name of the consumer.")],
    to: Annotated[str, argument("TO", "An offset, earliest, latest, or a time.")],
) -> Result:
    """Move a consumer to another offset.

    It continues after this offset when it starts next.
    """
    handle = audited(kit, "stream.seek", stream=stream, consumer=consumer, to=to).stream(stream)
    if to.isdecimal():
        offset = int(to)
    elif to == "earliest":
        offset = 0
    else:
        offset = handle.head() if to == "latest" else handle.offset_at(settings.moment(to))
    handle.seek(consumer, offset)
    return answer(f"{consumer} continues after offset {offset}", {"consumer": consumer, "offset": offset})


@command(streams)
def forget(
    kit: EventKit, stream: Stream, consumer: Annotated[str, argument("CONSUMER", "The name of the consumer.")]
) -> Result:
    """Remove a consumer with its offset, so that it no longer keeps events."""
    handle = audited(kit, "stream.forget", stream=stream, consumer=consumer).stream(stream)
    if not handle.remove_consumer(consumer):
        raise Failed(f"stream {stream!r} has no consumer {consumer!r}: see eventkit stream consumers {stream}")
    return answer(f"removed {consumer}", {"consumer": consumer})


@command(streams)
def prune(
    kit: EventKit,
    stream: Stream,
    older_than: OlderThan = None,
    keep_count: KeepCount = None,
    unconsumed: Annotated[bool, flag("Also drop events not consumed yet.", "--unconsumed")] = False,
) -> Result:
    """Drop the oldest events of a stream."""
    handle = audited(kit, "stream.prune", stream=stream, older_than=older_than, keep_count=keep_count).stream(stream)
    number = handle.prune(older_than=older_than, keep_count=keep_count, keep_unconsumed=not unconsumed)
    return answer(f"{number:,} events dropped", {"stream": stream, "dropped": number})


def _before_last(handle: Any, last: int) -> int | str:
    """Return the offset before the newest *last* events."""
    if not last:
        return "latest"
    # All streams share the offsets, so a range may hold fewer events of this stream: the loop widens it.
    head, step = handle.head(), max(last, 100)
    while True:
        after = begin = max(0, head - step)
        newest: deque[int] = deque(maxlen=last + 1)
        while events := handle.read(after, 1000, on_truncated="skip"):
            newest.extend(event.offset for event in events)
            after = newest[-1]
        if len(newest) > last:
            return newest[0]
        if begin == 0:
            return 0
        step *= 4


@command(channels, "list")
def list_channels(kit: EventKit) -> Result:
    """List all channels with notifications or settings."""
    return listing(kit.channels(), ("name", "head", "notifications"), "there are no channels")


@command(channels, "prune")
def prune_channels(
    kit: EventKit,
    channel: Annotated[str | None, argument("CHANNEL", "Only this channel.")] = None,
    older_than: OlderThan = None,
    keep_count: KeepCount = None,
) -> Result:
    """Drop the oldest notifications of a channel, or of each channel."""
    about = {"channel": channel or "all", "older_than": older_than, "keep_count": keep_count}
    pruning: Any = audited(kit, "channel.prune", **about)
    prune = pruning.prune_channels if channel is None else pruning.channel(channel).prune
    number = prune(older_than=older_than, keep_count=keep_count)
    return answer(f"{number:,} notifications dropped", {"channel": channel, "dropped": number})


@command(channels)
def notify(
    kit: EventKit,
    channel: Annotated[str, argument("CHANNEL", "The channel.")],
    payload: Annotated[str, argument("PAYLOAD", "JSON.")] = "null",
    header: Headers = None,
) -> Result:
    """Send a notification to all listeners."""
    id = kit.channel(channel).notify(settings.json_value(payload), headers=settings.headers(header))
    return answer(f"notification {id}", {"channel": channel, "id": id})


@command(channels)
def listen(kit: EventKit, channels: Annotated[list[str], argument("CHANNEL", "One or more.")]) -> Followed:
    """Print notifications as they arrive, until interrupted."""
    return Followed(kit.listen(*channels), ("id", "channel"))

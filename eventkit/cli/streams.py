"""``eventkit stream`` and ``channel``: events and their consumers, and notifications."""

from collections import deque
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from . import settings
from .data import File, Payload, one_or_lines
from .output import Followed, Refused, Result, answer, listing, plain
from .settings import Headers, Limit, OlderThan, Topic, argument, audited, command, flag, group, option

if TYPE_CHECKING:
    from eventkit import EventKit

streams = group("stream", "Streams: publish, read, follow, consumers.")
channels = group("channel", "Channels: send and receive notifications.")

After = Annotated[int | None, option("OFFSET", "Only events after this offset.", min=0)]
Since = Annotated[datetime | None, option("MOMENT", "Only events since 2026-01-31T08:00.", parser=settings.moment)]


@command(streams, "list")
def list_streams(kit: "EventKit") -> Result:
    """List all topics with their statistics."""
    rows = [
        {"topic": name, **plain(statistics), "lag": max((one.lag for one in statistics.consumers), default=None)}
        for name, statistics in kit.overview().topics.items()
    ]
    return listing(rows, ("topic", "events", "head", "consumers", "lag"), "there are no topics")


@command(streams)
def publish(
    kit: "EventKit",
    topic: Topic,
    payload: Payload = None,
    file: File = None,
    key: Annotated[str | None, option("KEY", "Key of the event.")] = None,
    dedup: Annotated[str | None, option("ID", "Skip the event if the topic has this id.")] = None,
    header: Headers = None,
) -> Result:
    """Publish an event, or one for each line of a file.

    A file is committed in batches of 2,000 lines. An invalid line stops the command, which reports its
    number; the lines before it are published.
    """
    from eventkit import NewEvent

    stream, extra = kit.stream(topic), settings.headers(header)
    if file is not None and dedup is not None:
        raise Refused("--dedup does not work with --file: all events would have the same id")

    def send(value: Any) -> Result:
        offset = stream.publish(value, key=key, headers=extra, dedup=dedup)
        return answer(f"offset {offset}", {"topic": topic, "offset": offset})

    def send_many(values: list[Any]) -> None:
        bare = key is None and extra is None
        stream.publish_many(values if bare else [NewEvent(value, key, extra) for value in values])

    return one_or_lines(payload, file, "events published", send, send_many)


@command(streams)
def read(kit: "EventKit", topic: Topic, after: After = None, since: Since = None, limit: Limit = 100) -> Result:
    """Print the first events of a topic, or those after an offset or time."""
    stream = kit.stream(topic)
    begin = (after or 0) if since is None else stream.offset_at(since)
    events = stream.read(begin, limit, on_truncated="skip")
    return listing(events, ("offset", "created_at", "key", "payload"), f"no events in topic {topic}")


@command(streams)
def tail(
    kit: "EventKit",
    topic: Topic,
    last: Annotated[int, option("N", "Begin with the newest N.", "--last", "-n", min=0)] = 10,
    after: Annotated[int | None, option("OFFSET", "Begin after this offset.", min=0)] = None,
    since: Since = None,
    consumer: Annotated[str | None, option("NAME", "Continue as this consumer, and save its offset.")] = None,
) -> Followed:
    """Print events as they arrive, until interrupted."""
    stream = kit.stream(topic)
    start: Any = since if since is not None else after
    if start is None:
        start = "committed" if consumer is not None else _before_last(stream, last)
    return Followed(stream.subscribe(consumer, start=start, on_truncated="skip"), ("offset", "key"))


@command(streams)
def consumers(kit: "EventKit", topic: Topic) -> Result:
    """List the consumers of a topic, with offset and lag."""
    rows = [{"topic": topic, **plain(one)} for one in kit.stream(topic).consumers()]
    return listing(rows, ("topic", "name", "offset", "lag", "updated_at"), f"topic {topic} has no consumers")


@command(streams)
def seek(
    kit: "EventKit",
    topic: Topic,
    consumer: Annotated[str, argument("CONSUMER", "The name of the consumer.")],
    to: Annotated[str, argument("TO", "An offset, earliest, latest, or a time.")],
) -> Result:
    """Move a consumer to another offset.

    It continues after this offset when it starts next.
    """
    stream = audited(kit, "stream.seek", topic=topic, consumer=consumer, to=to).stream(topic)
    if to.isdecimal():
        offset = int(to)
    elif to == "earliest":
        offset = 0
    else:
        offset = stream.head() if to == "latest" else stream.offset_at(settings.moment(to))
    stream.seek(consumer, offset)
    return answer(f"{consumer} continues after offset {offset}", {"consumer": consumer, "offset": offset})


@command(streams)
def prune(
    kit: "EventKit",
    topic: Topic,
    older_than: OlderThan = None,
    keep_count: Annotated[int | None, option("N", "Keep only the newest N.", min=0)] = None,
    unconsumed: Annotated[bool, flag("Also drop events not consumed yet.", "--unconsumed")] = False,
) -> Result:
    """Drop the oldest events of a topic."""
    stream = audited(kit, "stream.prune", topic=topic, older_than=older_than, keep_count=keep_count).stream(topic)
    number = stream.prune(older_than=older_than, keep_count=keep_count, keep_unconsumed=not unconsumed)
    return answer(f"{number:,} events dropped", {"topic": topic, "dropped": number})


def _before_last(stream: Any, last: int) -> int | str:
    """Return the offset before the newest *last* events."""
    if not last:
        return "latest"
    # All topics share the offsets, so a range may hold fewer events of this topic: the loop widens it.
    head, step = stream.head(), max(last, 100)
    while True:
        after = begin = max(0, head - step)
        newest: deque[int] = deque(maxlen=last + 1)
        while events := stream.read(after, 1000, on_truncated="skip"):
            newest.extend(event.offset for event in events)
            after = newest[-1]
        if len(newest) > last:
            return newest[0]
        if begin == 0:
            return 0
        step *= 4


@command(channels)
def notify(
    kit: "EventKit",
    channel: Annotated[str, argument("CHANNEL", "The channel.")],
    payload: Annotated[str, argument("PAYLOAD", "JSON.")] = "null",
    header: Headers = None,
) -> Result:
    """Send a notification to all listeners."""
    id = kit.channel(channel).notify(settings.json_value(payload), headers=settings.headers(header))
    return answer(f"notification {id}", {"channel": channel, "id": id})


@command(channels)
def listen(kit: "EventKit", channels: Annotated[list[str], argument("CHANNEL", "One or more.")]) -> Followed:
    """Print notifications as they arrive, until interrupted."""
    return Followed(kit.listen(*channels), ("id", "channel"))

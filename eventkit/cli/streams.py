"""``eventkit stream``: topics, their events and their consumers."""

import time
from typing import Annotated, Any

import typer

from . import console
from .console import Refused
from .database import audited, opened
from .files import feed
from .settings import (
    File,
    Headers,
    Json,
    Limit,
    MaxKeep,
    OlderThan,
    Payload,
    Since,
    Topic,
    Url,
    headers,
    json_value,
    moment,
)
from .tasks import done

stream_app = typer.Typer(help="Streams: publish, read, follow, consumers.", no_args_is_help=True, rich_markup_mode=None)

_COLUMNS = ("offset", "created_at", "key", "payload")
_CONSUMERS = ("topic", "name", "offset", "lag", "updated_at")


@stream_app.command("list")
def list_(url: Url = None, json: Json = False) -> None:
    """List all topics with their statistics."""
    with opened(url) as kit:
        topics = kit.overview().topics.items()
        rows = [
            {"topic": name, **console.plain(numbers), "lag": max((c.lag for c in numbers.consumers), default=None)}
            for name, numbers in topics
        ]
        if not json:
            for row in rows:
                row["consumers"] = len(row["consumers"])
        console.listing(rows, ("topic", "events", "head", "consumers", "lag"), json, "there are no topics")


@stream_app.command()
def publish(
    topic: Topic,
    payload: Payload = None,
    file: File = None,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="Key of the event.")] = None,
    dedup: Annotated[
        str | None, typer.Option("--dedup", metavar="ID", help="Skip the event if the topic has this id.")
    ] = None,
    header: Headers = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Publish an event, or one for each line of a file.

    A file is committed in batches of 2,000 lines. An invalid line stops the command, which reports its
    number; the lines before it are published.
    """
    from eventkit import NewEvent

    extra = headers(header)
    if (payload is None) == (file is None):
        raise Refused("pass either PAYLOAD or --file FILE (- for stdin)")
    with opened(url) as kit:
        stream = kit.stream(topic)
        if file is None:
            offset = stream.publish(json_value(payload or ""), key=key, headers=extra, dedup=dedup)
            console.answer(f"offset {offset}", {"topic": topic, "offset": offset}, json)
            return
        if dedup is not None:
            raise Refused("--dedup does not work with --file: all events would have the same id")

        def events(values: list[Any]) -> list[Any]:
            return values if key is None and extra is None else [NewEvent(value, key, extra) for value in values]

        began = time.monotonic()
        number = feed(file, f"publishing to {topic}", lambda values: stream.publish_many(events(values)))
        done(number, "events published", time.monotonic() - began, json)


@stream_app.command()
def read(
    topic: Topic,
    after: Annotated[
        int | None, typer.Option("--after", metavar="OFFSET", min=0, help="Only events after this offset.")
    ] = None,
    since: Since = None,
    limit: Limit = 100,
    url: Url = None,
    json: Json = False,
) -> None:
    """Print the first events of a topic, or those after an offset or time."""
    with opened(url) as kit:
        stream = kit.stream(topic)
        begin = (after or 0) if since is None else stream.offset_at(since)
        events = stream.read(begin, limit, on_truncated="skip")
        if json:
            console.document(events)
            return
        rows = [{**console.plain(event), "payload": console.payload(event.payload)} for event in events]
        console.listing(rows, _COLUMNS, False, f"no events in topic {topic}")


@stream_app.command()
def tail(
    topic: Topic,
    last: Annotated[int, typer.Option("--last", "-n", metavar="N", min=0, help="Begin with the newest N.")] = 10,
    after: Annotated[
        int | None, typer.Option("--after", metavar="OFFSET", min=0, help="Begin after this offset.")
    ] = None,
    since: Since = None,
    consumer: Annotated[
        str | None,
        typer.Option("--consumer", metavar="NAME", help="Continue as this consumer, and save its offset."),
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Print events as they arrive, until interrupted."""
    with opened(url) as kit:
        stream = kit.stream(topic)
        start: Any = "committed"
        if since is not None or after is not None:
            start = since if since is not None else after
        elif consumer is None:
            start = _before_last(stream, last)
        try:
            with stream.subscribe(consumer, start=start, on_truncated="skip") as events:
                for event in events:
                    followed(event, (str(event.offset), event.key), json)
        except KeyboardInterrupt:
            console.interrupted()


@stream_app.command()
def consumers(topic: Topic, url: Url = None, json: Json = False) -> None:
    """List the consumers of a topic, with offset and lag."""
    with opened(url) as kit:
        rows = [{"topic": topic, **console.plain(one)} for one in kit.stream(topic).consumers()]
        console.listing(rows, _CONSUMERS, json, f"topic {topic} has no consumers")


@stream_app.command()
def seek(
    topic: Topic,
    consumer: Annotated[str, typer.Argument(metavar="CONSUMER", help="The name of the consumer.", show_default=False)],
    to: Annotated[
        str, typer.Argument(metavar="TO", help="An offset, earliest, latest, or a time.", show_default=False)
    ],
    url: Url = None,
    json: Json = False,
) -> None:
    """Move a consumer to another offset.

    It continues after this offset when it starts next.
    """
    with audited(url, "stream.seek", topic=topic, consumer=consumer, to=to) as kit:
        stream = kit.stream(topic)
        if to.isdecimal():
            offset = int(to)
        elif to == "earliest":
            offset = 0
        else:
            offset = stream.head() if to == "latest" else stream.offset_at(moment(to))
        stream.seek(consumer, offset)
        console.answer(f"{consumer} continues after offset {offset}", {"consumer": consumer, "offset": offset}, json)


@stream_app.command()
def prune(
    topic: Topic,
    older_than: OlderThan = None,
    max_keep: MaxKeep = None,
    unconsumed: Annotated[bool, typer.Option("--unconsumed", help="Also drop events not consumed yet.")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Drop the oldest events of a topic."""
    with audited(url, "stream.prune", topic=topic, older_than=older_than, max_keep=max_keep) as kit:
        number = kit.stream(topic).prune(older_than=older_than, max_keep=max_keep, keep_unconsumed=not unconsumed)
        console.answer(f"{number:,} events dropped", {"topic": topic, "dropped": number}, json)


def followed(record: Any, heads: tuple[str | None, ...], json: bool) -> None:
    """Print an event or notification: as JSON, or a line of text."""
    if json:
        console.line(record)
    else:
        console.received(record.created_at, heads, record.payload)


def _before_last(stream: Any, last: int) -> int | str:
    """Return the offset before the newest *last* events."""
    if not last:
        return "latest"
    # All topics share the offsets, so a range may hold fewer events of this topic: the loop widens it.
    head, step = stream.head(), max(last, 100)
    while True:
        begin = max(0, head - step)
        events = stream.read(begin, last + 1, on_truncated="skip")
        newest: list[Any] = []
        while events:
            newest = [*newest, *events][-last - 1 :]
            events = stream.read(events[-1].offset, 1000, on_truncated="skip")
        if len(newest) > last:
            return int(newest[0].offset)
        if begin == 0:
            return 0
        step *= 4

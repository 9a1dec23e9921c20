"""``eventkit stream``: topics, their events and their consumers."""

import time
from typing import Annotated, Any

import typer

from . import show
from .lines import feed
from .messages import done
from .opening import opened
from .options import File, Headers, Json, Limit, MaxKeep, OlderThan, Payload, Since, Topic, Url
from .refusals import Refused
from .telling import told
from .values import headers, json_value, moment

app = typer.Typer(help="Streams: publish, read, follow, consumers.", no_args_is_help=True, rich_markup_mode=None)

_COLUMNS = ("offset", "created_at", "key", "payload")
_CONSUMERS = ("topic", "name", "offset", "lag", "updated_at")


@app.command("list")
def list_(url: Url = None, json: Json = False) -> None:
    """All topics, in numbers."""
    with opened(url) as kit:
        topics = kit.overview().topics.items()
        rows = [
            {"topic": name, **show.plain(numbers), "lag": max((c.lag for c in numbers.consumers), default=None)}
            for name, numbers in topics
        ]
        if not json:
            for row in rows:
                row["consumers"] = len(row["consumers"])
        show.listing(rows, ("topic", "events", "head", "consumers", "lag"), json, "there are no topics")


@app.command()
def publish(
    topic: Topic,
    payload: Payload = None,
    file: File = None,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="What it is about.")] = None,
    dedup: Annotated[
        str | None, typer.Option("--dedup", metavar="ID", help="Write nothing if the topic has that id.")
    ] = None,
    header: Headers = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Append an event, or one for each line of a file.

    A file goes in by batches of 2,000 lines, each of which is one transaction. A line that is no
    JSON ends it, with its number; those before it are in.
    """
    from eventkit import NewEvent

    extra = headers(header)
    if (payload is None) == (file is None):
        raise Refused("say what to publish: one PAYLOAD, or --file FILE (- for stdin)")
    with opened(url) as kit:
        stream = kit.stream(topic)
        if file is None:
            offset = stream.publish(json_value(payload or ""), key=key, headers=extra, dedup=dedup)
            show.answer(f"offset {offset}", {"topic": topic, "offset": offset}, json)
            return
        if dedup is not None:
            raise Refused("--dedup is for a single event: a file's would all have the same")

        def events(values: list[Any]) -> list[Any]:
            return values if key is None and extra is None else [NewEvent(value, key, extra) for value in values]

        began = time.monotonic()
        number = feed(file, f"publishing to {topic}", lambda values: stream.publish_many(events(values)))
        done(number, "events published", time.monotonic() - began, json)


@app.command()
def read(
    topic: Topic,
    after: Annotated[
        int | None, typer.Option("--after", metavar="OFFSET", min=0, help="What comes after that offset.")
    ] = None,
    since: Since = None,
    limit: Limit = 100,
    url: Url = None,
    json: Json = False,
) -> None:
    """The first events of a topic, or those after a place in it."""
    with opened(url) as kit:
        stream = kit.stream(topic)
        begin = (after or 0) if since is None else stream.offset_at(since)
        events = stream.read(begin, limit, on_truncated="skip")
        if json:
            show.document(events)
            return
        rows = [{**show.plain(event), "payload": show.payload(event.payload)} for event in events]
        show.listing(rows, _COLUMNS, False, f"topic {topic} has no events there")


@app.command()
def tail(
    topic: Topic,
    last: Annotated[int, typer.Option("--last", "-n", metavar="N", min=0, help="Begin with the newest N.")] = 10,
    after: Annotated[
        int | None, typer.Option("--after", metavar="OFFSET", min=0, help="Begin after that offset.")
    ] = None,
    since: Since = None,
    consumer: Annotated[
        str | None,
        typer.Option("--consumer", metavar="NAME", help="Go on where that one is, and save how far you got."),
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Print events as they come, until interrupted."""
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
            show.interrupted()


@app.command()
def consumers(topic: Topic, url: Url = None, json: Json = False) -> None:
    """Who reads a topic, and how far they are."""
    with opened(url) as kit:
        rows = [{"topic": topic, **show.plain(one)} for one in kit.stream(topic).consumers()]
        show.listing(rows, _CONSUMERS, json, f"topic {topic} has no consumers")


@app.command()
def seek(
    topic: Topic,
    consumer: Annotated[str, typer.Argument(metavar="CONSUMER", help="Who.", show_default=False)],
    to: Annotated[
        str, typer.Argument(metavar="TO", help="An offset, earliest, latest, or a moment.", show_default=False)
    ],
    url: Url = None,
    json: Json = False,
) -> None:
    """Move a consumer anywhere.

    It goes on after that offset when it starts next.
    """
    with told(url, "stream.seek", topic=topic, consumer=consumer, to=to) as kit:
        stream = kit.stream(topic)
        if to.isdecimal():
            offset = int(to)
        elif to == "earliest":
            offset = 0
        else:
            offset = stream.head() if to == "latest" else stream.offset_at(moment(to))
        stream.seek(consumer, offset)
        show.answer(f"{consumer} goes on after offset {offset}", {"consumer": consumer, "offset": offset}, json)


@app.command()
def prune(
    topic: Topic,
    older_than: OlderThan = None,
    max_keep: MaxKeep = None,
    unconsumed: Annotated[bool, typer.Option("--unconsumed", help="Even what a consumer has still to read.")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Drop the oldest events of a topic."""
    with told(url, "stream.prune", topic=topic, older_than=older_than, max_keep=max_keep) as kit:
        number = kit.stream(topic).prune(older_than=older_than, max_keep=max_keep, keep_unconsumed=not unconsumed)
        show.answer(f"{number:,} events dropped", {"topic": topic, "dropped": number}, json)


def followed(record: Any, heads: tuple[str | None, ...], json: bool) -> None:
    """One of what is followed, on a line: in colours where there is a terminal."""
    if json:
        show.line(record)
    else:
        show.heard(record.created_at, heads, record.payload)


def _before_last(stream: Any, last: int) -> int | str:
    """The offset after which the newest *last* events lie."""
    if not last:
        return "latest"
    # Offsets are shared by all topics, so as many numbers may hold fewer events: the step back is doubled.
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

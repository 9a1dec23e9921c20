"""``eventkit archive`` and ``eventkit replay``: streams to files of Parquet, and back."""

import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from . import settings, show
from .messages import done
from .opening import connected
from .options import Json, OlderThan, Topic, Url
from .progress import progress_of
from .refusals import Failed, Refused
from .values import duration, moment

if TYPE_CHECKING:
    from eventkit.lake import Archived

_ARCHIVED = ("topic", "events", "files", "compacted", "pruned", "covered", "location")
_ADOPTED = ("topic", "before", "after", "files", "location")
_CHECKED = ("topic", "files", "events", "covered", "location")


def archive(
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="Which; all that have an archive, if none is named."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="FOLDER", help="Where to, the first time: a folder, or as in s3://bucket/lake."),
    ] = None,
    format: Annotated[
        Literal["parquet", "delta", "iceberg"] | None,
        typer.Option(
            "--format", help="Have a table of Delta Lake or Iceberg there as well, from now on.", show_default=False
        ),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Then drop what is archived from the database, and nothing else.")
    ] = False,
    older_than: OlderThan = None,
    unconsumed: Annotated[
        bool, typer.Option("--unconsumed", help="Drop even what a consumer has still to read.")
    ] = False,
    skip_pruned: Annotated[
        bool, typer.Option("--skip-pruned", help="Do without events that somebody has pruned before.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until interrupted.")] = False,
    every: Annotated[
        float | None,
        typer.Option("--every", parser=duration, metavar="TIME", help="With --follow: how often; 1m if not said."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Read all files instead, and see that they are whole.")
    ] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Write what streams have to files of Parquet, each event once.

    The same again goes on where the last one ended, or was killed. Files are by topic and day; small
    ones are made into large ones.
    """
    _installed()
    if (older_than is not None or unconsumed) and not prune:
        raise Refused("--older-than and --unconsumed are about what to drop: say --prune as well")
    named = topics or _archived(url)
    address = settings.url(url)
    if check:
        _check(address, named, json)
        return
    from eventkit.lake import archive

    def once() -> "list[Archived]":
        came = []
        for topic in named:
            with progress_of(f"archiving {topic}", "events") as tell:
                came.append(
                    archive(
                        address,
                        topic,
                        to=to,
                        format=format,
                        prune=prune,
                        older_than=older_than,
                        keep_unconsumed=not unconsumed,
                        on_truncated="skip" if skip_pruned else "raise",
                        progress=tell,
                    )
                )
        return came

    if not follow:
        show.listing(once(), _ARCHIVED, json, "nothing")
        return
    try:
        while True:
            for one in once():
                if json:
                    show.line(one)
                elif one.events or one.pruned:
                    print(f"{one.topic}: {one.events:,} events archived, {one.pruned:,} dropped", flush=True)
            time.sleep(60 if every is None else every)
    except KeyboardInterrupt:
        show.interrupted()


def adopt(
    checkpoints: Annotated[
        list[str] | None,
        typer.Option("--checkpoint", metavar="FOLDER", help="The checkpointLocation of a Spark query that is stopped."),
    ] = None,
    archives: Annotated[
        list[str] | None, typer.Option("--archive", metavar="TOPIC", help="A topic that has an archive.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="FOLDER", help="The archive's folder, if the database is older than the archive."),
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Accept a restored database for checkpoints and archives that go further.

    A query goes on behind the last event that both have. Of an archive, files with events that the
    database has lost are moved to its folder _lost, and archiving goes on from the database.
    """
    _installed()
    if not checkpoints and not archives:
        raise Refused("name what is to accept the database: --checkpoint FOLDER or --archive TOPIC")
    from eventkit.lake import adopt_archive, adopt_checkpoint

    address = settings.url(url)
    adopted = [one for folder in checkpoints or () for one in adopt_checkpoint(address, folder)]
    adopted += [adopt_archive(address, topic, to=to) for topic in archives or ()]
    show.listing(adopted, _ADOPTED, json, "nothing: the database has not gone back")


def replay(
    topic: Topic,
    to_topic: Annotated[str | None, typer.Option("--to-topic", metavar="TOPIC", help="Publish to that one.")] = None,
    to_queue: Annotated[str | None, typer.Option("--to-queue", metavar="QUEUE", help="Enqueue there.")] = None,
    after: Annotated[int, typer.Option("--after", metavar="OFFSET", min=0, help="What comes after that offset.")] = 0,
    last: Annotated[
        int | None, typer.Option("--last", metavar="OFFSET", min=0, help="Up to that offset.", show_default=False)
    ] = None,
    since: Annotated[
        Any, typer.Option("--since", parser=moment, metavar="MOMENT", help="Created from 2026-01-31T08:00 on.")
    ] = None,
    before: Annotated[
        Any, typer.Option("--before", parser=moment, metavar="MOMENT", help="Created before 2026-02-01T08:00.")
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option("--key", metavar="KEY", help="Of that key; may be said several times.")
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", metavar="N", help="No more than N events a second.")] = None,
    dedup: Annotated[
        bool, typer.Option("--dedup", help="Leave out what another replay has written there already.")
    ] = False,
    id: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="ID", help="A name: a replay of that name ends once, however often it is started."
        ),
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Publish or enqueue again what is archived.

    The same command goes on where one before was interrupted, and writes nothing twice.
    """
    _installed()
    if (to_topic is None) == (to_queue is None):
        raise Refused("say where to: --to-topic TOPIC or --to-queue QUEUE")
    from eventkit.lake import replay

    began = time.monotonic()
    with progress_of(f"replaying {topic}", "events") as tell:
        came = replay(
            settings.url(url),
            topic,
            to_topic=to_topic,
            to_queue=to_queue,
            after=after,
            last=last,
            since=since,
            before=before,
            keys=key or None,
            rate=rate,
            dedup=dedup,
            id=id,
            progress=tell,
        )
    if came.ended_before:
        show.note(f"the replay {id} had come to its end before: give another --id to replay again")
    if came.resumed_after is not None:
        show.note(f"it went on after offset {came.resumed_after}, where it had been interrupted")
    done(came.events, "events replayed", time.monotonic() - began, json)


def _check(address: str, topics: list[str], json: bool) -> None:
    from eventkit.lake import check

    found = []
    for topic in topics:
        with progress_of(f"reading {topic}", "events") as tell:
            found.append(check(address, topic, progress=tell))
    show.listing(found, _CHECKED, json, "nothing")


def _archived(url: str | None) -> list[str]:
    """All topics that have an archive."""
    from eventkit.operations.lake import ListLakes

    with connected(url) as connection:
        topics = [lake.topic for lake in connection.execute(ListLakes())]
    if not topics:
        raise Refused("no topic has an archive yet: name one, and say --to FOLDER")
    return topics


def _installed() -> None:
    try:
        import adbc_driver_manager  # noqa: F401
        import pyarrow  # noqa: F401
    except ModuleNotFoundError as error:
        raise Failed(f"archives need {error.name}: pip install 'eventkit-db[archive]'") from None

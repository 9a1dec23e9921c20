"""``eventkit export``, ``import``, ``backup``, ``copy``, ``archive``, ``adopt`` and ``replay``."""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from . import console, settings
from .console import Advance, Failed, Refused, progress, progress_of
from .database import backend_function, connected
from .files import lines, opened
from .settings import Json, OlderThan, Topic, Url, duration, moment
from .tasks import done

if TYPE_CHECKING:
    from eventkit.archive import Archived


def export(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A new file, or - for stdout.", show_default=False)],
    url: Url = None,
    json: Json = False,
) -> None:
    """Export all data to a file, one row per line.

    eventkit import reads it into any supported database. No process may write to the database meanwhile.
    """
    from eventkit.transfer import read

    with progress("exporting", None, "rows") as advance:
        counts = _written(file, _counted(read(settings.url(url)), advance))
    if file == "-":
        return
    console.answer(f"{counts:,} rows in {file}", {"file": file, "rows": counts}, json)


def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file of export; - for stdin.", show_default=False)],
    url: Url = None,
    json: Json = False,
) -> None:
    """Import a file of export.

    The database must have no tables of eventkit, or empty ones.
    """
    from eventkit.transfer import write

    with opened(file) as (stream, total), progress("importing", total, "rows") as advance:
        read = rows = 0

        def counted() -> Iterator[bytes]:
            nonlocal read, rows
            for rows, line in enumerate(lines(stream)):
                read += len(line)
                if rows % 500 == 0:
                    advance(read, rows)
                yield line

        counts = write(settings.url(url), counted())
    _counts(counts, json)


def backup(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A new file.", show_default=False)],
    url: Url = None,
    json: Json = False,
) -> None:
    """Copy an SQLite database while other processes use it.

    Use pg_dump for Postgres.
    """
    address = settings.url(url)
    if address.startswith("postgres"):
        raise Failed("backup copies SQLite files only: use pg_dump --schema=eventkit, or your provider's backups")
    with progress("copying", None, "pages") as advance, _refusing_existing():
        backend_function(address, "backup")(address, file, lambda done, total: advance(done, done))
    console.answer(f"copied to {file}: {Path(file).stat().st_size:,} bytes", {"file": file}, json)


def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="The URL to copy from.", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="TO", help="The URL to copy to.", show_default=False)],
    json: Json = False,
) -> None:
    """Copy all data to another database, of the same kind or another.

    Both are compared at the end. No process may write to either meanwhile. Run it again to resume
    after an interruption.
    """
    import eventkit

    with progress("copying", None, "rows") as advance:
        counts = eventkit.copy(source, target, progress=lambda _table, rows: advance(rows, rows))
    _counts(counts, json)


def _counted(found: Iterable[bytes], advance: Advance) -> Iterator[bytes]:
    for number, line in enumerate(found):
        if number % 500 == 0:
            advance(number, number)
        yield line


def _written(file: str, found: Iterator[bytes]) -> int:
    """Write the lines; return the number of rows, which excludes the first and the last line."""
    if file == "-":
        return _write(sys.stdout.buffer, found)
    from eventkit.new_file import new_file

    with _refusing_existing(), new_file(file, 0o600) as part, open(part, "wb") as stream:
        return _write(stream, found)


@contextmanager
def _refusing_existing() -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise Failed(str(error)) from None


def _write(stream: IO[bytes], found: Iterator[bytes]) -> int:
    written = 0
    for line in found:
        stream.write(line)
        written += 1
    return written - 2


def _counts(counts: dict[str, int], json: bool) -> None:
    rows = [{"table": table, "rows": number} for table, number in counts.items()]
    console.listing(rows, ("table", "rows"), json, "nothing")


_ARCHIVED = ("topic", "events", "files", "compacted", "pruned", "covered", "location")
_ADOPTED = ("topic", "before", "after", "files", "location")
_CHECKED = ("topic", "files", "events", "covered", "location")


def archive(
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", help="Topics to archive; by default all that have an archive."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="FOLDER", help="Required the first time: a folder or, for example, s3://bucket/lake."
        ),
    ] = None,
    format: Annotated[
        Literal["parquet", "delta", "iceberg"] | None,
        typer.Option("--format", help="From now on also maintain a Delta Lake or Iceberg table.", show_default=False),
    ] = None,
    prune: Annotated[bool, typer.Option("--prune", help="Then drop archived events from the database.")] = False,
    older_than: OlderThan = None,
    unconsumed: Annotated[
        bool, typer.Option("--unconsumed", help="Also drop events that a consumer has not read yet.")
    ] = False,
    skip_pruned: Annotated[
        bool, typer.Option("--skip-pruned", help="Continue although events were pruned before they were archived.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Repeat until interrupted.")] = False,
    every: Annotated[
        float | None,
        typer.Option("--every", parser=duration, metavar="TIME", help="Interval of --follow (1m)."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Verify all files instead.")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Archive streams to Parquet files, each event once.

    Run it again to continue after the last event, also after a crash. Files are by topic and day;
    small files are merged.
    """
    _installed()
    if (older_than is not None or unconsumed) and not prune:
        raise Refused("--older-than and --unconsumed need --prune")
    named = topics or _archived(url)
    address = settings.url(url)
    if check:
        _check(address, named, json)
        return
    from eventkit.archive import archive

    def once() -> "list[Archived]":
        archived = []
        for topic in named:
            with progress_of(f"archiving {topic}", "events") as advance:
                archived.append(
                    archive(
                        address,
                        topic,
                        to=to,
                        format=format,
                        prune=prune,
                        older_than=older_than,
                        keep_unconsumed=not unconsumed,
                        on_truncated="skip" if skip_pruned else "raise",
                        progress=advance,
                    )
                )
        return archived

    if not follow:
        console.listing(once(), _ARCHIVED, json, "nothing")
        return
    try:
        while True:
            for one in once():
                if json:
                    console.line(one)
                elif one.events or one.pruned:
                    print(f"{one.topic}: {one.events:,} events archived, {one.pruned:,} dropped", flush=True)
            time.sleep(60 if every is None else every)
    except KeyboardInterrupt:
        console.interrupted()


def adopt(
    checkpoints: Annotated[
        list[str] | None,
        typer.Option("--checkpoint", metavar="FOLDER", help="The checkpointLocation of a stopped Spark query."),
    ] = None,
    archives: Annotated[
        list[str] | None, typer.Option("--archive", metavar="TOPIC", help="The topic of an archive.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="FOLDER", help="The archive's folder, if the database does not know it."),
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Adopt a restored database whose checkpoints and archives are ahead of it.

    A query continues after the last event that both have. Archive files with events that the database
    lost are moved to the folder _lost of the archive, and archiving continues from the database.
    """
    _installed()
    if not checkpoints and not archives:
        raise Refused("pass --checkpoint FOLDER or --archive TOPIC")
    from eventkit.archive import adopt_archive, adopt_checkpoint

    address = settings.url(url)
    adopted = [one for folder in checkpoints or () for one in adopt_checkpoint(address, folder)]
    adopted += [adopt_archive(address, topic, to=to) for topic in archives or ()]
    console.listing(adopted, _ADOPTED, json, "nothing to do: the database is not behind")


def replay(
    topic: Topic,
    to_topic: Annotated[str | None, typer.Option("--to-topic", metavar="TOPIC", help="Publish to this topic.")] = None,
    to_queue: Annotated[str | None, typer.Option("--to-queue", metavar="QUEUE", help="Enqueue in this queue.")] = None,
    after: Annotated[int, typer.Option("--after", metavar="OFFSET", min=0, help="Only events after this offset.")] = 0,
    last: Annotated[
        int | None, typer.Option("--last", metavar="OFFSET", min=0, help="Only events up to it.", show_default=False)
    ] = None,
    since: Annotated[
        Any, typer.Option("--since", parser=moment, metavar="MOMENT", help="Created at or after 2026-01-31T08:00.")
    ] = None,
    before: Annotated[
        Any, typer.Option("--before", parser=moment, metavar="MOMENT", help="Created before 2026-02-01T08:00.")
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option("--key", metavar="KEY", help="Only events of this key; repeatable.")
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", metavar="N", help="At most N events per second.")] = None,
    dedup: Annotated[
        bool, typer.Option("--dedup", help="Skip events that another replay already wrote there.")
    ] = False,
    id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Names the replay; a finished replay does not run again."),
    ] = None,
    url: Url = None,
    json: Json = False,
) -> None:
    """Publish or enqueue archived events again.

    Run the same command again to resume after an interruption; it writes no event twice.
    """
    _installed()
    if (to_topic is None) == (to_queue is None):
        raise Refused("pass either --to-topic TOPIC or --to-queue QUEUE")
    from eventkit.archive import replay

    began = time.monotonic()
    with progress_of(f"replaying {topic}", "events") as advance:
        result = replay(
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
            progress=advance,
        )
    if result.ended_before:
        console.note(f"replay {id} has already finished: pass another --id to replay again")
    if result.resumed_after is not None:
        console.note(f"resumed after offset {result.resumed_after}")
    done(result.events, "events replayed", time.monotonic() - began, json)


def _check(address: str, topics: list[str], json: bool) -> None:
    from eventkit.archive import check

    found = []
    for topic in topics:
        with progress_of(f"reading {topic}", "events") as advance:
            found.append(check(address, topic, progress=advance))
    console.listing(found, _CHECKED, json, "nothing")


def _archived(url: str | None) -> list[str]:
    """Return all topics that have an archive."""
    from eventkit.operations.bulk import ListLakes

    with connected(url) as connection:
        topics = [lake.topic for lake in connection.execute(ListLakes())]
    if not topics:
        raise Refused("no topic has an archive yet: pass a TOPIC and --to FOLDER")
    return topics


def _installed() -> None:
    try:
        import adbc_driver_manager  # noqa: F401
        import pyarrow  # noqa: F401
    except ModuleNotFoundError as error:
        raise Failed(f"archives need {error.name}: pip install 'eventkit-db[archive]'") from None

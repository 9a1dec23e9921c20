"""``eventkit export``, ``import``, ``backup``, ``copy``, ``archive``, ``adopt`` and ``replay``; files of JSON lines."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Annotated, Any, Literal, TypedDict, Unpack

import msgspec

import eventkit

from ..new_file import new_file
from . import settings
from .output import Failed, Refused, Result, answer, encoded, listing, note, progress, rate, until_interrupted
from .settings import Json, OlderThan, Stream, argument, command, flag, group, option, period

Payload = Annotated[str | None, argument("PAYLOAD", "JSON, for example '{\"id\": 42}'.")]
File = Annotated[str | None, option("FILE", "A file with one JSON payload per line; - for stdin.", "--file", "-f")]

_BATCH = 2000
"""Lines per batch."""

_BATCH_BYTES = 4_000_000
_LONGEST = 64_000_000
"""The maximum number of bytes of a line."""


def one_or_lines(
    payload: str | None,
    file: str | None,
    done: str,
    send: Callable[[Any], Result],
    send_many: Callable[[list[Any]], object],
) -> Result:
    """Send the payload of a command, or those in its file in batches that are committed one by one.

    Return the result of *send*, or the number of lines and what they are now (*done*).  The error names a line that is
    invalid or refused; the lines before it are committed, those after it are not.
    """
    if (payload is None) == (file is None):
        raise Refused("pass either PAYLOAD or --file FILE (- for stdin)")
    if file is None:
        return send(settings.json_value(payload or ""))
    began, sent, read = time.monotonic(), 0, 0
    decode = msgspec.json.Decoder().decode
    with _opened(file) as (lines, total), progress(file, "lines") as advance:
        for batch in _batches(lines):
            values, error = [], None
            for number, line in batch:
                try:
                    values.append(decode(line))
                except (msgspec.DecodeError, RecursionError) as problem:
                    error = _line_error(number, f"is not JSON ({problem})")
                    break
            try:
                if values:
                    send_many(values)
            except (ValueError, TypeError):
                for value, (number, _) in zip(values, batch, strict=False):
                    try:
                        send_many([value])
                    except (ValueError, TypeError) as problem:
                        raise Failed(_line_error(number, f"is refused ({problem})")) from None
            sent += len(values)
            read += sum(len(line) for _, line in batch)
            advance(read, total, sent)
            if error is not None:
                raise Failed(error)
    return rate(sent, done, began)


def _batches(lines: Iterator[bytes]) -> Iterator[list[tuple[int, bytes]]]:
    """Yield the lines that are not blank with their numbers."""
    batch, size = [], 0
    for number, line in enumerate(lines, 1):
        if not line.isspace():
            batch.append((number, line))
            size += len(line)
        if len(batch) >= _BATCH or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    yield batch


def _line_error(number: int, reason: str) -> str:
    remedy = "fix it" if number == 1 else f"earlier lines were sent: fix it and continue with tail -n +{number}"
    return f"line {number} {reason}; {remedy}"


@contextmanager
def _opened(file: str) -> Iterator[tuple[Iterator[bytes], int | None]]:
    """Open the file, or stdin for ``-``; yield its lines, split at the greatest length, and its size, if known."""
    if file == "-":
        yield _lines(sys.stdin.buffer), None
        return
    try:
        stream = open(file, "rb")  # noqa: SIM115  # an OSError of the body is not one of opening
    except OSError as error:
        raise Refused(f"cannot read {file}: {error.strerror}") from error
    with stream:
        yield _lines(stream), os.fstat(stream.fileno()).st_size or None


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: stream.readline(_LONGEST), b"")


commands = group()


@command(commands)
def export(address: str, file: Annotated[str, argument("FILE", "A new file, or - for stdout.")]) -> Result | None:
    """Export all data to a file, one row per line.

    eventkit import reads it into any supported database. No process may write to the database meanwhile.
    """
    from eventkit.transfer import read

    rows = 0
    with ExitStack() as stack:
        advance = stack.enter_context(progress("exporting", "rows"))
        path = file if file == "-" else stack.enter_context(new_file(file, 0o600))
        stream = sys.stdout.buffer if file == "-" else stack.enter_context(open(path, "wb"))
        for number, line in enumerate(read(address)):
            rows = number - 1  # The first and the last line are no rows.
            advance(number)
            stream.write(line)
    return None if file == "-" else answer(f"{rows:,} rows in {file}", {"file": file, "rows": rows})


@command(commands)
def import_(address: str, file: Annotated[str, argument("FILE", "A file of export; - for stdin.")]) -> Result:
    """Import a file of export.

    The database must have no tables of eventkit, or empty ones.
    """
    from eventkit.transfer import write

    with _opened(file) as (lines, total), progress("importing", "rows") as advance:

        def counted() -> Iterator[bytes]:
            read = 0
            for rows, line in enumerate(lines):
                read += len(line)
                advance(read, total, rows)
                yield line

        return _counts(write(address, counted()))


@command(commands)
def backup(address: str, file: Annotated[str, argument("FILE", "A new file.")]) -> Result:
    """Copy an SQLite database while other processes use it.

    Use pg_dump for Postgres.
    """
    if address.startswith("postgres"):
        raise Failed("backup copies SQLite files only: use pg_dump --schema=eventkit, or your provider's backups")
    with progress("copying", "pages") as advance:
        settings.backend_function(address, "backup")(address, file, advance)
    return answer(f"copied to {file}: {Path(file).stat().st_size:,} bytes", {"file": file})


@command(commands)
def copy(
    source: Annotated[str, argument("FROM", "The URL to copy from.")],
    target: Annotated[str, argument("TO", "The URL to copy to.")],
) -> Result:
    """Copy all data to another database, of the same kind or another.

    Both are compared at the end. No process may write to either meanwhile. Run it again to resume
    after an interruption.
    """
    with progress("copying", "rows") as advance:
        return _counts(eventkit.copy(source, target, progress=lambda _table, rows: advance(rows)))


def _counts(counts: dict[str, int]) -> Result:
    return listing([{"table": table, "rows": number} for table, number in counts.items()], ("table", "rows"), "nothing")


_Table = Literal["parquet", "delta", "iceberg"]


@command(commands)
def archive(
    address: str,
    streams: Annotated[
        list[str] | None, argument("STREAM", "Streams to archive; by default all that have an archive.")
    ] = None,
    to: Annotated[
        str | None, option("FOLDER", "Required the first time: a folder or, for example, s3://bucket/lake.")
    ] = None,
    format: Annotated[_Table | None, option(None, "From now on also maintain a Delta Lake or Iceberg table.")] = None,
    prune: Annotated[bool, flag("Then drop archived events from the database.", "--prune")] = False,
    older_than: OlderThan = None,
    unconsumed: Annotated[bool, flag("Also drop events that a consumer has not read yet.", "--unconsumed")] = False,
    skip_pruned: Annotated[
        bool, flag("Continue although events were pruned before they were archived.", "--skip-pruned")
    ] = False,
    follow: Annotated[bool, flag("Repeat until interrupted.", "--follow", "-f")] = False,
    every: Annotated[float | None, period("Interval of --follow (1m).")] = None,
    check: Annotated[bool, flag("Verify all files instead.", "--check")] = False,
    json: Json = False,
) -> Result | None:
    """Archive streams to Parquet files, each event once.

    Run it again to continue after the last event, also after a crash. Files are by stream and day;
    small files are merged.
    """
    _check_installed()
    if (older_than is not None or unconsumed) and not prune:
        raise Refused("--older-than and --unconsumed need --prune")
    from eventkit import archive as archives

    named = streams or _archived(address)
    if check:
        checked = []
        for stream in named:
            with progress(f"reading {stream}", "events") as advance:
                checked.append(archives.check(address, stream, progress=advance))
        return listing(checked, ("stream", "files", "events", "covered", "location"), "nothing")

    def once() -> Iterator[Any]:
        for stream in named:
            with progress(f"archiving {stream}", "events") as advance:
                yield archives.archive(
                    address,
                    stream,
                    to=to,
                    format=format,
                    prune=prune,
                    older_than=older_than,
                    keep_unconsumed=not unconsumed,
                    on_truncated="skip" if skip_pruned else "raise",
                    progress=advance,
                )

    if not follow:
        columns = ("stream", "events", "files", "compacted", "pruned", "covered", "location")
        return listing(once(), columns, "nothing")
    with until_interrupted():
        while True:
            for one in once():
                if json:
                    print(encoded(one), flush=True)
                elif one.events or one.pruned:
                    print(f"{one.stream}: {one.events:,} events archived, {one.pruned:,} dropped", flush=True)
            time.sleep(60 if every is None else every)
    return None


@command(commands)
def adopt(
    address: str,
    checkpoint: Annotated[
        list[str] | None, option("FOLDER", "The checkpointLocation of a stopped Spark query.")
    ] = None,
    archive: Annotated[list[str] | None, option("STREAM", "The stream of an archive.")] = None,
    to: Annotated[str | None, option("FOLDER", "The archive's folder, if the database does not know it.")] = None,
) -> Result:
    """Adopt a restored database whose checkpoints and archives are ahead of it.

    A query continues after the last event that both have. Archive files with events that the database
    lost are moved to the folder _lost of the archive, and archiving continues from the database.
    """
    _check_installed()
    if not checkpoint and not archive:
        raise Refused("pass --checkpoint FOLDER or --archive STREAM")
    from eventkit.archive import adopt_archive, adopt_checkpoint

    adopted = [one for folder in checkpoint or () for one in adopt_checkpoint(address, folder)]
    adopted += [adopt_archive(address, stream, to=to) for stream in archive or ()]
    columns = ("stream", "before", "after", "files", "location")
    return listing(adopted, columns, "nothing to do: the database is not behind")


class ReplayOptions(TypedDict, total=False):
    """The options of a replay."""

    to_stream: Annotated[str | None, option("STREAM", "Publish to this stream.")]
    to_queue: Annotated[str | None, option("QUEUE", "Enqueue in this queue.")]
    after: Annotated[int, option("OFFSET", "Only events after this offset.", min=0), 0]
    last: Annotated[int | None, option("OFFSET", "Only events up to it.", min=0)]
    since: Annotated[datetime | None, option("MOMENT", "Created at or after 2026-01-31T08:00.", parser=settings.moment)]
    before: Annotated[datetime | None, option("MOMENT", "Created before 2026-02-01T08:00.", parser=settings.moment)]
    keys: Annotated[list[str] | None, option("KEY", "Only events of this key; repeatable.", "--key")]
    rate: Annotated[float | None, option("N", "At most N events per second.")]
    dedup: Annotated[bool, flag("Skip events that another replay already wrote there.", "--dedup"), False]
    id: Annotated[str | None, option("ID", "Names the replay; a finished replay does not run again.")]


@command(commands)
def replay(address: str, stream: Stream, **given: Unpack[ReplayOptions]) -> Result:
    """Publish or enqueue archived events again.

    Run the same command again to resume after an interruption; it writes no event twice.
    """
    _check_installed()
    if ("to_stream" in given) == ("to_queue" in given):
        raise Refused("pass either --to-stream STREAM or --to-queue QUEUE")
    from eventkit import archive as archives

    began = time.monotonic()
    with progress(f"replaying {stream}", "events") as advance:
        result = archives.replay(address, stream, progress=advance, **given)
    if result.ended_before:
        note(f"replay {given.get('id')} has already finished: pass another --id to replay again")
    if result.resumed_after is not None:
        note(f"resumed after offset {result.resumed_after}")
    return rate(result.events, "events replayed", began)


def _archived(address: str) -> list[str]:
    from eventkit.operations.bulk import ListArchives

    with settings.connected(address) as connection:
        streams = [archive.topic for archive in connection.execute(ListArchives())]
    if not streams:
        raise Refused("no stream has an archive yet: pass a STREAM and --to FOLDER")
    return streams


def _check_installed() -> None:
    try:
        import adbc_driver_manager  # noqa: F401
        import pyarrow  # noqa: F401
    except ModuleNotFoundError as error:
        raise Failed(f"archives need {error.name}: pip install 'eventkit-db[archive]'") from None

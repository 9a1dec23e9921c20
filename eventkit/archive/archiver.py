"""Archiving: events to Parquet, small files to large ones, and the check of an archive against its files."""

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import parquet

from .. import checks
from ..arrow import Fetch, compute, headers, moment, opened, pages, repeated, same
from ..checks import Duration
from ..errors import EventkitError, Truncated
from ..kit import backend_of
from ..operations.bulk import ArchiveFile, PruneArchived, ReadArchive
from ..operations.position import Position, ReadPosition
from ..operations.tables import Extent, FetchEvents, FetchStanding, FindEnd, ListTopics, ReadExtent
from ..protocols import Connection
from ..rollup import Report, reported
from ..values import ArchiveFormat, OnTruncated
from .files import SCHEMA, Progress, Store, check_file, date_of, new_path, tables
from .lease import ArchiveLease

_GROUP_ROWS = 131_072
_GROUP_BYTES = 32 * 2**20
"""The bytes of Arrow data in a row group: each open file holds that much in memory."""

_OPEN = 16
"""The maximum number of open files.  Times are nearly in order, so more than two days at once are rare."""

_DAY = 86_400_000_000
"""Microseconds."""


class NewFile:
    """A file that is being written: rows of a day, in the order of offsets."""

    def __init__(self, store: Store, stream: str, date: str, epoch: int) -> None:
        self._store = store
        self._stream = stream
        self._date = date
        self._epoch = epoch
        self._begun = new_path(stream, date, 0, 0, epoch)
        self._file = store.begin(self._begun)
        writer: Any = parquet.ParquetWriter  # A type checker takes its defaults for the only accepted types.
        self._writer = writer(
            self._file,
            SCHEMA,
            compression="zstd",
            use_dictionary=["topic", "key"],
            write_statistics=["offset", "topic", "key", "created_at"],
            write_page_checksum=True,
        )
        self._held: list[Any] = []
        self._held_rows = self._held_bytes = self._rows = self._first = self._last = 0
        self._times: list[int] = []

    def write(self, events: Any) -> None:
        """Add a table of `SCHEMA`, which is not empty."""
        self._times = _bounds(events, self._times)
        self._first = self._first or events["offset"][0].as_py()
        self._last = events["offset"][-1].as_py()
        self._rows += events.num_rows
        self._held.append(events)
        self._held_rows += events.num_rows
        self._held_bytes += events.nbytes
        if self._held_rows >= _GROUP_ROWS or self._held_bytes >= _GROUP_BYTES:
            self._flush()

    def finish(self) -> ArchiveFile:
        """Complete the file on the disk under its name, and return its entry for the manifest."""
        self._flush()
        self._writer.close()
        self._file.close()
        name = new_path(self._stream, self._date, self._first, self._last, self._epoch)
        size = self._store.finish(self._begun, name)
        oldest, newest = (microseconds // 1000 for microseconds in self._times)
        return ArchiveFile(name, self._date, self._first, self._last, self._rows, size, oldest, newest)

    def discard(self) -> None:
        """Delete the unfinished file."""
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._store.discard(self._begun)

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.concat_tables(self._held), row_group_size=_GROUP_ROWS)
            self._held.clear()
            self._held_rows = self._held_bytes = 0


class Days:
    """The writer of tables of events, in the order of offsets, to a file for each day."""

    def __init__(self, store: Store, stream: str, epoch: int) -> None:
        self._store = store
        self._stream = stream
        self._epoch = epoch
        self._open: dict[str, NewFile] = {}
        self._done: list[ArchiveFile] = []

    def write(self, events: Any) -> None:
        """Add events to the files of their days."""
        for date, some in _by_day(events):
            file = self._open.pop(date, None)
            if file is None:
                if len(self._open) == _OPEN:
                    self._finish_oldest()
                file = NewFile(self._store, self._stream, date, self._epoch)
            self._open[date] = file
            file.write(some)

    def finish(self) -> list[ArchiveFile]:
        """Complete all files and return them."""
        while self._open:
            self._finish_oldest()
        return sorted(self._done, key=lambda file: file.first)

    def _finish_oldest(self) -> None:
        date = next(iter(self._open))
        self._done.append(self._open[date].finish())
        del self._open[date]

    def discard(self) -> None:
        """Delete the unfinished files."""
        for file in self._open.values():
            file.discard()
        for done in self._done:
            with suppress(OSError):
                self._store.remove(done.path)


def _by_day(events: Any) -> Iterator[tuple[str, Any]]:
    if not events.num_rows:
        return
    oldest, newest = _bounds(events)
    if oldest // _DAY == newest // _DAY:
        yield date_of(oldest // 1000), events
        return
    days = compute.divide(compute.cast(compute.floor_temporal(events["created_at"], unit="day"), pa.int64()), _DAY)
    for day in sorted(compute.unique(days).to_pylist()):
        yield date_of(day * _DAY // 1000), events.filter(compute.equal(days, day))


def _bounds(events: Any, others: Sequence[int] = ()) -> list[int]:
    """Return the oldest and the newest time, of *others* as well."""
    found = compute.min_max(compute.cast(events["created_at"], pa.int64())).as_py()
    return [min([found["min"], *others]), max([found["max"], *others])]


TARGET = 128 * 2**20
"""The size in bytes of a file that is large enough."""

_SMALL = 2**20
"""The size in bytes below which rewriting a file costs next to nothing."""

_MANY = 8


def compact(lease: ArchiveLease) -> int:
    """Merge small files into larger ones; return how many were replaced."""
    replaced = 0
    for files in crowds(lease.files()):
        made = NewFile(lease.store, lease.stream, files[0].date, lease.epoch)
        try:
            with lease.store.explained("cannot be written"):
                for file in files:
                    for events in tables(lease.store, file):
                        made.write(events)
                new = made.finish()
        except BaseException:
            made.discard()
            raise
        lease.swap(files, [new])
        replaced += len(files)
    return replaced


def crowds(files: list[ArchiveFile]) -> Iterator[list[ArchiveFile]]:
    """Yield files to merge: the newest ones of a day, when they are many, and four times their largest together.

    So an event is rewritten a few times at most until its file is large, and a day has few files at any time.
    """
    for _, day in groupby(sorted(files, key=lambda file: (file.date, file.first)), key=lambda file: file.date):
        newest = sorted(day, key=lambda file: file.first, reverse=True)
        size = largest = chosen = 0
        for number, file in enumerate(newest, 1):
            if file.bytes >= TARGET or size + file.bytes > 2 * TARGET:
                break
            size, largest = size + file.bytes, max(largest, file.bytes)
            if number >= _MANY and (size >= 4 * largest or size <= _SMALL):
                chosen = number
        if chosen:
            yield newest[:chosen][::-1]


_STEP_ROWS = 500_000
_STEP_BYTES = 4 * TARGET
"""The bytes of Arrow data in a step; its file is about a quarter of that."""

_PRUNED = 10_000
"""The maximum number of events deleted in one transaction."""

_MOST = 100_000_000


class Archived(NamedTuple):
    """The outcome of archiving a stream.

    *events* were archived, in so many new files; small files were merged; events were deleted from the database; and
    the archive covers the stream up to the last offset.
    """

    stream: str
    location: str
    events: int
    files: int
    compacted: int
    pruned: int
    covered: int


def archive(
    url: str,
    stream: str,
    *,
    to: str | Path | None = None,
    format: ArchiveFormat | None = None,
    prune: bool = False,
    older_than: Duration | None = None,
    keep_unconsumed: bool = True,
    on_truncated: OnTruncated = "raise",
    progress: Progress | None = None,
) -> Archived:
    """Write the events of a stream that its archive lacks to files of Parquet in the folder *to*; each event once.

    After an interruption, the next call continues.  A stream's archive is in one folder, so *to* may be omitted once
    there is one.  The call ends the lease of another process that archives the stream.

    With *format* ``"delta"`` or ``"iceberg"``, the stream's folder is also a table of Delta Lake or Apache Iceberg,
    from then on.

    With *prune*, archived events are deleted from the database, after a check that their files are complete: those
    *older_than* a duration, and, unless *keep_unconsumed* is false, none that a consumer has still to read.  Events
    that were pruned before they were archived raise `Truncated`, or are skipped.
    """
    checks.name("stream", stream)
    if format is not None:
        checks.choice("format", format, ArchiveFormat)
    checks.choice("on_truncated", on_truncated, OnTruncated)
    age = None if older_than is None else checks.milliseconds("older_than", older_than)
    with closing(backend_of(url).connect(url, create=False)) as connection, opened(url) as fetch:
        extent = _extent(connection, stream)
        lease = ArchiveLease(connection, stream, to, format)
        with reported(connection, f"archive:{stream}", stream, lease.store.location) as report:
            events, files = _write(fetch, lease, extent.head, on_truncated == "skip", report, progress)
            compacted = compact(lease)
            pruned = _prune(lease, age, keep_unconsumed) if prune else 0
            lease.clear()
    return Archived(stream, lease.store.location, events, files, compacted, pruned, lease.covered)


def _write(
    fetch: Fetch, lease: ArchiveLease, head: int, skip: bool, report: Report, progress: Progress | None
) -> tuple[int, int]:
    """Archive the events up to *head*; return how many, and in how many files."""
    events = files = 0
    read = lease.connection.execute(ReadPosition(lease.stream, lease.covered))
    _, total = lease.connection.execute(FindEnd(lease.stream, lease.covered, head, _MOST))

    def fetched(after: int, limit: int) -> Any:
        return fetch(FetchEvents(lease.stream, after, head, [], None, None, limit), FetchEvents.columns)

    while lease.covered < head:
        days, last, rows, size = Days(lease.store, lease.stream, lease.epoch), head, 0, 0
        try:
            with lease.store.explained("cannot be written"):
                for reached, found in pages(fetched, lease.covered, head, "offset"):
                    last, table = reached, _events(found, lease.stream)
                    read = _after(read, found, table)
                    days.write(table)
                    rows, size = rows + table.num_rows, size + table.nbytes
                    if progress is not None:
                        progress(events + rows, total)
                    if rows >= _STEP_ROWS or size >= _STEP_BYTES:
                        break
                new = days.finish()
            if not skip:
                [pruned_to] = fetch(FetchStanding(lease.stream), FetchStanding.columns)["pruned_to"].to_pylist()
                if pruned_to > lease.covered:
                    raise Truncated(lease.stream, lease.covered + 1, min(pruned_to, last))
        except BaseException:
            days.discard()
            raise
        lease.extend(last, new, read)
        events, files = events + rows, files + len(new)
        report(rows, last, max(total - events, 0))
    return events, files


def _after(read: Position, found: Any, events: Any) -> Position:
    """Return the position after the last event of a table, if it has any."""
    if not events.num_rows:
        return read
    [row] = found.slice(found.num_rows - 1).to_pylist()
    created = compute.cast(events["created_at"][-1], pa.int64()).as_py() // 1000
    return read.after(row["offset"], row["key"], row["payload"], row["headers"], created)


def _extent(connection: Connection, stream: str) -> Extent:
    extent = connection.execute(ReadExtent(stream))
    if not extent.known:
        close = get_close_matches(stream, connection.execute(ListTopics()), n=1)
        hint = f": did you mean {close[0]!r}?" if close else ": its first event creates it"
        raise ValueError(f"there is no stream {stream!r}{hint}")
    return extent


def _events(found: Any, stream: str) -> Any:
    """Return columns of the database as those of an archive."""
    make = {"topic": repeated(stream), "headers": headers, "created_at": moment}
    columns = [
        make.get(name, same)(None if name == "topic" else found.column(name), SCHEMA.field(name).type, found.num_rows)
        for name in SCHEMA.names
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _prune(lease: ArchiveLease, older_than: int | None, keep_unconsumed: bool) -> int:
    """Delete events that the files have; return their number."""
    for file in lease.files():
        check_file(lease.store, file)
    operation = PruneArchived(lease.stream, lease.store.location, older_than, keep_unconsumed, _PRUNED)
    return sum(iter(lambda: lease.connection.execute(operation), 0))


class Checked(NamedTuple):
    """A complete archive: its files, the events in them, and the offset that it covers."""

    stream: str
    location: str
    files: int
    events: int
    covered: int


def check(url: str, stream: str, *, progress: Progress | None = None) -> Checked:
    """Read all files of a stream's archive from beginning to end; raise `EventkitError` for the first damaged one."""
    with closing(backend_of(url).connect(url, create=False)) as connection:
        found = connection.execute(ReadArchive(checks.name("stream", stream)))
    if found is None:
        raise ValueError(f"stream {stream!r} has no archive: eventkit archive makes one")
    store, events, total = Store(found.location), 0, sum(file.rows for file in found.files)
    for file in found.files:
        last = file.first - 1
        for table in tables(store, file):
            first, last_before = table["offset"][0].as_py(), last
            last = table["offset"][-1].as_py()
            if not last_before < first <= last <= file.last:
                raise EventkitError(f"{file.path} in {found.location} has other offsets than the manifest: restore it")
            events += table.num_rows
            if progress is not None:
                progress(events, total)
    return Checked(stream, found.location, len(found.files), events, found.covered)

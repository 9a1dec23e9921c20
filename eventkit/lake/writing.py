"""Events into files: one for each day, until somebody says that it is enough."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from ..arrays import compute
from ..operations.lake import LakeFile
from . import layout
from .store import Store

_GROUP_ROWS = 131_072
_GROUP_BYTES = 32 * 2**20
"""Of Arrow's, in a row group: what is held in memory for each file that is open."""

_OPEN = 16
"""Files at once.  Moments are nearly in order, so that more than two days at a time are rare."""

_DAY = 86_400_000_000
"""Microseconds."""


class NewFile:
    """A file that is being written: rows of a day, in the order of offsets."""

    def __init__(self, store: Store, topic: str, date: str, epoch: int) -> None:
        self._store = store
        self._topic = topic
        self._date = date
        self._epoch = epoch
        self._begun = layout.path(topic, date, 0, 0, epoch)
        self._stream = store.begin(self._begun)
        writer: Any = parquet.ParquetWriter  # Whose defaults a type checker takes for all that it takes.
        self._writer = writer(
            self._stream,
            layout.SCHEMA,
            compression="zstd",
            use_dictionary=["topic", "key"],
            write_statistics=["offset", "topic", "key", "created_at"],
            write_page_checksum=True,
        )
        self._held: list[Any] = []
        self._held_rows = self._held_bytes = 0
        self._rows = self._first = self._last = 0
        self._oldest = self._newest = 0

    def write(self, events: Any) -> None:
        """Add a table of `layout.SCHEMA`, which is not empty."""
        oldest, newest = _bounds(events)
        if not self._rows:
            self._first, self._oldest, self._newest = events["offset"][0].as_py(), oldest, newest
        self._last = events["offset"][-1].as_py()
        self._oldest, self._newest = min(self._oldest, oldest), max(self._newest, newest)
        self._rows += events.num_rows
        self._held.append(events)
        self._held_rows += events.num_rows
        self._held_bytes += events.nbytes
        if self._held_rows >= _GROUP_ROWS or self._held_bytes >= _GROUP_BYTES:
            self._flush()

    def finish(self) -> LakeFile:
        """Have it on the disk, under its name; what the manifest is to say of it."""
        self._flush()
        self._writer.close()
        self._stream.close()
        name = layout.path(self._topic, self._date, self._first, self._last, self._epoch)
        size = self._store.finish(self._begun, name)
        return LakeFile(
            name, self._date, self._first, self._last, self._rows, size, self._oldest // 1000, self._newest // 1000
        )

    def discard(self) -> None:
        """Leave nothing of it."""
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        with suppress(OSError):
            self._stream.close()
        with suppress(OSError):
            self._store.discard(self._begun)

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.concat_tables(self._held), row_group_size=_GROUP_ROWS)
            self._held.clear()
            self._held_rows = self._held_bytes = 0


class Days:
    """Writes tables of events, in the order of offsets, to a file for each day."""

    def __init__(self, store: Store, topic: str, epoch: int) -> None:
        self._store = store
        self._topic = topic
        self._epoch = epoch
        self._open: dict[str, NewFile] = {}
        self._done: list[LakeFile] = []

    def write(self, events: Any) -> None:
        """Add events to the days that they are of."""
        for date, some in _by_day(events):
            file = self._open.pop(date, None)
            if file is None:
                if len(self._open) == _OPEN:
                    longest_ago = next(iter(self._open))
                    self._done.append(self._open.pop(longest_ago).finish())
                file = NewFile(self._store, self._topic, date, self._epoch)
            self._open[date] = file
            file.write(some)

    def finish(self) -> list[LakeFile]:
        """The files, all of them whole."""
        for date in list(self._open):
            self._done.append(self._open[date].finish())
            del self._open[date]
        return sorted(self._done, key=lambda file: file.first)

    def discard(self) -> None:
        """Leave nothing of what does not count."""
        for file in self._open.values():
            file.discard()
        for done in self._done:
            with suppress(OSError):
                self._store.remove(done.path)


def _by_day(events: Any) -> Iterator[tuple[str, Any]]:
    """The events of each day, and which day that is."""
    if not events.num_rows:
        return
    oldest, newest = _bounds(events)
    if oldest // _DAY == newest // _DAY:
        yield layout.date(oldest // 1000), events
        return
    days = compute.divide(compute.cast(compute.floor_temporal(events["created_at"], unit="day"), pa.int64()), _DAY)
    for day in sorted(compute.unique(days).to_pylist()):
        yield layout.date(day * _DAY // 1000), events.filter(compute.equal(days, day))


def _bounds(events: Any) -> tuple[int, int]:
    """The oldest and the newest moment."""
    found = compute.min_max(compute.cast(events["created_at"], pa.int64()))
    return found["min"].as_py(), found["max"].as_py()

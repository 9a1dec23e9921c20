"""From a stream into its archive, each event once.

Everything up to the settled head is read in the order of offsets, and written to files, a step at a time.  A step
counts when one transaction says that its files do and how far the archive goes now; before, nobody sees it, and after,
nobody does it again.  No checkpoint lies beside that, so nothing can be at odds with it.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from .. import arguments
from ..arguments import Duration
from ..arrays import compute, headers, moment, repeated, same
from ..bulk import Fetch, opened, pages
from ..errors import Truncated
from ..kit import backend_of
from ..noting import Note, noted
from ..operations.extract import Extent, FetchEvents, FetchStanding, FindEnd, ListTopics, ReadExtent
from ..operations.lake import PruneArchived
from ..operations.position import ReadPosition
from ..protocols import Connection
from . import layout
from .compacting import TARGET, compact
from .listing import FORMATS, Format
from .reading import check
from .turn import Turn
from .writing import Days

_STEP_ROWS = 500_000
_STEP_BYTES = 4 * TARGET
"""Of Arrow's, in a step; a file is about a quarter of that."""

_PRUNED = 10_000
"""Events that are dropped in one transaction."""

_MOST = 100_000_000

Progress = Callable[[int, int], object]
"""Is told how many events were archived, of how many."""


class Archived(NamedTuple):
    """What came of archiving a topic: events that were archived, in so many new files; files that were made into
    fewer; events that were dropped from the database; and the offset up to which the archive has everything."""

    topic: str
    location: str
    events: int
    files: int
    compacted: int
    pruned: int
    covered: int


def archive(
    url: str,
    topic: str,
    *,
    to: str | Path | None = None,
    format: Format | None = None,
    prune: bool = False,
    older_than: Duration | None = None,
    keep_unconsumed: bool = True,
    on_truncated: Literal["raise", "skip"] = "raise",
    progress: Progress | None = None,
) -> Archived:
    """Write what a topic has, and its archive has not, to files of Parquet in the folder *to*; each event once.

    What was interrupted or killed at whatever moment goes on where it was.  A topic's archive is in one folder, so *to*
    may be left out once there is one.  Whoever begins ends the turn of whoever is archiving the topic already.

    With *format* ``"delta"`` or ``"iceberg"``, the topic's folder is a table of Delta Lake or Apache Iceberg as well,
    from then on.

    With *prune*, what the archive has by then is dropped from the database, after a look that its files are there and
    whole: of that, what is *older_than* a duration, and what no consumer has still to read unless *keep_unconsumed*
    is false.  Events that were pruned before they were archived raise `Truncated`, or are done without.
    """
    arguments.name("topic", topic)
    if format is not None:
        arguments.choice("format", format, FORMATS)
    arguments.choice("on_truncated", on_truncated, ("raise", "skip"))
    age = None if older_than is None else arguments.milliseconds("older_than", older_than)
    with closing(backend_of(url).connect(url, create=False)) as connection, opened(url) as fetch:
        extent = _extent(connection, topic)
        turn = Turn(connection, topic, to, format)
        with noted(connection, f"archive:{topic}", topic, turn.store.location) as note:
            archiving = _Archiving(connection, fetch, turn, on_truncated == "skip", note, progress)
            events, files = archiving.run(extent.head)
            compacted = compact(turn)
            pruned = _prune(connection, turn, age, keep_unconsumed) if prune else 0
            turn.clear()
    return Archived(topic, turn.store.location, events, files, compacted, pruned, turn.covered)


class _Archiving:
    """Takes a topic up to some offset into its archive."""

    def __init__(
        self, connection: Connection, fetch: Fetch, turn: Turn, skip: bool, note: Note, progress: Progress | None
    ) -> None:
        self._connection = connection
        self._fetch = fetch
        self._turn = turn
        self._skip = skip
        self._note = note
        self._progress = progress or (lambda _done, _total: None)

    def run(self, head: int) -> tuple[int, int]:
        """How many events, in how many files."""
        turn, events, files = self._turn, 0, 0
        self._read = self._connection.execute(ReadPosition(turn.topic, turn.covered))
        _, total = self._connection.execute(FindEnd(turn.topic, turn.covered, head, _MOST))
        while turn.covered < head:
            days = Days(turn.store, turn.topic, turn.epoch)
            try:
                with turn.store.told("cannot be written"):
                    last, rows = self._step(days, head, partial(self._tell, events, total))
                    new = days.finish()
                self._check_loss(turn.covered, last)
            except BaseException:
                days.discard()
                raise
            turn.extend(last, new, self._read)
            events, files = events + rows, files + len(new)
            self._note(rows, last, max(total - events, 0))
        return events, files

    def _step(self, days: Days, head: int, tell: Callable[[int], object]) -> tuple[int, int]:
        """Write some of what is there: up to which offset, and how many events that is."""
        rows = size = 0
        for last, table in self._tables(self._turn.covered, head):
            days.write(table)
            rows, size = rows + table.num_rows, size + table.nbytes
            tell(rows)
            if rows >= _STEP_ROWS or size >= _STEP_BYTES:
                return last, rows
        return head, rows

    def _tell(self, before: int, total: int, rows: int) -> None:
        self._progress(before + rows, total)

    def _tables(self, after: int, head: int) -> Iterator[tuple[int, Any]]:
        """Tables of events, and up to which offset there is nothing else."""

        def read(after: int, limit: int) -> Any:
            return self._fetch(FetchEvents(self._turn.topic, after, head, [], None, None, limit), FetchEvents.columns)

        for last, found in pages(read, after, head, "offset"):
            events = _events(found, self._turn.topic)
            if events.num_rows:
                [row] = found.slice(found.num_rows - 1).to_pylist()
                created = compute.cast(events["created_at"][-1], pa.int64()).as_py() // 1000
                self._read = self._read.after(row["offset"], row["key"], row["payload"], row["headers"], created)
            yield last, events

    def _check_loss(self, after: int, last: int) -> None:
        """Raise if somebody has pruned what was to be read, before it was or meanwhile."""
        if self._skip:
            return
        standing = self._fetch(FetchStanding(self._turn.topic), FetchStanding.columns)
        pruned_to = standing["pruned_to"][0].as_py()
        if pruned_to > after:
            raise Truncated(self._turn.topic, after + 1, min(pruned_to, last))


def _extent(connection: Connection, topic: str) -> Extent:
    extent = connection.execute(ReadExtent(topic))
    if not extent.known:
        close = get_close_matches(topic, connection.execute(ListTopics()), n=1)
        hint = f": did you mean {close[0]!r}?" if close else ": it begins with its first event"
        raise ValueError(f"there is no topic {topic!r}{hint}")
    return extent


def _events(found: Any, topic: str) -> Any:
    """Columns of the database as those of an archive."""
    make = {"topic": repeated(topic), "headers": headers, "created_at": moment}
    return pa.Table.from_arrays(
        [
            make.get(field.name, same)(
                None if field.name == "topic" else found.column(field.name), field.type, found.num_rows
            )
            for field in layout.SCHEMA
        ],
        schema=layout.SCHEMA,
    )


def _prune(connection: Connection, turn: Turn, older_than: int | None, keep_unconsumed: bool) -> int:
    """Drop what the files have, if they have it; how many events."""
    for file in turn.files():
        check(turn.store, file)
    pruned = 0
    operation = PruneArchived(turn.topic, turn.store.location, older_than, keep_unconsumed, _PRUNED)
    while dropped := connection.execute(operation):
        pruned += dropped
    return pruned

"""Moving house: all that a kit has, from one database to another."""

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain, zip_longest
from math import isclose
from typing import Any

from .errors import CopyDiffers
from .kit import backend_of
from .operations import Rows
from .operations.copy import TABLES, ExportNumbers, ImportNumbers, MarkIncomplete, Table
from .operations.history import KeepHistory, StopHistory
from .protocols import Connection

_BATCH = 500
"""Rows that are read, and written, at a time."""

_OTHER_SOURCE = (
    "what is there is no earlier copy of this source as it is now: copy into a database without eventkit's tables "
    "(python -m eventkit_migrations downgrade <url> base drops them, with all that is in them)"
)
_WRITTEN_MEANWHILE = (
    "somebody has written to one of the two while they were copied: stop whoever publishes, works and schedules, drop "
    "the copy (python -m eventkit_migrations downgrade <url> base) and copy again"
)

Progress = Callable[[str, int], object]
"""Is told which table it is at, and how many rows have gone by in all."""


def copy(from_url: str, to_url: str, *, progress: Progress | None = None) -> dict[str, int]:
    """Copy all that eventkit has in one database to another, of whatever kinds; how many rows each table has.

    Ids, offsets, leases, attempts, dead letters, keys, settings, schedules, locks and results stay what they are, and
    the next ids lie above them.  The target gets eventkit's tables if it has none, and may hold nothing but an
    earlier copy of the same source, which may have been interrupted: then this one goes on behind it.  Until it is
    whole, `connect` refuses the target with `Unavailable`.

    Nobody may write to either database until this returns.  At the end both are read and compared; what differs is
    raised as `CopyDiffers`, and the source is never changed.  Call it in a thread where there is an event loop.
    *progress* is told every few hundred rows which table it is at, and how many were written, and compared again.
    """
    if from_url == to_url:
        raise ValueError("from_url and to_url are the same database: name another one to copy to")
    with (
        closing(backend_of(from_url).connect(from_url, create=False)) as source,
        closing(backend_of(to_url).connect(to_url, incomplete=True)) as target,
    ):
        gone_by = 0

        def went_by(table: Table, rows: int) -> None:
            nonlocal gone_by
            gone_by += rows
            if progress is not None:
                progress(table.name, gone_by)

        # What is written here has happened there: it is no step of a task, and its events come with the others.
        target.execute(StopHistory())
        begins = [_end_of_copy(source, target, table) for table in TABLES]
        target.execute(MarkIncomplete("copy"))
        for table, begin in zip(TABLES, begins, strict=True):
            for rows in batches(source, table, begin):
                target.execute(table.write(rows))
                went_by(table, len(rows))
        # Last: a reader on Postgres sees no event beyond the last number drawn, and so none of half a copy.
        target.execute(ImportNumbers(*source.execute(ExportNumbers())))
        target.execute(KeepHistory())
        counts = {table.name: _verified(source, target, table, went_by) for table in TABLES}
        target.execute(MarkIncomplete(None))
        return counts


def _end_of_copy(source: Connection, target: Connection, table: Table) -> tuple[Any, ...]:
    """The key of the last row that the target has; it has to have those of the source up to there."""
    copied = _rows(target, table)
    end: tuple[Any, ...] = table.before
    for row in _rows(source, table):
        found = next(copied, None)
        if found is None:
            return end
        if not same(row, found):
            raise CopyDiffers(table.name, row, found, _OTHER_SOURCE)
        end = key(table, row)
    beyond = next(copied, None)
    if beyond is not None:
        raise CopyDiffers(table.name, None, beyond, _OTHER_SOURCE)
    return end


def _verified(source: Connection, target: Connection, table: Table, went_by: Callable[[Table, int], None]) -> int:
    """How many rows both have, which are the same."""
    count = 0
    for row, copied in zip_longest(_rows(source, table), _rows(target, table)):
        if row is None or copied is None or not same(row, copied):
            raise CopyDiffers(table.name, row, copied, _WRITTEN_MEANWHILE)
        count += 1
        if count % _BATCH == 0:
            went_by(table, _BATCH)
    went_by(table, count % _BATCH)
    return count


def _rows(connection: Connection, table: Table) -> Iterator[tuple[Any, ...]]:
    return chain.from_iterable(batches(connection, table, table.before))


def batches(connection: Connection, table: Table, after: tuple[Any, ...]) -> Iterator[Rows]:
    """The rows of a table behind a key, some at a time."""
    while rows := connection.execute(table.export(*after, _BATCH)):
        yield rows
        after = key(table, rows[-1])


def key(table: Table, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """What of a row tells it from others."""
    return row[: len(table.before)]


def same(row: tuple[Any, ...], copied: tuple[Any, ...]) -> bool:
    """Whether a row is what it was made from."""
    return row == copied or all(map(_equal, row, copied))


def _equal(ours: Any, theirs: Any) -> bool:
    # Libraries read the last digit of a float's text in ways of their own.
    if isinstance(ours, float) and isinstance(theirs, float):
        return isclose(ours, theirs, rel_tol=1e-12)
    return bool(ours == theirs)

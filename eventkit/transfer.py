"""Copying all of a database to another one, or to a file and back."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import chain, groupby, islice, zip_longest
from math import isclose
from typing import Any

import msgspec

from .errors import CopyDiffers
from .kit import backend_of
from .operations import ReadCondition, ReadSchema, Rows
from .operations.queue import KeepHistory, StopHistory
from .operations.tables import TABLES, ExportNumbers, ImportNumbers, MarkIncomplete, Numbers, Table
from .protocols import Connection

_BATCH = 500
"""The number of rows that are read and written at a time."""

_OTHER_SOURCE = (
    "the target is not an earlier copy of this source: copy into a database without eventkit's tables "
    "(python -m eventkit_migrations downgrade <url> --to base drops them and all their rows)"
)
_WRITTEN_MEANWHILE = (
    "another process wrote to one of the two during the copy: stop all publishers, workers and schedulers, drop "
    "the copy (python -m eventkit_migrations downgrade <url> --to base) and copy again"
)

Progress = Callable[[str, int], object]
"""Called with the current table, and the number of rows so far."""


def copy(from_url: str, to_url: str, *, progress: Progress | None = None) -> dict[str, int]:
    """Copy all data of eventkit from one database to another, of any kinds; return the number of rows of each table.

    Ids, offsets, leases, attempts, dead tasks, keys, settings, schedules, locks and results stay as they are, and new
    ids are above them.  The target gets eventkit's tables if it has none, and may contain nothing but an earlier copy
    of the same source, which may have been interrupted: then this one continues after it.  Until the copy is complete,
    `connect` refuses the target with `Unavailable`.

    No process may write to either database until this returns.  At the end both are read and compared; a difference
    raises `CopyDiffers`, and the source is never changed.  Where there is an event loop, call it in a thread.
    *progress* is called every few hundred rows with the current table, and the number of rows written, and then
    compared.
    """
    if from_url == to_url:
        raise ValueError("from_url and to_url are the same database: pass another one to copy to")
    with (
        closing(backend_of(from_url).connect(from_url, create=False)) as source,
        closing(backend_of(to_url).connect(to_url, incomplete=True)) as target,
    ):
        gone_by = 0

        def report(table: Table, rows: int) -> None:
            nonlocal gone_by
            gone_by += rows
            if progress is not None:
                progress(table.name, gone_by)

        # Writing rows here is no step of their tasks, and the recorded steps are copied with the events.
        target.execute(StopHistory())
        begins = [_end_of_copy(source, target, table) for table in TABLES]
        target.execute(MarkIncomplete("copy"))
        for table, begin in zip(TABLES, begins, strict=True):
            for rows in batches(source, table, begin):
                target.execute(table.write(rows))
                report(table, len(rows))
        # Last: on Postgres, readers see no event above the last number drawn, and so none of an incomplete copy.
        target.execute(ImportNumbers(*source.execute(ExportNumbers())))
        target.execute(KeepHistory())
        counts = {table.name: _verified(source, target, table, report) for table in TABLES}
        target.execute(MarkIncomplete(None))
        return counts


def _end_of_copy(source: Connection, target: Connection, table: Table) -> tuple[Any, ...]:
    """Return the key of the last row of the target, which must have all rows of the source up to there."""
    copied = _rows(target, table)
    end: tuple[Any, ...] = table.before
    for row in _rows(source, table):
        found = next(copied, None)
        if found is None:
            return end
        _check(table, row, found, _OTHER_SOURCE)
        end = key(table, row)
    for beyond in copied:
        raise CopyDiffers(table.name, None, beyond, _OTHER_SOURCE)
    return end


def _verified(source: Connection, target: Connection, table: Table, report: Callable[[Table, int], None]) -> int:
    """Compare all rows of both, and return their number."""
    count = 0
    for row, copied in zip_longest(_rows(source, table), _rows(target, table)):
        _check(table, row, copied, _WRITTEN_MEANWHILE)
        count += 1
        if count % _BATCH == 0:
            report(table, _BATCH)
    report(table, count % _BATCH)
    return count


def _rows(connection: Connection, table: Table) -> Iterator[tuple[Any, ...]]:
    return chain.from_iterable(batches(connection, table, table.before))


def batches(connection: Connection, table: Table, after: tuple[Any, ...]) -> Iterator[Rows]:
    """Yield the rows of a table after a key, some at a time."""
    while rows := connection.execute(table.export(*after, _BATCH)):
        yield rows
        after = key(table, rows[-1])


def key(table: Table, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the key of a row."""
    return row[: len(table.before)]


def _check(table: Table, row: tuple[Any, ...] | None, copied: tuple[Any, ...] | None, remedy: str) -> None:
    """Check that a row was copied; either is None if it is missing."""
    if row != copied and (row is None or copied is None or not all(map(_equal, row, copied))):
        raise CopyDiffers(table.name, row, copied, remedy)


def _equal(ours: Any, theirs: Any) -> bool:
    # Libraries differ in the last digit of a float's text.
    if isinstance(ours, float) and isinstance(theirs, float):
        return isclose(ours, theirs, rel_tol=1e-12)
    return bool(ours == theirs)


_HEAD, _END = "eventkit", "end"
_OTHER_FILE = (
    "another process writes here, or the interrupted import was of another file: import that one again, or import "
    "into a database without eventkit's tables (python -m eventkit_migrations downgrade <url> --to base drops them)"
)
_TABLES = {table.name: table for table in TABLES}


class _End(msgspec.Struct):
    """The last line."""

    rows: dict[str, int]
    numbers: tuple[int, int, int]


def read(url: str) -> Iterator[bytes]:
    """Yield all data of eventkit in a database, a line at a time.  No process may write to it until the last line."""
    encode = msgspec.json.encode
    with closing(backend_of(url).connect(url, create=False)) as source:
        yield encode({_HEAD: source.execute(ReadSchema())}) + b"\n"
        counts = dict.fromkeys(_TABLES, 0)
        for table in TABLES:
            for rows in batches(source, table, table.before):
                counts[table.name] += len(rows)
                for row in rows:
                    yield encode({table.name: row}) + b"\n"
        yield encode({_END: _End(counts, source.execute(ExportNumbers()))}) + b"\n"


def write(url: str, lines: Iterable[bytes]) -> dict[str, int]:
    """Write such lines to a database with no data of eventkit; return the number of rows of each table.

    Written rows are read again and compared, batch by batch.  Until all lines are written, `connect` refuses the
    database with `Unavailable`; an import of the same lines continues after an interrupted one.
    """
    with closing(backend_of(url).connect(url, incomplete=True)) as target:
        goes_on = target.execute(ReadCondition()).incomplete is not None
        for table in TABLES:
            if not goes_on and target.execute(table.export(*table.before, 1)):
                raise ValueError(
                    f"{table.name} has rows already: import into a database without eventkit's tables "
                    "(python -m eventkit_migrations downgrade <url> --to base drops them, with all that is in them)"
                )
        counts = dict.fromkeys(_TABLES, 0)
        end: _End | None = None
        for name, rows in groupby(_decoded(lines, target), lambda found: found[0]):
            if name == _END:
                end = msgspec.convert(next(rows)[1], _End)
            else:
                target.execute(MarkIncomplete("import"))
                counts[name] += _written(target, name, (row for _, row in rows))
        if end is None or end.rows != counts:
            raise ValueError("the file is incomplete: export again, and import into a new database")
        target.execute(ImportNumbers(*Numbers(*end.numbers)))
        target.execute(KeepHistory())
        target.execute(MarkIncomplete(None))
        return counts


def _decoded(lines: Iterable[bytes], target: Connection) -> Iterator[tuple[str, Any]]:
    """Yield each line's name and content."""
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    for number, line in enumerate(lines, 1):
        try:
            [(name, value)] = decode(line).items()
        except ValueError as error:
            raise ValueError(f"line {number} is not of an export: {error}") from None
        if (number == 1) != (name == _HEAD) or name not in (_HEAD, _END, *_TABLES):
            raise ValueError(f"line {number} is not of an export: it begins with {name!r}")
        if name != _HEAD:
            yield name, value
        elif value != (ours := target.execute(ReadSchema())):
            raise ValueError(f"the export is of revision {value}, and the tables here of {ours}: use the same eventkit")


def _written(target: Connection, name: str, rows: Iterable[Any]) -> int:
    """Write the rows of one table that are missing, check that all are there, and return their number."""
    table = _TABLES[name]
    after, count = table.before, 0
    some = iter(rows)
    while batch := [tuple(row) for row in islice(some, _BATCH)]:
        for row in batch:
            if len(row) != (columns := len(table.columns)):
                raise ValueError(
                    f"{name} has {columns} columns here and {len(row)} in the file, which another version has written: "
                    "import the file with that version"
                )
        there = target.execute(table.export(*after, len(batch)))
        if len(there) < len(batch):
            target.execute(table.write(batch))
            there = target.execute(table.export(*after, len(batch)))
        for expected, found in zip_longest(batch, there):
            _check(table, expected, found, _OTHER_FILE)
        after = key(table, batch[-1])
        count += len(batch)
    if beyond := target.execute(table.export(*after, 1)):
        raise CopyDiffers(name, None, beyond[0], _OTHER_FILE)
    return count

"""All that a kit has, as lines of a file, and back; for whatever lies between two databases that never meet.

A line is a JSON object.  The first says which revision the tables are of, each of the others is a row,
``{"eventkit_task": [7, "emails", …]}``, in the order and with the columns of `eventkit.operations.copy`; the last says
how many there are, so that a file of which the end is missing is not taken for a whole one.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import groupby, islice, zip_longest
from typing import Any

import msgspec

from .copying import batches, key, same
from .errors import CopyDiffers
from .kit import backend_of
from .operations import ReadIncomplete, ReadSchema
from .operations.copy import TABLES, ExportNumbers, ImportNumbers, MarkIncomplete, Numbers
from .operations.history import KeepHistory
from .protocols import Connection

_BATCH = 500
_HEAD, _END = "eventkit", "end"
_OTHER_SOURCE = (
    "another process writes here, or the interrupted import was of another file: import that one again, or import "
    "into a database without eventkit's tables (python -m eventkit_migrations downgrade <url> base drops them)"
)
_TABLES = {table.name: table for table in TABLES}


class _End(msgspec.Struct):
    """The last line."""

    rows: dict[str, int]
    numbers: tuple[int, int, int]


def read(url: str) -> Iterator[bytes]:
    """All that eventkit has in a database, a line at a time.  Nobody may write to it until the last one."""
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
    """Write such lines to a database that has nothing of eventkit's, or empty tables; how many rows each table has.

    What was written is read again and compared, batch by batch.  Until all is there, `connect` refuses the database
    with `Unavailable`; an import of the same lines goes on where an interrupted one has stopped.
    """
    with closing(backend_of(url).connect(url, incomplete=True)) as target:
        goes_on = target.execute(ReadIncomplete()) is not None
        for table in TABLES:
            if not goes_on and target.execute(table.export(*table.before, 1)):
                raise ValueError(
                    f"{table.name} has rows already: import into a database without eventkit's tables "
                    "(python -m eventkit_migrations downgrade <url> base drops them, with all that is in them)"
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
            raise ValueError("the file has not all of its rows: export again, and import into a new database")
        target.execute(ImportNumbers(*Numbers(*end.numbers)))
        target.execute(KeepHistory())
        target.execute(MarkIncomplete(None))
        return counts


def _decoded(lines: Iterable[bytes], target: Connection) -> Iterator[tuple[str, Any]]:
    """Each line's name and what it says."""
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
    """Write those rows of one table that are not there yet, and see that all are; how many."""
    table = _TABLES[name]
    after, count = table.before, 0
    some = iter(rows)
    while batch := [tuple(row) for row in islice(some, _BATCH)]:
        there = target.execute(table.export(*after, len(batch)))
        if len(there) < len(batch):
            target.execute(table.write(batch))
            there = target.execute(table.export(*after, len(batch)))
        for expected, found in zip_longest(batch, there):
            if expected is None or found is None or not same(expected, found):
                raise CopyDiffers(name, expected, found, _OTHER_SOURCE)
        after = key(table, batch[-1])
        count += len(batch)
    if beyond := target.execute(table.export(*after, 1)):
        raise CopyDiffers(name, None, beyond[0], _OTHER_SOURCE)
    return count

"""``eventkit export``, ``import``, ``backup`` and ``copy``: all that a database has, elsewhere."""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Annotated

import typer

from . import settings, show
from .lines import lines, opened
from .opening import care
from .options import Json, Url
from .progress import Tell, progress
from .refusals import Failed


def export(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A new file, or - for stdout.", show_default=False)],
    url: Url = None,
    json: Json = False,
) -> None:
    """Write all there is to a file, a row a line.

    eventkit import reads it, on whatever kind of database. Nobody may write meanwhile.
    """
    from eventkit.archive import read

    with progress("exporting", None, "rows") as tell:
        counts = _written(file, _told(read(settings.url(url)), tell))
    if file == "-":
        return
    show.answer(f"{counts:,} rows in {file}", {"file": file, "rows": counts}, json)


def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="From export; - for stdin.", show_default=False)],
    url: Url = None,
    json: Json = False,
) -> None:
    """Read what export has written.

    It goes into a database that has nothing of eventkit yet, or empty tables.
    """
    from eventkit.archive import write

    with opened(file) as (stream, total), progress("importing", total, "rows") as tell:
        read = rows = 0

        def counted() -> Iterator[bytes]:
            nonlocal read, rows
            for rows, line in enumerate(lines(stream)):
                read += len(line)
                if rows % 500 == 0:
                    tell(read, rows)
                yield line

        counts = write(settings.url(url), counted())
    _counts(counts, json)


def backup(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A new file.", show_default=False)],
    url: Url = None,
    json: Json = False,
) -> None:
    """Copy an SQLite file while others work on it.

    Postgres has backups of its own, pg_dump among them.
    """
    address = settings.url(url)
    if address.startswith("postgres"):
        raise Failed("Postgres has its own backups: pg_dump --schema=eventkit, or what your provider offers")
    if Path(file).exists():
        raise Failed(f"{file} is there already: name a new file")
    with progress("copying", None, "pages") as tell:
        care(address, "backup")(address, file, lambda done, total: tell(done, done))
    show.answer(f"{file} is a copy: {Path(file).stat().st_size:,} bytes", {"file": file}, json)


def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="The URL to copy from.", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="TO", help="The URL to copy to.", show_default=False)],
    json: Json = False,
) -> None:
    """Copy all there is to another database.

    Of whatever kind; both are compared at the end. Nobody may write to either meanwhile. What was
    interrupted goes on where it was.
    """
    import eventkit

    with progress("copying", None, "rows") as tell:
        counts = eventkit.copy(source, target, progress=lambda _table, rows: tell(rows, rows))
    _counts(counts, json)


def _told(found: Iterable[bytes], tell: Tell) -> Iterator[bytes]:
    for number, line in enumerate(found):
        if number % 500 == 0:
            tell(number, number)
        yield line


def _written(file: str, found: Iterator[bytes]) -> int:
    """Write the lines; how many rows they are: all but the first and the last."""
    if file == "-":
        return _write(sys.stdout.buffer, found)
    try:
        with open(file, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as stream:
            return _write(stream, found)
    except FileExistsError:
        raise Failed(f"{file} is there already: name a new file") from None


def _write(stream: IO[bytes], found: Iterator[bytes]) -> int:
    written = 0
    for line in found:
        stream.write(line)
        written += 1
    return written - 2


def _counts(counts: dict[str, int], json: bool) -> None:
    rows = [{"table": table, "rows": number} for table, number in counts.items()]
    show.listing(rows, ("table", "rows"), json, "nothing")

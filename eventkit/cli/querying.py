"""SQL: over the streams, and over one file."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal

import typer

from .refusals import Failed, Refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_Format = Literal["table", "json", "csv", "parquet"]
Format = Annotated[
    _Format | None,
    typer.Option("--output-format", help="What comes out; JSON is one object a line.", show_default=False),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write it there, as its name says, and not to stdout."),
]

_ENDINGS: dict[str, Literal["json", "csv", "parquet"]] = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".parquet": "parquet",
}


def select(
    sql: Annotated[
        str,
        typer.Argument(metavar="SQL", help="As in 'SELECT s.id FROM S3Object s LIMIT 5'.", show_default=False),
    ],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="CSV, JSON or Parquet; also .gz and .bz2.", show_default=False)
    ],
    output_format: Format = None,
    output: Output = None,
    input_format: Annotated[
        Literal["csv", "json", "parquet"] | None,
        typer.Option("--input-format", help="What is in the file, if its name does not say.", show_default=False),
    ] = None,
    compression: Annotated[
        Literal["none", "gzip", "bzip2"] | None,
        typer.Option("--compression", help="Of the file; found out if not said.", show_default=False),
    ] = None,
    csv_header: Annotated[
        Literal["use", "ignore", "none"],
        typer.Option("--csv-header", help="Whether the first row has the names, is passed over, or is none."),
    ] = "use",
    csv_delimiter: Annotated[
        str | None, typer.Option("--csv-delimiter", metavar="CHAR", help="Between two fields: a comma if not said.")
    ] = None,
    csv_quote: Annotated[str, typer.Option("--csv-quote", metavar="CHAR", help="Around a field.")] = '"',
    csv_escape: Annotated[
        str | None, typer.Option("--csv-escape", metavar="CHAR", help="Before a quote in a field: a quote if not said.")
    ] = None,
    json: Annotated[
        Literal["lines", "document"] | None,
        typer.Option("--json", help="Whether each line is a value; found out if not said.", show_default=False),
    ] = None,
) -> None:
    """Ask one file with the SQL of S3 Select."""
    from eventkit.spark.select import files
    from eventkit.spark.select.running import prepare, rows

    format = _format(output_format, output)
    if csv_delimiter is None:
        csv_delimiter = "\t" if ".tsv" in file.suffixes else ","
    rules = files.Csv(csv_header, csv_delimiter, csv_quote, csv_escape or csv_quote)
    query = prepare(sql, files.look(file, format=input_format, compression=compression, csv=rules, json=json))
    spark = _session()
    from eventkit.spark.output import typed, write

    whole = query.translated.names is None
    with rows(spark, query) as frame:
        if format == "json":
            write(frame, format, output, optional=query.optional, whole=whole)
        else:
            _put(typed(frame, whole), format, output)


def _format(format: _Format | None, output: Path | None) -> _Format:
    """What comes out, said or by the name of the file that it goes to."""
    if format is None and output is not None:
        format = _ENDINGS.get(output.suffix.lower())
        if format is None:
            raise Refused(f"the name of {output} does not say what to write: say --output-format json, csv or parquet")
    if format == "parquet" and output is None:
        raise Refused("Parquet is not for a terminal: say --output FILE")
    if format == "table" and output is not None:
        raise Refused("a table is for a terminal: say --output-format csv, or leave --output out")
    return format or "table"


def _put(frame: "DataFrame", format: _Format, output: Path | None) -> None:
    """Rows to where they are wanted."""
    from eventkit.spark.output import table, write

    from . import show

    if format == "table":
        show.table(*table(frame))
    else:
        write(frame, format, output)


def _session() -> "SparkSession":
    """A session that says nothing but answers."""
    import logging
    import warnings

    from eventkit.spark import session

    # What it tells here, it raises as well.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    warnings.simplefilter("ignore", FutureWarning)
    with _aside() as log:
        try:
            return session()
        except Exception as error:
            if type(error).__module__.startswith("pyspark"):
                log.seek(0)
                told = [line for line in log.read().splitlines() if line.strip()]
                raise Failed(f"Spark does not start: {told[-1] if told else error}") from error
            raise


@contextmanager
def _aside() -> Iterator[IO[str]]:
    """Have what is started meanwhile write its stderr elsewhere: Java says much before it can be told not to."""
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        os.dup2(log.fileno(), 2)
        try:
            yield log
        finally:
            os.dup2(before, 2)
            os.close(before)

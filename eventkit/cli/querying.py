"""SQL: over the streams, and over one file."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from . import opening, settings, show
from .options import Url
from .prompt import statements
from .refusals import Failed, Refused
from .sparking import session

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


def query(
    sql: Annotated[
        str | None,
        typer.Argument(
            metavar="SQL",
            help="As in 'SELECT payload:to, count(*) FROM orders GROUP BY 1'; left out, statements come from stdin.",
            show_default=False,
        ),
    ] = None,
    output_format: Format = None,
    output: Output = None,
    url: Url = None,
) -> None:
    """Ask all topics with SQL.

    Without a statement it asks one after the other, each up to a semicolon.
    """
    format = _format(output_format, output)
    if sql is None and output is not None:
        raise Refused("--output is for one answer: give the statement as an argument, in quotes")
    address = settings.url(url)
    with opening.opened(address):
        pass  # What cannot be opened is told before Spark is started.
    if sql is None and sys.stdin.isatty():
        show.note("a statement ends with a semicolon; exit leaves")
    spark = session()
    if sql is not None:
        _answer(spark, address, sql, format, output)
        return
    for statement in statements():
        try:
            _answer(spark, address, statement, format, None)
        except (Failed, ValueError) as error:
            if not sys.stdin.isatty():
                raise
            show.note(f"eventkit: {' '.join(str(error).split())}")


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
    spark = session()
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

    if format == "table":
        show.table(*table(frame))
    else:
        write(frame, format, output)


def _answer(spark: "SparkSession", url: str, sql: str, format: _Format, output: Path | None) -> None:
    """Answer one statement."""
    from eventkit.spark import query
    from eventkit.spark.complaints import is_sparks, told
    from eventkit.spark.events import ATTEMPTS, overtaken
    from eventkit.spark.output import typed

    for attempt in range(ATTEMPTS):
        try:
            _put(typed(query(spark, url, sql), whole=False), format, output)
            return
        except Exception as error:
            if not is_sparks(error):
                raise
            if not overtaken(error) or attempt == ATTEMPTS - 1:
                raise Failed(told(error)) from error

"""``eventkit query``, ``select``, ``rollup`` and ``report``, which run on Spark."""

import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

from .output import Failed, Refused, Result, Table, note, tables
from .settings import argument, command, group, opened, option, period

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from eventkit.operations.bulk import Sum
    from eventkit.rollup import Span

commands = group()

_Format = Literal["table", "json", "csv", "parquet"]
_Input = Literal["csv", "json", "parquet"]
_Compression = Literal["none", "gzip", "bzip2"]
_Header = Literal["use", "ignore", "none"]
_Values = Literal["lines", "document"]
Format = Annotated[_Format | None, option(None, "Output format; JSON is one object per line.")]
Output = Annotated[Path | None, option("FILE", "Write to this file, in the format of its name.", "--output", "-o")]
Last = Annotated[float, period("The period to show, for example 6h or 30d.")]

_ENDINGS: dict[str, _Format] = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".parquet": "parquet",
}
_PAGE = Path("eventkit-report.html")


@command(commands)
def query(
    address: str,
    sql: Annotated[
        str | None,
        argument("SQL", "For example 'SELECT payload:to, count(*) FROM orders GROUP BY 1'; by default from stdin."),
    ] = None,
    output_format: Format = None,
    output: Output = None,
) -> None:
    """Query streams with SQL.

    Without SQL it reads statements from stdin, each up to a semicolon.
    """
    format = _format(output_format, output)
    if sql is None and output is not None:
        raise Refused("--output needs a statement: pass it as an argument, in quotes")
    if sql is None and sys.stdin.isatty():
        note("end statements with a semicolon; exit to quit")
    spark = _session(address)
    if sql is not None:
        _answer(spark, address, sql, format, output)
        return
    for statement in _statements():
        try:
            _answer(spark, address, statement, format, None)
        except (Failed, ValueError) as error:
            if not sys.stdin.isatty():
                raise
            note(f"eventkit: {' '.join(str(error).split())}")


@command(commands)
def select(
    sql: Annotated[str, argument("SQL", "For example 'SELECT s.id FROM S3Object s LIMIT 5'.")],
    file: Annotated[Path, argument("FILE", "CSV, JSON or Parquet; also .gz and .bz2.")],
    output_format: Format = None,
    output: Output = None,
    input_format: Annotated[_Input | None, option(None, "Format of the file; by default from its name.")] = None,
    compression: Annotated[_Compression | None, option(None, "Compression of the file; detected by default.")] = None,
    csv_header: Annotated[_Header | None, option(None, "First row: column names (default), skipped, or data.")] = None,
    csv_delimiter: Annotated[str | None, option("CHAR", "Field separator; a comma, in .tsv a tab.")] = None,
    csv_quote: Annotated[str, option("CHAR", "Quote character.")] = '"',
    csv_escape: Annotated[str | None, option("CHAR", "Escape character; the quote by default.")] = None,
    json: Annotated[_Values | None, option(None, "A value per line, or one document; detected by default.")] = None,
    scan_range: Annotated[str | None, option("BYTES", "Read the records that begin in 0-999, 1000- or -500.")] = None,
    strict_s3: Annotated[bool, option(None, "Refuse what the service of that name refuses.", "--strict-s3")] = False,
    statistics: Annotated[bool, option(None, "Print the bytes scanned, processed and returned.")] = False,
) -> None:
    """Query one file with the SQL of S3 Select."""
    from eventkit.spark.output import typed, write
    from eventkit.spark.s3select import files, prepare, rows

    format = _format(output_format, output)
    source = files.detect(
        file,
        format=input_format,
        compression=compression,
        csv=files.Csv(csv_header, csv_delimiter, csv_quote, csv_escape),
        json=json,
        scan_range=scan_range,
        strict_s3=strict_s3,
    )
    query = prepare(sql, source, strict_s3)
    with rows(_session(), query) as (frame, read):
        if format == "json":
            returned = write(frame, format, output, optional=query.optional, whole=query.whole)
        else:
            returned = _put(typed(frame, query.whole), format, output)
        if statistics:
            found = files.statistics(source, read, returned)
            note(f"scanned {found.scanned:,} bytes, processed {found.processed:,}, returned {found.returned:,}")


@command(commands)
def rollup(
    address: str,
    streams: Annotated[list[str] | None, argument("STREAM", "Streams to sum up; all by default.")] = None,
    last: Last = "24h",  # type: ignore[assignment]  # Typer parses it.
) -> Result:
    """Sum up new data by the hour, and show the last hours."""
    from eventkit.rollup import spans
    from eventkit.spark.pipeline import rollup
    from eventkit.spark.session import is_sparks, reason_of

    spark = _session(address)
    try:
        for done in rollup(spark, address, streams):
            if done.lost:
                note(f"{done.stream}: events up to {done.lost} were pruned before the rollup")
            if done.events:
                note(f"{done.stream}: {done.events} new events, up to offset {done.offset}")
    except Exception as error:
        if not is_sparks(error):
            raise
        raise Failed(reason_of(error)) from error
    found = spans(_sums(address, last)[2])
    return tables([_record(span) for span in found], _tables(found), "no rollup data for this period")


@command(commands)
def report(
    address: str,
    output: Annotated[Path, option("FILE", "The page; written atomically.", "--output", "-o")] = _PAGE,
    last: Last = "7d",  # type: ignore[assignment]
    title: Annotated[str, option("TEXT", "Title of the page.")] = "eventkit",
) -> None:
    """Write an HTML page with plots of rollup data."""
    from eventkit.report import page

    since, before, sums = _sums(address, last)
    new = output.with_name(f".{output.name}.new")
    try:
        new.write_text(page(sums, since=since, before=before, title=title), "utf-8")
        new.replace(output)
    except OSError as error:
        raise Refused(f"cannot write {output}: {error.strerror}") from None
    note(f"wrote {len({(one.subject, one.name) for one in sums})} streams and queues to {output}")


def _session(address: str | None = None) -> "SparkSession":
    """Start a Spark session without log output, after a look at the database, whose errors are fast."""
    import eventkit.spark

    if address is not None:
        with opened(address):
            pass
    # Spark also raises what it logs here.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    warnings.simplefilter("ignore", FutureWarning)
    with _diverted() as log:
        try:
            return eventkit.spark.session()
        except (FileNotFoundError, ModuleNotFoundError) as error:
            raise Failed(str(error)) from None
        except Exception as error:
            if type(error).__module__.startswith("pyspark"):
                log.seek(0)
                lines = [line for line in log.read().splitlines() if line.strip()]
                raise Failed(f"cannot start Spark: {lines[-1] if lines else error}") from error
            raise


@contextmanager
def _diverted() -> Iterator[IO[str]]:
    """Divert stdout and stderr of the process to a file while Java starts and logs.

    Java keeps these descriptors and ends later than this process, so a reader of a pipe must not wait for it.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    before = [os.dup(1), os.dup(2)]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        for descriptor in (1, 2):
            os.dup2(log.fileno(), descriptor)
        try:
            yield log
        finally:
            for descriptor, own in zip((1, 2), before, strict=True):
                os.dup2(own, descriptor)
                os.close(own)


def _statements() -> Iterator[str]:
    """Yield statements up to the end of the input, or exit."""
    interactive = sys.stdin.isatty()
    if interactive:
        with suppress(ImportError):
            import readline  # noqa: F401  # adds history and editing to input()
    gathered: list[str] = []
    while True:
        prompt = "      ... " if gathered else "eventkit> "
        try:
            line = input(prompt if interactive else "")
        except EOFError:
            break
        if not gathered and line.strip().rstrip(";").lower() in ("exit", "quit", "\\q"):
            return
        if gathered or line.strip():
            gathered.append(line)
        if line.rstrip().endswith(";"):
            yield "\n".join(gathered)
            gathered = []
    if interactive:
        print()
    if gathered:
        yield "\n".join(gathered)


def _format(format: _Format | None, output: Path | None) -> _Format:
    if format is None and output is not None:
        format = _ENDINGS.get(output.suffix.lower())
        if format is None:
            raise Refused(f"unknown file name extension of {output}: pass --output-format json, csv or parquet")
    if format == "parquet" and output is None:
        raise Refused("Parquet needs --output FILE")
    if format == "table" and output is not None:
        raise Refused("--output does not support tables: pass --output-format csv")
    return format or "table"


def _put(frame: "DataFrame", format: _Format, output: Path | None) -> int:
    """Show or write the rows, and return their size in bytes."""
    from eventkit.spark.output import table, write

    if format != "table":
        return write(frame, format, output)
    columns, shown = table(frame)
    Table(columns, shown).show()
    return sum(len(str(value).encode()) for row in shown for value in row if value is not None)


def _answer(spark: "SparkSession", url: str, sql: str, format: _Format, output: Path | None) -> None:
    """Execute a statement; repeat it if the database changed meanwhile."""
    from eventkit.spark import query
    from eventkit.spark.output import typed
    from eventkit.spark.session import is_sparks, reason_of
    from eventkit.spark.views import ATTEMPTS, overtaken

    for attempt in range(ATTEMPTS):
        try:
            _put(typed(query(spark, url, sql), whole=False), format, output)
            return
        except Exception as error:
            if not is_sparks(error):
                raise
            if not overtaken(error) or attempt == ATTEMPTS - 1:
                raise Failed(reason_of(error)) from error


def _sums(url: str, last: float) -> "tuple[datetime, datetime, list[Sum]]":
    """Return a period of whole hours up to now, and its rollup data."""
    from eventkit.rollup import read

    before = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    since = before - timedelta(hours=max(1, -(-last // 3600)))
    with opened(url) as kit:
        return since, before, read(kit, since=since, before=before)


def _tables(spans: "list[Span]") -> Iterator[Table]:
    from eventkit.report import duration

    def hours(subject: str) -> "list[tuple[str, Span]]":
        return [(f"{one.begin:%Y-%m-%d %H:%M}", one) for one in spans if one.subject == subject]

    def latency(milliseconds: float | None) -> str | None:
        return None if milliseconds is None else duration(milliseconds)

    columns = ["hour (UTC)", "stream", "events", "per second", "bytes"]
    rows = [[hour, one.name, one.count("events"), one.rate, one.count("bytes")] for hour, one in hours("stream")]
    yield Table(columns, rows, "Streams")
    columns = ["hour (UTC)", "queue", "enqueued", "ended", "per second", "failed", "dead"]
    columns += ["wait p50", "wait p95", "run p50", "run p95"]
    rows = [
        [
            hour,
            one.name,
            one.count("enqueued"),
            one.attempts,
            one.rate,
            None if one.failure_rate is None else f"{one.failure_rate:.1%}",
            one.count("dead", "expired"),
            *(latency(one.percentile(name, part)) for name in ("wait", "run") for part in (0.5, 0.95)),
        ]
        for hour, one in hours("queue")
    ]
    yield Table(columns, rows, "Queues")


def _record(span: "Span") -> dict[str, Any]:
    """Return the counts of a span, and its latencies in seconds."""
    record: dict[str, Any] = {span.subject: span.name, "hour": span.begin, "rate": span.rate}
    record |= {measure: amount for measure, amount in sorted(span.amounts.items()) if ":" not in measure}
    if span.subject == "queue":
        record["failure_rate"] = span.failure_rate
        for latency in ("wait", "run"):
            for part in (50, 95, 99):
                found = span.percentile(latency, part / 100)
                record[f"{latency}_p{part}"] = None if found is None else found / 1000
    return record

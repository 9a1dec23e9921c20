"""S3 Select's SQL over one file of CSV, JSON or Parquet.

`grammar` parses a query, and `translation` checks it and only then translates it into Spark's SQL, so that errors are
reported in milliseconds.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..output import typed
from ..session import conditions, is_sparks, reason_of
from .files import SUFFIXES, Compression, Csv, File, Format, Statistics, copy_range, detect, documents, statistics
from .grammar import parse
from .kinds import Kind
from .tokens import SelectError
from .translation import SOURCE, Translated, translate

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Prepared", "SelectError", "Selected", "Statistics", "prepare", "rows", "select"]

_CODES = {
    **dict.fromkeys(("CAST_INVALID_INPUT", "INVALID_VARIANT_CAST"), "CastFailed"),
    **dict.fromkeys(("CAST_OVERFLOW", "ARITHMETIC_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE"), "IntegerOverflow"),
    "NUMERIC_OUT_OF_SUPPORTED_RANGE": "IntegerOverflow",
    **dict.fromkeys(("DIVIDE_BY_ZERO", "REMAINDER_BY_ZERO", "DATETIME_OVERFLOW"), "EvaluatorInvalidArguments"),
    "INVALID_FORMAT": "LikeInvalidInputs",
    "CANNOT_PARSE_TIMESTAMP": "ValueParseFailure",
    **dict.fromkeys(("MALFORMED_RECORD_IN_PARSING", "MALFORMED_VARIANT"), "JSONParsingError"),
    "MALFORMED_CSV_RECORD": "CSVParsingError",
    "VARIANT_SIZE_LIMIT": "OverMaxRecordSize",
}
"""Errors that Spark detects only when it reads."""

_REMEDIES = {
    "CastFailed": "exclude such rows in WHERE, or make them NULL with NULLIF",
    "IntegerOverflow": "CAST to FLOAT, which has a larger range",
    "EvaluatorInvalidArguments": "exclude such rows in WHERE",
    "JSONParsingError": "repair the file; --json selects lines or documents",
    "OverMaxRecordSize": "split the document into lines",
}

_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
}
"""The settings that `translation` requires, regardless of the session."""


class Prepared(NamedTuple):
    """A parsed query, and the file that it reads."""

    sql: str
    file: File
    translated: Translated

    @property
    def whole(self) -> bool:
        """Whether each record of JSON is returned whole."""
        return self.translated.names is None

    @property
    def optional(self) -> set[str]:
        """The columns that are omitted from a JSON record that does not have them."""
        names = self.translated.names or ()
        kinds = zip(names, self.translated.kinds, strict=True) if names else ()
        return {name for name, kind in kinds if kind is Kind.ANY and self.file.format == "json"}


class Selected(NamedTuple):
    """The answer of a query: the rows, and the bytes that it took."""

    rows: "pyarrow.Table"
    statistics: Statistics


def select(
    spark: "SparkSession",
    sql: str,
    path: str | Path,
    *,
    format: Format | None = None,
    compression: Compression | None = None,
    csv: Csv | None = None,
    json: Literal["lines", "document"] | None = None,
    scan_range: str | None = None,
    strict_s3: bool = False,
) -> Selected:
    """Query one file of CSV, JSON or Parquet with the SQL of S3 Select, as `eventkit select` does."""
    file = detect(
        path,
        format=format,
        compression=compression,
        csv=csv,
        json=json,
        scan_range=scan_range,
        strict_s3=strict_s3,
    )
    query = prepare(sql, file, strict_s3)
    with rows(spark, query) as (frame, read):
        table = typed(frame, query.whole).toArrow()
        return Selected(table, statistics(file, read, table.nbytes))


def prepare(sql: str, file: File, strict_s3: bool = False) -> Prepared:
    """Parse and check the query, without Spark."""
    return Prepared(sql, file, translate(sql, parse(sql, strict_s3), file))


@contextmanager
def rows(spark: "SparkSession", query: Prepared) -> "Iterator[tuple[DataFrame, Path]]":
    """Provide the rows that the query selects, and the file that is read; raise Spark's errors as `SelectError`."""
    spark = spark.newSession()
    for option, value in _SETTINGS.items():
        spark.conf.set(option, value)
    with tempfile.TemporaryDirectory(prefix="eventkit-select-") as folder:
        try:
            frame, read = _source(spark, query.file, Path(folder))
            frame.createOrReplaceTempView(SOURCE)
            yield spark.sql(query.translated.sql), read
        except Exception as error:
            if not is_sparks(error):
                raise
            raise _error(query, error) from error
        finally:
            spark.catalog.dropTempView(SOURCE)


def _source(spark: "SparkSession", file: File, folder: Path) -> "tuple[DataFrame, Path]":
    """Return the file's rows, with the column names of the translated query, and the file that Spark reads."""
    if file.format == "json" and not file.lines:
        import pyarrow

        texts = pyarrow.table({"value": pyarrow.array(documents(file), pyarrow.large_string())})
        return spark.createDataFrame(texts).selectExpr("parse_json(value) AS r"), file.path
    # Spark derives the compression from the name, and treats some names as patterns or hidden files.
    path = folder / f"data.{file.format}{SUFFIXES[file.compression]}"
    if file.range is None:
        os.symlink(file.path.resolve(), path)
    else:
        copy_range(file, path)
    if file.format == "parquet":
        return spark.read.parquet(str(path)), path
    if file.format == "json":
        lines = spark.read.text(str(path)).where("value RLIKE '\\\\S'")
        return lines.selectExpr("parse_json(trim(LEADING '\\ufeff' FROM value)) AS r"), path
    rules = file.csv
    places = range(len(file.columns or ()))
    read = (
        spark.read.schema(", ".join(f"c{place} STRING" for place in places))
        .options(sep=rules.delimiter, quote=rules.quote, escape=rules.escape, header=rules.header != "none")
        # Spark takes an empty field for NULL in any case, and a line break in quotes for text only with this option.
        .options(multiLine=True)
        .csv(str(path))
    )
    return read.selectExpr(*(f"coalesce(c{place}, '') AS c{place}" for place in places)), path


def _error(query: Prepared, error: Exception) -> SelectError:
    found = [condition.partition(".")[0] for condition in conditions(error)]
    code = next((_CODES[condition] for condition in found if condition in _CODES), None)
    if code is None:
        return SelectError("InvalidDataSource", f"{query.file.path} cannot be read: {reason_of(error)}")
    sentence = reason_of(error).partition(". ")[0]
    return SelectError(code, f"{sentence}: {_REMEDIES.get(code, 'correct it')}")

"""S3 Select's SQL over one file of CSV, JSON or Parquet.

`grammar` parses a query, and `translation` checks it and only then translates it into Spark's SQL, so that errors are
reported in milliseconds.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..session import conditions, is_sparks, reason_of
from .files import SUFFIXES, File, documents
from .grammar import parse
from .kinds import Kind
from .tokens import SelectError
from .translation import SOURCE, Translated, translate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Prepared", "SelectError", "prepare", "rows"]

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
    def optional(self) -> set[str]:
        """The columns that are omitted from a JSON record that does not have them."""
        names = self.translated.names or ()
        kinds = zip(names, self.translated.kinds, strict=True) if names else ()
        return {name for name, kind in kinds if kind is Kind.ANY and self.file.format == "json"}


def prepare(sql: str, file: File) -> Prepared:
    """Parse and check the query, without Spark."""
    return Prepared(sql, file, translate(sql, parse(sql), file))


@contextmanager
def rows(spark: "SparkSession", query: Prepared) -> "Iterator[DataFrame]":
    """Provide the rows that the query selects, and raise Spark's errors as `SelectError`."""
    spark = spark.newSession()
    for option, value in _SETTINGS.items():
        spark.conf.set(option, value)
    with tempfile.TemporaryDirectory(prefix="eventkit-select-") as folder:
        try:
            _source(spark, query.file, Path(folder)).createOrReplaceTempView(SOURCE)
            yield spark.sql(query.translated.sql)
        except Exception as error:
            if not is_sparks(error):
                raise
            raise _error(query, error) from error
        finally:
            spark.catalog.dropTempView(SOURCE)


def _source(spark: "SparkSession", file: File, folder: Path) -> "DataFrame":
    """Return the file's rows, with the column names of the translated query."""
    if file.format == "json" and not file.lines:
        import pyarrow

        texts = pyarrow.table({"value": pyarrow.array(documents(file), pyarrow.large_string())})
        return spark.createDataFrame(texts).selectExpr("parse_json(value) AS r")
    # Spark derives the compression from the name, and treats some names as patterns or hidden files.
    path = folder / f"data.{file.format}{SUFFIXES[file.compression]}"
    os.symlink(file.path.resolve(), path)
    if file.format == "parquet":
        return spark.read.parquet(str(path))
    if file.format == "json":
        lines = spark.read.text(str(path)).where("value RLIKE '\\\\S'")
        return lines.selectExpr("parse_json(trim(LEADING '\\ufeff' FROM value)) AS r")
    rules = file.csv
    places = range(len(file.columns or ()))
    read = (
        spark.read.schema(", ".join(f"c{place} STRING" for place in places))
        .options(sep=rules.delimiter, quote=rules.quote, escape=rules.escape, header=rules.header != "none")
        # Spark takes an empty field for NULL in any case, and a line break in quotes for text only with this option.
        .options(multiLine=True)
        .csv(str(path))
    )
    return read.selectExpr(*(f"coalesce(c{place}, '') AS c{place}" for place in places))


def _error(query: Prepared, error: Exception) -> SelectError:
    found = [condition.partition(".")[0] for condition in conditions(error)]
    code = next((_CODES[condition] for condition in found if condition in _CODES), None)
    if code is None:
        return SelectError("InvalidDataSource", f"{query.file.path} cannot be read: {reason_of(error)}")
    sentence = reason_of(error).partition(". ")[0]
    return SelectError(code, f"{sentence}: {_REMEDIES.get(code, 'correct it')}")

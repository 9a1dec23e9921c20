"""Running a query of S3 Select: from a file and a text to rows."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..complaints import conditions, is_sparks, told
from .files import SUFFIXES, File, documents
from .functions import Kind
from .grammar import parse
from .refusing import SelectError
from .translating import SOURCE, Translated, translate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CODES = {
    "CAST_INVALID_INPUT": "CastFailed",
    "INVALID_VARIANT_CAST": "CastFailed",
    "CAST_OVERFLOW": "IntegerOverflow",
    "ARITHMETIC_OVERFLOW": "IntegerOverflow",
    "NUMERIC_VALUE_OUT_OF_RANGE": "IntegerOverflow",
    "NUMERIC_OUT_OF_SUPPORTED_RANGE": "IntegerOverflow",
    "DIVIDE_BY_ZERO": "EvaluatorInvalidArguments",
    "REMAINDER_BY_ZERO": "EvaluatorInvalidArguments",
    "DATETIME_OVERFLOW": "EvaluatorInvalidArguments",
    "INVALID_FORMAT": "LikeInvalidInputs",
    "CANNOT_PARSE_TIMESTAMP": "ValueParseFailure",
    "MALFORMED_RECORD_IN_PARSING": "JSONParsingError",
    "MALFORMED_VARIANT": "JSONParsingError",
    "MALFORMED_CSV_RECORD": "CSVParsingError",
    "VARIANT_SIZE_LIMIT": "OverMaxRecordSize",
}
"""What Spark notices only when it reads."""

_REMEDIES = {
    "CastFailed": "leave such rows out in WHERE, or make them NULL with NULLIF",
    "IntegerOverflow": "CAST to FLOAT, which holds more",
    "EvaluatorInvalidArguments": "leave such rows out in WHERE",
    "JSONParsingError": "mend the file; --json says whether it has lines or documents",
    "OverMaxRecordSize": "split the document into lines",
}


_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
}
"""What `translating` counts on, whatever the session has been told."""


class Prepared(NamedTuple):
    """A query that was understood, and the file that it reads."""

    sql: str
    file: File
    translated: Translated

    @property
    def optional(self) -> set[str]:
        """The columns that are left out of a record of JSON that does not have them."""
        names = self.translated.names or ()
        kinds = zip(names, self.translated.kinds, strict=True) if names else ()
        return {name for name, kind in kinds if kind is Kind.ANY and self.file.format == "json"}


def prepare(sql: str, file: File) -> Prepared:
    """Understand the query, without Spark."""
    return Prepared(sql, file, translate(sql, parse(sql), file))


@contextmanager
def rows(spark: "SparkSession", query: Prepared) -> "Iterator[DataFrame]":
    """What the query selects, for as long as the body runs; what Spark complains of is a `SelectError`."""
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
            raise _complaint(query, error) from error
        finally:
            spark.catalog.dropTempView(SOURCE)


def _source(spark: "SparkSession", file: File, folder: Path) -> "DataFrame":
    """The file's rows, under the names that the translated query has for them."""
    if file.format == "json" and not file.lines:
        import pyarrow

        texts = pyarrow.table({"value": pyarrow.array(documents(file), pyarrow.large_string())})
        return spark.createDataFrame(texts).selectExpr("parse_json(value) AS r")
    # Spark goes by names: for the compression, and for patterns and hidden files, which this one may look like.
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
        # Spark takes an empty field for NULL whatever it is told, and a line break in quotes for one only if told.
        .options(multiLine=True)
        .csv(str(path))
    )
    return read.selectExpr(*(f"coalesce(c{place}, '') AS c{place}" for place in places))


def _complaint(query: Prepared, error: Exception) -> SelectError:
    found = [condition.partition(".")[0] for condition in conditions(error)]
    code = next((_CODES[condition] for condition in found if condition in _CODES), None)
    if code is None:
        return SelectError("InvalidDataSource", f"{query.file.path} cannot be read: {told(error)}")
    sentence = told(error).partition(". ")[0]
    return SelectError(code, f"{sentence}: {_REMEDIES.get(code, 'correct it')}")

"""The rows of a query as a table of texts, as JSON, as CSV or as Parquet, on stdout or in a file."""

import csv
import json
import math
import re
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Format = Literal["json", "csv", "parquet"]
_ROWS = 10_000
"""That are held as Python's values at once."""


def write(
    frame: "DataFrame",
    format: Format,
    target: Path | None,
    *,
    optional: Collection[str] = (),
    whole: bool = False,
) -> None:
    """Write the rows of *frame* to *target*, or to stdout.

    A file is there when it is whole.  *optional* columns are left out of an object of JSON where they are NULL.
    Where the rows are *whole*, their one column has what an object is made of.
    """
    if format == "parquet":
        assert target is not None
        _parquet(frame, target)
        return
    table, texts = _collected(frame)
    with _opened(target) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        if format == "csv":
            writer.writerow(frame.columns)
        for batch in table.to_batches(_ROWS):
            for row in batch.to_pylist():
                if format == "csv":
                    writer.writerow([_seen(value) for value in row.values()])
                elif format == "json":
                    stream.write(_whole(row) if whole else _object(row, texts, optional))
                    stream.write("\n")


def table(frame: "DataFrame") -> tuple[list[str], list[list[Any]]]:
    """The columns and the rows, as somebody reads them."""
    found, _ = _collected(frame)
    return frame.columns, [[_seen(value) for value in row.values()] for row in found.to_pylist()]


def _collected(frame: "DataFrame") -> tuple[Any, set[str]]:
    """All rows as a table of Arrow, and which columns are there as JSON, because something lies in them."""
    nested = ("variant", "map", "struct", "array")
    texts = {field.name for field in frame.schema if field.dataType.typeName() in nested}
    return frame.selectExpr(*(_as_text(name, name in texts) for name in frame.columns)).toArrow(), texts


def _object(row: dict[str, Any], texts: Collection[str], optional: Collection[str]) -> str:
    """The row as an object of JSON."""
    fields = []
    for name, value in row.items():
        if value is None and name in optional:
            continue
        text = value if name in texts and value is not None else _json(value)
        fields.append(f"{json.dumps(name, ensure_ascii=False)}:{text}")
    return "{" + ",".join(fields) + "}"


def _whole(row: dict[str, Any]) -> str:
    (text,) = row.values()
    if text is None:
        return "{}"
    return str(text) if text.startswith("{") else f'{{"_1":{text}}}'


def _json(value: Any) -> str:
    """A value that is no list and no struct."""
    if isinstance(value, Decimal):
        return _digits(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "null"
    if isinstance(value, datetime | date):
        value = _iso(value)
    elif isinstance(value, bytes):
        value = value.hex()
    return json.dumps(value, ensure_ascii=False, default=str)


def _seen(value: Any) -> Any:
    """A value in a table or in CSV."""
    if isinstance(value, Decimal):
        return _digits(value)
    if isinstance(value, datetime | date):
        return _iso(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.hex() if isinstance(value, bytes) else value


def _digits(value: Decimal) -> str:
    """Without the zeros of a scale that Spark has chosen: six places or more."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if int(value.as_tuple().exponent) <= -6 else text


def _iso(value: date) -> str:
    return value.isoformat().replace("+00:00", "Z")


def _as_text(name: str, nested: bool) -> str:
    """A column as Arrow has it, what is nested as its JSON."""
    column = "`" + name.replace("`", "``") + "`"
    return f"to_json({column}, map('ignoreNullFields', 'false')) AS {column}" if nested else column


@contextmanager
def _opened(target: Path | None) -> Iterator[IO[str]]:
    if target is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    with _beside(target) as folder:
        with (folder / "written").open("w", encoding="utf-8", newline="") as stream:
            yield stream
        (folder / "written").replace(target)


def _parquet(frame: "DataFrame", target: Path) -> None:
    """One file with the rows in their order, of those that Spark writes side by side."""
    from pyarrow import parquet

    with _beside(target) as folder:
        frame.write.parquet(str(folder / "parts"), compression="zstd")
        parts = sorted((folder / "parts").glob("part-*.parquet"))
        schema = parquet.read_schema(parts[0])
        with parquet.ParquetWriter(folder / "written", schema, compression="zstd") as writer:
            for part in parts:
                with parquet.ParquetFile(part) as file:
                    for group in range(file.num_row_groups):
                        writer.write_table(file.read_row_group(group).cast(schema))
        (folder / "written").replace(target)


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A folder on the same disk, for as long as the file is not whole."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=".eventkit-", dir=target.absolute().parent))
    except OSError as error:
        raise ValueError(f"{target} cannot be written: {error.strerror}") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def typed(frame: "DataFrame", whole: bool) -> "DataFrame":
    """*frame* with variants as columns of the types that are in them; what is mixed becomes its text.

    Where the rows are *whole*, the fields of their one variant become the columns.
    """
    variants = [field.name for field in frame.schema if field.dataType.typeName() == "variant"]
    if not variants:
        return frame
    quoted = {name: "`" + name.replace("`", "``") + "`" for name in frame.columns}
    found = frame.selectExpr(*(f"schema_of_variant_agg({quoted[name]}) AS {quoted[name]}" for name in variants))
    types = {name: _spark_type(text) for name, text in found.collect()[0].asDict().items()}
    casts = [
        f"CAST({column} AS {types[name]}) AS {column}" if name in types else column for name, column in quoted.items()
    ]
    made = frame.selectExpr(*casts)
    if not whole:
        return made
    (name,) = variants
    return made.selectExpr(f"{quoted[name]}.*" if types[name].startswith("STRUCT<") else f"{quoted[name]} AS _1")


def _spark_type(text: str | None) -> str:
    """The type that Spark found in variants as one that can be cast to."""
    parts: Sequence[str] = re.split(r"(`(?:[^`]|``)*`)", text or "VOID")
    return "".join(
        part
        if part.startswith("`")
        else re.sub(r"\b(?:VOID|VARIANT)\b(?!:)", "STRING", re.sub(r"\bOBJECT<", "STRUCT<", part))
        for part in parts
    )

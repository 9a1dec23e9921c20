"""Output of a query's rows as a text table, JSON, CSV or Parquet, on stdout or in a file."""

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

from .session import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Format = Literal["json", "csv", "parquet"]
_ROWS = 10_000
"""Rows that are held as Python values at once."""


def write(
    frame: "DataFrame",
    format: Format,
    target: Path | None,
    *,
    optional: Collection[str] = (),
    whole: bool = False,
) -> int:
    """Write the rows of *frame* to *target*, or to stdout, and return the number of bytes.

    A file appears when it is complete.  *optional* columns are omitted from a JSON object where they are NULL.
    If the rows are *whole*, their one column contains the fields of the object.
    """
    if format == "parquet":
        assert target is not None
        _parquet(frame, target)
        return target.stat().st_size
    table, texts = _collected(frame)
    with _opened(target) as stream:
        counted = _Counted(stream)
        writer = csv.writer(counted, lineterminator="\n")
        if format == "csv":
            writer.writerow(frame.columns)
        for row in (row for batch in table.to_batches(_ROWS) for row in batch.to_pylist()):
            if format == "csv":
                writer.writerow([_seen(value) for value in row.values()])
            else:
                counted.write(f"{_whole(row) if whole else _object(row, texts, optional)}\n")
    return counted.size


class _Counted:
    """A stream that counts the bytes of what is written to it."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.size = 0

    def write(self, text: str) -> None:
        self._stream.write(text)
        self.size += len(text.encode())


def table(frame: "DataFrame") -> tuple[list[str], list[list[Any]]]:
    """Return the columns and the rows as text for display."""
    found, _ = _collected(frame)
    return frame.columns, [[_seen(value) for value in row.values()] for row in found.to_pylist()]


def _collected(frame: "DataFrame") -> tuple[Any, set[str]]:
    """Return all rows as a table of Arrow, and the nested columns, which are JSON in it."""
    nested = ("variant", "map", "struct", "array")
    texts = {field.name for field in frame.schema if field.dataType.typeName() in nested}
    return frame.selectExpr(*(_as_text(name, name in texts) for name in frame.columns)).toArrow(), texts


def _object(row: dict[str, Any], texts: Collection[str], optional: Collection[str]) -> str:
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
    """Return a value for a table or CSV."""
    if isinstance(value, Decimal):
        return _digits(value)
    if isinstance(value, datetime | date):
        return _iso(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.hex() if isinstance(value, bytes) else value


def _digits(value: Decimal) -> str:
    """Return a decimal without the trailing zeros of the scale that Spark has chosen."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if int(value.as_tuple().exponent) <= -6 else text


def _iso(value: date) -> str:
    return value.isoformat().replace("+00:00", "Z")


def _as_text(name: str, nested: bool) -> str:
    """Return a column for Arrow; a nested one as JSON."""
    column = quoted(name)
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
    """Write one file with the rows in order, from those that Spark writes in parallel."""
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
    """Provide a folder on the same disk until the file is complete."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=".eventkit-", dir=target.absolute().parent))
    except OSError as error:
        raise ValueError(f"{target} cannot be written: {error.strerror}") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def typed(frame: "DataFrame", whole: bool) -> "DataFrame":
    """Return *frame* with variants as columns of the types that they contain; mixed types become text.

    If the rows are *whole*, the fields of their one variant become the columns.
    """
    variants = [field.name for field in frame.schema if field.dataType.typeName() == "variant"]
    if not variants:
        return frame
    found = frame.selectExpr(*(f"schema_of_variant_agg({quoted(name)}) AS {quoted(name)}" for name in variants))
    types = {name: _spark_type(text) for name, text in found.collect()[0].asDict().items()}
    columns = {name: quoted(name) for name in frame.columns}
    columns |= {name: f"CAST({quoted(name)} AS {type}) AS {quoted(name)}" for name, type in types.items()}
    made = frame.selectExpr(*columns.values())
    if not whole:
        return made
    (name,) = variants
    return made.selectExpr(f"{quoted(name)}.*" if types[name].startswith("STRUCT<") else f"{quoted(name)} AS _1")


def _spark_type(text: str | None) -> str:
    """Return the type that Spark found in variants as one to cast to."""
    parts: Sequence[str] = re.split(r"(`(?:[^`]|``)*`)", text or "VOID")
    return "".join(
        part
        if part.startswith("`")
        else re.sub(r"\b(?:VOID|VARIANT)\b(?!:)", "STRING", re.sub(r"\bOBJECT<", "STRUCT<", part))
        for part in parts
    )

"""The file that a query reads: its format, compression and columns, detected before Spark starts."""

import bz2
import csv
import gzip
import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Literal

from .kinds import Kind
from .tokens import SelectError

Format = Literal["csv", "json", "parquet"]
Header = Literal["use", "ignore", "none"]
Compression = Literal["none", "gzip", "bzip2"]

_FORMATS: dict[str, Format] = {
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    ".parquet": "parquet",
}
SUFFIXES: dict[Compression, str] = {"none": "", "gzip": ".gz", "bzip2": ".bz2"}
_MAGIC: tuple[tuple[bytes, Compression], ...] = ((b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"))
_LONGEST_HEADER = 1_000_000
"""The most characters of the first row."""


@dataclass(frozen=True)
class Csv:
    """The format of a CSV file, with the defaults of S3 Select; the header is used only if configured."""

    header: Header = "use"
    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'

    def __post_init__(self) -> None:
        for name in ("delimiter", "quote", "escape"):
            if len(getattr(self, name)) != 1 or getattr(self, name) in "\r\n":
                raise SelectError("InvalidRequestParameter", f"the CSV's {name} is one character")
        if self.delimiter == self.quote:
            raise SelectError("InvalidRequestParameter", "the delimiter and the quote of CSV must differ")


@dataclass(frozen=True)
class Field:
    """A column: its name, its kind, and for a nested one its type in pyarrow."""

    name: str
    kind: Kind = Kind.ANY
    type: Any = field(default=None, compare=False)


@dataclass(frozen=True)
class File:
    """The properties of the file.  ``columns`` is None for JSON, where each record has its own."""

    path: Path
    format: Format
    compression: Compression = "none"
    csv: Csv = Csv()
    lines: bool = True
    """Whether each line is a JSON value; otherwise any whitespace separates the values."""
    columns: tuple[Field, ...] | None = None


def detect(
    path: str | Path,
    *,
    format: Format | None = None,
    compression: Compression | None = None,
    csv: Csv | None = None,
    json: Literal["lines", "document"] | None = None,
) -> File:
    """Return the file at *path*; options that are not given are detected."""
    path = Path(path)
    if not path.is_file():
        what = "a folder" if path.is_dir() else "not there"
        raise SelectError("InvalidDataSource", f"{path} is {what}: name one file of CSV, JSON or Parquet")
    found = _compression(path, compression)
    stem = path.with_suffix("") if path.suffix in (".gz", ".bz2") else path
    format = format or _FORMATS.get(stem.suffix.lower())
    if format is None:
        reason = f"the name of {path} does not show its format: pass --input-format csv, json or parquet"
        raise SelectError("InvalidRequestParameter", reason)
    if csv is None:
        csv = Csv(delimiter="\t") if stem.suffix.lower() == ".tsv" else Csv()
    file = File(path, format, found, csv)
    if format == "csv":
        return replace(file, columns=_csv_columns(file))
    if format == "parquet":
        if found != "none":
            reason = f"{path} is a compressed Parquet file, which is not supported: decompress it first"
            raise SelectError("InvalidCompressionFormat", reason)
        return replace(file, columns=_parquet_columns(path))
    return replace(file, lines=_is_lines(file) if json is None else json == "lines")


@contextmanager
def _text(file: File) -> Iterator[IO[str]]:
    """Open the file as decompressed text, and raise the reason if it cannot be read as `SelectError`."""
    opened: Any = {"none": open, "gzip": gzip.open, "bzip2": bz2.open}[file.compression]
    try:
        with io.TextIOWrapper(opened(file.path, "rb"), encoding="utf-8-sig", newline="") as stream:
            yield stream
    except UnicodeDecodeError as error:
        parsing = "CSVParsingError" if file.format == "csv" else "JSONParsingError"
        reason = f"{file.path} is not in UTF-8, at byte {error.start}: convert it first"
        raise SelectError(parsing, reason) from None
    except (OSError, EOFError) as error:
        if file.compression == "none":
            raise SelectError("InvalidDataSource", f"{file.path} cannot be read: {error}") from None
        raise SelectError("InvalidCompressionFormat", f"{file.path} is damaged or truncated: {error}") from None


def documents(file: File) -> Iterator[str]:
    """Yield the JSON values of the file, with any separators, each as its text."""
    with _text(file) as stream:
        whole = stream.read()
    decoder, blank = json.JSONDecoder(), re.compile(r"[ \t\r\n]*")
    try:
        place = 0
        while (begin := blank.match(whole, place).end()) < len(whole):  # type: ignore[union-attr]
            _, place = decoder.raw_decode(whole, begin)
            yield whole[begin:place]
    except (json.JSONDecodeError, RecursionError) as error:
        raise SelectError("JSONParsingError", f"{file.path} is not JSON: {error}") from None


def _compression(path: Path, given: Compression | None) -> Compression:
    try:
        with path.open("rb") as stream:
            first = stream.read(4)
    except OSError as error:
        raise SelectError("InvalidDataSource", f"{path} cannot be read: {error.strerror}") from None
    found: Compression = "none"
    for magic, name in _MAGIC:
        if first.startswith(magic):
            found = name
    if given not in (None, "none", found):
        reason = f"{path} is not compressed with {given}: omit --compression to detect it"
        raise SelectError("InvalidCompressionFormat", reason)
    return found if given is None else given


def _csv_columns(file: File) -> tuple[Field, ...]:
    rules = file.csv
    doubled = rules.escape == rules.quote
    try:
        with _text(file) as stream:
            lines = iter(lambda: stream.readline(_LONGEST_HEADER), "")
            rows = csv.reader(
                (line for line in lines if line.strip("\r\n")),
                delimiter=rules.delimiter,
                quotechar=rules.quote,
                doublequote=doubled,
                escapechar=None if doubled else rules.escape,
            )
            first = next(rows, None)
    except csv.Error as error:
        raise SelectError("CSVParsingError", f"the first row of {file.path} is not CSV: {error}") from None
    if first is None:
        raise SelectError("CSVParsingError", f"{file.path} is empty: there is nothing to select from")
    names: list[str] = []
    for number, name in enumerate(first, 1):
        used = file.csv.header == "use" and name and name not in names
        names.append(name if used else f"_{number}")
    return tuple(map(Field, names))


def _parquet_columns(path: Path) -> tuple[Field, ...]:
    import pyarrow
    import pyarrow.parquet

    try:
        schema = pyarrow.parquet.read_schema(path)
    except (pyarrow.ArrowException, OSError) as error:
        reason = f"{path} is not Parquet: {str(error).splitlines()[0]}"
        raise SelectError("ParquetParsingError", reason) from None
    return tuple(Field(column.name, kind_of(column.type), column.type) for column in schema)


def kind_of(type: Any) -> Kind:
    """Return the kind for a type of pyarrow."""
    from pyarrow import types

    kinds = (
        (types.is_boolean, Kind.BOOLEAN),
        (types.is_integer, Kind.INTEGER),
        (types.is_floating, Kind.FLOAT),
        (types.is_decimal, Kind.DECIMAL),
        (types.is_timestamp, Kind.MOMENT),
        (types.is_date, Kind.MOMENT),
        (types.is_nested, Kind.NESTED),
        (types.is_null, Kind.NULL),
    )
    return next((kind for is_such, kind in kinds if is_such(type)), Kind.TEXT)


def _is_lines(file: File) -> bool:
    """Return whether the first line is a complete JSON value, and the only one or followed by another line."""
    with _text(file) as stream:
        try:
            json.loads(next((line for line in stream if line.strip()), "null"))
        except (ValueError, RecursionError):
            return False
    return True

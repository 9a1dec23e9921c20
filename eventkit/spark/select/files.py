"""The file that a query reads: its format, compression and columns, detected before Spark starts."""

import bz2
import csv
import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Literal

from . import SelectError
from .kinds import Kind

Format = Literal["csv", "json", "parquet"]
Header = Literal["use", "ignore", "none"]
Compression = Literal["none", "gzip", "bzip2"]

_FORMATS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
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


def look(
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


def text(file: File) -> IO[str]:
    """Open the file as decompressed text."""
    opened: Any = {"none": open, "gzip": gzip.open, "bzip2": bz2.open}[file.compression]
    return io.TextIOWrapper(opened(file.path, "rb"), encoding="utf-8-sig", newline="")


def documents(file: File) -> Iterator[str]:
    """Yield the JSON values of the file, with any separators, each as its text."""
    try:
        with text(file) as stream:
            whole = stream.read()
        decoder = json.JSONDecoder()
        place = 0
        while True:
            while place < len(whole) and whole[place] in " \t\r\n":
                place += 1
            if place == len(whole):
                return
            _, end = decoder.raw_decode(whole, place)
            yield whole[place:end]
            place = end
    except (json.JSONDecodeError, RecursionError) as error:
        raise SelectError("JSONParsingError", f"{file.path} is not JSON: {error}") from None
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise unreadable(file, error) from None


def unreadable(file: File, error: Exception) -> SelectError:
    """Return the reason why the file cannot be read."""
    if isinstance(error, UnicodeDecodeError):
        parsing = "CSVParsingError" if file.format == "csv" else "JSONParsingError"
        return SelectError(parsing, f"{file.path} is not in UTF-8, at byte {error.start}: convert it first")
    if isinstance(error, gzip.BadGzipFile | EOFError) or (file.compression != "none" and isinstance(error, OSError)):
        reason = f"{file.path} is damaged or truncated: {error}"
        return SelectError("InvalidCompressionFormat", reason)
    return SelectError("InvalidDataSource", f"{file.path} cannot be read: {error}")


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
        with text(file) as stream:
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
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise unreadable(file, error) from None
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

    if types.is_boolean(type):
        return Kind.BOOLEAN
    if types.is_integer(type):
        return Kind.INTEGER
    if types.is_floating(type):
        return Kind.FLOAT
    if types.is_decimal(type):
        return Kind.DECIMAL
    if types.is_timestamp(type) or types.is_date(type):
        return Kind.MOMENT
    if types.is_nested(type):
        return Kind.NESTED
    return Kind.NULL if types.is_null(type) else Kind.TEXT


def _is_lines(file: File) -> bool:
    """Return whether the first line is a complete JSON value, and the only one or followed by another line."""
    try:
        with text(file) as stream:
            for line in stream:
                if line.strip():
                    json.loads(line)
                    return True
    except (ValueError, RecursionError):
        return False
    except (OSError, EOFError) as error:
        raise unreadable(file, error) from None
    return True

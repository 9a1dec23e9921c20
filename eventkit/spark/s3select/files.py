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
from typing import IO, Any, Literal, NamedTuple

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
    """The format of a CSV file.

    By default the first row is the header (with *strict_s3*, data), the *delimiter* is a tab in ``.tsv`` and a comma
    in other files, and *escape* is the quote.
    """

    header: Header | None = None
    delimiter: str | None = None
    quote: str = '"'
    escape: str | None = None

    def __post_init__(self) -> None:
        for name in ("delimiter", "quote", "escape"):
            if (text := getattr(self, name)) is not None and (len(text) != 1 or text in "\r\n"):
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
    csv: Csv = Csv("use", ",", escape='"')
    lines: bool = True
    """Whether each line is a JSON value; otherwise any whitespace separates the values."""
    columns: tuple[Field, ...] | None = None
    range: tuple[int, int] | None = None
    """The first and the last byte at which records to read may begin."""


class Statistics(NamedTuple):
    """The bytes of a query: those *scanned* in the file, *processed* without compression, and *returned*."""

    scanned: int
    processed: int
    returned: int


def detect(
    path: str | Path,
    *,
    format: Format | None = None,
    compression: Compression | None = None,
    csv: Csv | None = None,
    json: Literal["lines", "document"] | None = None,
    scan_range: str | None = None,
    strict_s3: bool = False,
) -> File:
    """Return the file at *path*; options that are not given are detected.

    With *strict_s3* they have the defaults of the service instead: no compression, and a first row of data.
    """
    path = Path(path)
    if not path.is_file():
        what = "a folder" if path.is_dir() else "not there"
        raise SelectError("InvalidDataSource", f"{path} is {what}: name one file of CSV, JSON or Parquet")
    found = _compression(path, compression)
    if strict_s3 and compression is None and found != "none":
        reason = f"{path} is compressed with {found}, which the service does not detect: pass --compression {found}"
        raise SelectError("InvalidCompressionFormat", reason)
    stem = path.with_suffix("") if path.suffix in (".gz", ".bz2") else path
    format = format or _FORMATS.get(stem.suffix.lower())
    if format is None:
        reason = f"the name of {path} does not show its format: pass --input-format csv, json or parquet"
        raise SelectError("InvalidRequestParameter", reason)
    csv = csv or Csv()
    header = csv.header or ("none" if strict_s3 else "use")
    delimiter = csv.delimiter or ("\t" if stem.suffix.lower() == ".tsv" else ",")
    file = File(path, format, found, Csv(header, delimiter, csv.quote, csv.escape or csv.quote))
    if scan_range is not None:
        file = replace(file, range=_range(scan_range, file))
    if format == "csv":
        return replace(file, columns=_csv_columns(file))
    if format == "parquet":
        if found != "none":
            reason = f"{path} is a compressed Parquet file, which is not supported: decompress it first"
            raise SelectError("InvalidCompressionFormat", reason)
        return replace(file, columns=_parquet_columns(path))
    lines = _is_lines(file) if json is None else json == "lines"
    if file.range is not None and not lines:
        raise SelectError("UnsupportedScanRangeInput", "a scan range needs JSON lines: documents have no boundaries")
    return replace(file, lines=lines)


def _range(text: str, file: File) -> tuple[int, int]:
    """Return the first and the last byte of a range: ``100-199``, ``100-`` or, for the last 100 bytes, ``-100``."""
    if file.compression != "none":
        raise SelectError("UnsupportedScanRangeInput", "a scan range needs a file without compression")
    size = file.path.stat().st_size
    found = re.fullmatch(r"(\d*)-(\d*)", text)
    if found is None or not any(found.groups()):
        raise SelectError("InvalidScanRange", f"a scan range is written as 0-999, 1000- or -500, not {text!r}")
    first, last = found.groups()
    if not first:
        return max(0, size - int(last)), size
    if last and int(last) < int(first):
        raise SelectError("InvalidScanRange", f"the scan range {text} ends before it begins")
    return int(first), int(last or size)


def copy_range(file: File, target: Path) -> None:
    """Copy the records that begin in the range of *file*, each of them whole, and the header of CSV."""
    assert file.range is not None
    first, last = file.range
    if file.format == "parquet":
        _copy_groups(file.path, target, first, last)
        return
    with file.path.open("rb") as source, target.open("wb") as copy:
        if file.format == "csv" and file.csv.header != "none":
            copy.write(next((line for line in source if line.strip(b"\r\n")), b""))
            first = max(first, source.tell())
        if first:
            source.seek(first - 1)
            source.readline()
        while source.tell() <= last and (line := source.readline()):
            copy.write(line)


def _copy_groups(path: Path, target: Path, first: int, last: int) -> None:
    from pyarrow.parquet import ParquetFile, ParquetWriter

    with ParquetFile(path) as source, ParquetWriter(target, source.schema_arrow) as copy:
        for place in range(source.num_row_groups):
            group = source.metadata.row_group(place)
            columns = [group.column(number) for number in range(group.num_columns)]
            if first <= min(column.dictionary_page_offset or column.data_page_offset for column in columns) <= last:
                copy.write_table(source.read_row_group(place))


def statistics(file: File, read: Path, returned: int) -> Statistics:
    """Return the bytes of a query that has read the file *read*: *file*, or the copy of a range of it."""
    scanned = processed = read.stat().st_size
    if file.format == "parquet":
        from pyarrow.parquet import read_metadata

        found = read_metadata(read)
        processed = sum(found.row_group(place).total_byte_size for place in range(found.num_row_groups))
    elif file.compression != "none":
        with _bytes(file) as stream:
            processed = sum(map(len, iter(lambda: stream.read(1 << 20), b"")))
    return Statistics(scanned, processed, returned)


def _bytes(file: File) -> Any:
    opened: Any = {"none": open, "gzip": gzip.open, "bzip2": bz2.open}[file.compression]
    return opened(file.path, "rb")


@contextmanager
def _text(file: File) -> Iterator[IO[str]]:
    """Open the file as decompressed text, and raise the reason if it cannot be read as `SelectError`."""
    try:
        with io.TextIOWrapper(_bytes(file), encoding="utf-8-sig", newline="") as stream:
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
                delimiter=rules.delimiter or ",",
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

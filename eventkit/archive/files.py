"""The files of an archive: their folders, names and columns, the store that has them, and reading them.

In the folder of an archive, each stream has a folder, with one for each day (in UTC), named as by Hive.  A file is
named after its first and last offset, the lease that wrote it, and a token, so that no two ever have the same name::

    topic=orders/date=2026-01-31/00000000000000000001-00000000000000099812-7-1f0c9a6be2d04a57.parquet

**A file counts if the manifest has it** (`ReadArchive`); others are unfinished, or were replaced.
"""

import errno
import os
import posixpath
import re
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from configparser import ConfigParser
from configparser import Error as ConfigError
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

import pyarrow as pa
from pyarrow import fs, parquet

from ..arrow import compute
from ..errors import EventkitError
from ..operations.bulk import ArchiveFile

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("payload", pa.string(), nullable=False),
        pa.field("headers", pa.map_(pa.string(), pa.string())),
        pa.field("created_at", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
"""The columns of a file, which are those of Spark's source ``eventkit``; its rows are in the order of offsets."""

Progress = Callable[[int, int], object]
"""Called with the number of events that were archived, read or replayed, and the total."""

_NAME = re.compile(r"/date=[\d-]{10}/\.?\d{20}-\d{20}-(\d+)-[0-9a-f]{16}\.parquet(?:\.part)?$")

_LONGEST = 200
"""The maximum length of a folder's name; some file systems refuse longer ones."""


def topic_folder(stream: str) -> str:
    """Return the folder of a stream, relative to the archive's."""
    name = quote(stream, safe="")
    if len(name) > _LONGEST:
        begin = re.sub("%.?$", "", name[: _LONGEST - 20])
        name = f"{begin}~{sha256(stream.encode()).hexdigest()[:16]}"
    return f"topic={name}"


def new_path(stream: str, date: str, first: int, last: int, epoch: int) -> str:
    """Return the path of a new file for events of a day (``2026-01-31``), relative to the archive's folder."""
    return f"{topic_folder(stream)}/date={date}/{first:020}-{last:020}-{epoch}-{secrets.token_hex(8)}.parquet"


def epoch_of(path: str) -> int | None:
    """Return the lease in which the file was written; None for a file that is not of an archive."""
    found = _NAME.search(path)
    return int(found[1]) if found else None


def date_of(moment: int) -> str:
    """Return the day of a time in milliseconds."""
    return datetime.fromtimestamp(moment / 1000, UTC).strftime("%Y-%m-%d")


_SECRET = re.compile(r"key|secret|token|password|credential|signature", re.IGNORECASE)
"""The parameters of a URI that are credentials."""

_CREDENTIALS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")

_GUESSABLE = 4
"""The minimum length of a credential that is removed from errors; shorter ones occur in any text and are no secrets."""


class Location:
    """A folder: a path, or a URI that Arrow knows, such as ``s3://bucket/folder?endpoint_override=…``.

    Credentials belong in the environment, a profile or a file, where the libraries of the store read them.  Those in a
    URI are used in this process, and are in no name, error or result.
    """

    def __init__(self, given: str | Path) -> None:
        text = str(given)
        self._uri: SplitResult | None = None
        self._secrets: list[str] = []
        if "://" not in text:
            self.name = self._base = str(Path(text).absolute())
            return
        uri = urlsplit(text)
        uri = self._uri = uri._replace(path=uri.path.rstrip("/"), fragment="")
        account, _, host = uri.netloc.rpartition("@")
        user, _, password = account.partition(":")
        parameters = parse_qsl(uri.query, keep_blank_values=True)
        self._secrets = [password, *(value for name, value in parameters if _SECRET.search(name))]
        # Azure has the container there, and Google may have the word anonymous.
        if uri.scheme == "s3" or (password and not uri.scheme.startswith("abfs")):
            self._secrets.append(user)
            user = ""
            if ":" in host and uri.scheme == "s3":
                raise ValueError(
                    "the name of a bucket holds no colon: pass credentials by the environment, a profile or a file, "
                    "or write / in them as %2F"
                )
        self._base = f"{uri.scheme}://{user}@{host}{uri.path}" if user else f"{uri.scheme}://{host}{uri.path}"
        query = urlencode([one for one in parameters if not _SECRET.search(one[0])], safe=":/")
        self.name = f"{self._base}?{query}" if query else self._base

    @property
    def is_remote(self) -> bool:
        """True if it is in an object store."""
        return self._uri is not None and self._uri.scheme != "file"

    def uri(self, path: str) -> str:
        """Return the name by which libraries of table formats, and Spark, find a file in it."""
        return f"{self._base}/{path}"

    def open(self) -> tuple[Any, str]:
        """Return Arrow's file system, and the folder in it."""
        if self._uri is None:
            return fs.LocalFileSystem(), self.name
        uri = self._uri._replace(query=urlencode(self._parameters(), safe=":/")).geturl()
        try:
            return fs.FileSystem.from_uri(uri)  # type: ignore[no-any-return]
        except ValueError as error:
            raise ValueError(
                f"{self.name} names no folder that Arrow knows of: {self.without_secrets(error)}"
            ) from None

    def delta_options(self) -> dict[str, str]:
        """Return the options with which deltalake finds the same store."""
        if self._uri is None or self._uri.scheme != "s3":
            return {}
        parameters = self._parameters()
        options = {"aws_region": parameters.get("region", "us-east-1")}
        if endpoint := parameters.get("endpoint_override"):
            scheme = parameters.get("scheme", "https")
            options |= {"aws_endpoint": f"{scheme}://{endpoint}", "aws_allow_http": str(scheme == "http").lower()}
        if self._uri.password:
            user, password = unquote(self._uri.username or ""), unquote(self._uri.password)
            options |= {"aws_access_key_id": user, "aws_secret_access_key": password}
        elif not os.environ.get("AWS_ACCESS_KEY_ID"):
            # deltalake reads the environment and the roles of machines, but no profile.
            options |= {name: value for name, value in _profile().items() if name in _CREDENTIALS}
        return options

    def without_secrets(self, error: object) -> str:
        """Return the text of an error in one line, without the credentials of the URI."""
        text = " ".join(re.sub("\x1b\\[[0-9;]*m", "", str(error)).split())
        if self._uri is not None:
            text = text.replace(self._uri.geturl(), self.name)
        for secret in self._secrets:
            if len(secret) >= _GUESSABLE:
                text = text.replace(secret, "…").replace(unquote(secret), "…")
        return text

    def _parameters(self) -> dict[str, str]:
        """Return the parameters of the URI and, for S3, the endpoint and region from the environment or a profile."""
        assert self._uri is not None
        parameters = dict(parse_qsl(self._uri.query, keep_blank_values=True))
        if self._uri.scheme != "s3":
            return parameters
        profile = _profile()
        names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
        found = {
            "endpoint_override": next(filter(None, map(os.environ.get, names)), profile.get("endpoint_url")),
            "region": os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or profile.get("region"),
        }
        parameters = {name: value for name, value in found.items() if value} | parameters
        if endpoint := parameters.get("endpoint_override"):
            scheme, separator, host = endpoint.rpartition("://")
            parameters["endpoint_override"] = host.rstrip("/")
            if separator:
                parameters["scheme"] = scheme
            # Without a region, Arrow requests the bucket's from Amazon.
            parameters.setdefault("region", "us-east-1")
        return parameters


def _profile() -> dict[str, str]:
    """Return the settings and credentials of the AWS profile that applies to this process."""
    name, home = os.environ.get("AWS_PROFILE") or "default", Path.home() / ".aws"
    found: dict[str, str] = {}
    for variable, file, section in (
        ("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name),
    ):
        settings = ConfigParser(interpolation=None)
        with suppress(OSError, UnicodeDecodeError, ConfigError):
            settings.read(os.environ.get(variable) or home / file, "utf-8")
            if settings.has_section(section):
                found |= dict(settings[section])
    return found


class Store:
    """Files by their paths in a folder.  A file exists once it is complete and on the disk."""

    def __init__(self, location: str | Path | Location) -> None:
        self.place = location if isinstance(location, Location) else Location(location)
        self.location = self.place.name
        self._settled: set[str] = set()
        with self.explained("cannot be reached"):
            self.files, self._root = self.place.open()

    def begin(self, path: str) -> Any:
        """Open a stream to a new file, which does not exist until `finish` gives it its name."""
        self.files.create_dir(posixpath.dirname(self._whole(path)), recursive=True)
        return self.files.open_output_stream(self._part(path))

    def finish(self, path: str, name: str) -> int:
        """Rename the closed file that was begun as *path*; return its size in bytes."""
        part, whole, folder = self._part(path), self._whole(name), posixpath.dirname(name)
        try:
            self._settle(part)
            self.files.move(part, whole)
            self._settle(self._whole(folder))
            # A new folder changes the folders above it; the first file in it could be lost with them.
            if folder not in self._settled:
                self._settled.add(folder)
                while folder:
                    folder = posixpath.dirname(folder)
                    self._settle(self._whole(folder))
            size = self.size(name)
            if size is None:
                raise FileNotFoundError(whole)
            return size
        except FileNotFoundError as error:
            reason = "the unfinished file is gone; another process may be archiving the same stream"
            raise FileNotFoundError(errno.ENOENT, reason) from error

    def discard(self, path: str) -> None:
        """Delete the file that was begun as *path*."""
        with suppress(FileNotFoundError):
            self.files.delete_file(self._part(path))

    def open(self, path: str) -> Any:
        """Open the file for random access."""
        return self.files.open_input_file(self._whole(path))

    def read(self, path: str) -> bytes | None:
        """Return the content of a small file; None if it does not exist."""
        try:
            with self.open(path) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def write(self, path: str, content: bytes) -> None:
        """Write or replace a small file."""
        with self.begin(path) as stream:
            stream.write(content)
        self.finish(path, path)

    def move(self, path: str, to: str) -> None:
        """Rename a file."""
        self.files.create_dir(posixpath.dirname(self._whole(to)), recursive=True)
        self.files.move(self._whole(path), self._whole(to))

    def size(self, path: str) -> int | None:
        """Return the file's size in bytes; None if it does not exist."""
        info = self.files.get_file_info(self._whole(path))
        return None if info.type == fs.FileType.NotFound else int(info.size)

    def list(self, folder: str) -> list[str]:
        """Return all files in a folder and its subfolders."""
        selector = fs.FileSelector(self._whole(folder), allow_not_found=True, recursive=True)
        found = self.files.get_file_info(selector)
        return [posixpath.relpath(info.path, self._root) for info in found if info.type == fs.FileType.File]

    def remove(self, path: str) -> None:
        """Delete a file, if it exists."""
        with suppress(FileNotFoundError):
            self.files.delete_file(self._whole(path))

    @contextmanager
    def explained(self, what: str) -> Iterator[None]:
        """Raise errors of the file system as `EventkitError`, in one line."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or self.place.without_secrets(error)
            raise EventkitError(
                f"the archive in {self.location} {what}: {reason}; the files in its manifest are unchanged"
            ) from (None if self.place.is_remote else error)

    def _whole(self, path: str) -> str:
        return posixpath.join(self._root, path)

    def _part(self, path: str) -> str:
        folder, name = posixpath.split(self._whole(path))
        return posixpath.join(folder, f".{name}.part")

    def _settle(self, whole: str) -> None:
        """Wait until the file is on the disk; in an object store, closing suffices."""
        if isinstance(self.files, fs.LocalFileSystem):
            handle = os.open(whole, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def tables(store: Store, file: ArchiveFile) -> Iterator[Any]:
    """Yield the events of a file, some at a time; each page is compared with its checksum."""
    check_file(store, file)
    try:
        with store.open(file.path) as stream, parquet.ParquetFile(stream, page_checksum_verification=True) as found:
            if found.metadata.num_rows != file.rows:
                _damaged(store, file, f"has {found.metadata.num_rows:,} events instead of {file.rows:,}")
            for group in range(found.num_row_groups):
                yield found.read_row_group(group).cast(SCHEMA)
    except (OSError, pa.ArrowException) as error:
        _damaged(store, file, f"cannot be read ({' '.join(str(error).split())[:200]})")


def check_file(store: Store, file: ArchiveFile) -> None:
    """Raise `EventkitError` if a file is missing or has another size."""
    with store.explained("cannot be read"):
        size = store.size(file.path)
    if size is None:
        _damaged(store, file, "is missing")
    if size != file.bytes:
        _damaged(store, file, f"has {size:,} bytes instead of {file.bytes:,}")


def merged(store: Store, files: Iterable[ArchiveFile]) -> Iterator[Any]:
    """Yield the events of files in the order of offsets, even where files of two days overlap; some at a time."""
    waiting = deque(sorted(files, key=lambda file: file.first))
    under_way: list[tuple[Any, Iterator[Any]]] = []
    while waiting or under_way:
        # Up to *last*, all open files have been read.
        last = min((table["offset"][-1].as_py() for table, _ in under_way), default=None)
        if waiting and (last is None or waiting[0].first <= last):
            rest = tables(store, waiting.popleft())
            under_way.append((next(rest), rest))
            continue
        ready, still = [], []
        for table, rest in under_way:
            number = compute.sum(compute.less_equal(table["offset"], last)).as_py()
            if number:
                ready.append(table.slice(0, number))
            left = table.slice(number) if number < table.num_rows else next(rest, None)
            if left is not None:
                still.append((left, rest))
        under_way = still
        found = pa.concat_tables(ready)
        yield found if len(ready) == 1 else found.take(compute.sort_indices(found["offset"]))


def _damaged(store: Store, file: ArchiveFile, what: str) -> NoReturn:
    raise EventkitError(
        f"{file.path} of the archive in {store.location} {what}: put it back from a backup; until then, no archived "
        f"event is deleted from the database"
    )

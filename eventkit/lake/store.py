"""The files of an archive, and the folder that they are in: one of this machine, or of an object store."""

import errno
import os
import posixpath
import re
from collections.abc import Iterator
from configparser import ConfigParser
from configparser import Error as ConfigError
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from pyarrow import fs

from ..errors import EventkitError

_SECRET = re.compile(r"key|secret|token|password|credential|signature", re.IGNORECASE)
"""Parameters of a URI that are credentials."""

_CREDENTIALS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")

_GUESSABLE = 4
"""Characters from which a credential is looked for in errors; a shorter one is in any text, and no secret."""


class Location:
    """A folder: a path, or a URI that Arrow knows, such as ``s3://bucket/folder?endpoint_override=…``.

    Credentials belong in the environment, a profile or a file, where the libraries of the store look for them.  Those
    in a URI count in this process, and are in no name, error or result.
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
                    "the name of a bucket holds no colon: leave credentials to the environment, a profile or a file, "
                    "or write / in them as %2F"
                )
        self._base = f"{uri.scheme}://{user}@{host}{uri.path}" if user else f"{uri.scheme}://{host}{uri.path}"
        query = urlencode([one for one in parameters if not _SECRET.search(one[0])], safe=":/")
        self.name = f"{self._base}?{query}" if query else self._base

    @property
    def is_remote(self) -> bool:
        """Whether it is in an object store."""
        return self._uri is not None and self._uri.scheme != "file"

    def uri(self, path: str) -> str:
        """The name by which the libraries of table formats, and Spark, find a file in it."""
        return f"{self._base}/{path}"

    def open(self) -> tuple[Any, str]:
        """Arrow's file system, and the folder in it."""
        if self._uri is None:
            return fs.LocalFileSystem(), self.name
        uri = self._uri._replace(query=urlencode(self._parameters(), safe=":/")).geturl()
        try:
            files, root = fs.FileSystem.from_uri(uri)
        except ValueError as error:
            raise ValueError(
                f"{self.name} names no folder that Arrow knows of: {self.without_secrets(error)}"
            ) from None
        return files, root

    def delta_options(self) -> dict[str, str]:
        """The options by which deltalake finds the same store."""
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
            # deltalake knows the environment, and the roles of machines, but no profile.
            options |= {name: value for name, value in _profile().items() if name in _CREDENTIALS}
        return options

    def without_secrets(self, told: object) -> str:
        """Return the text of an error in one line, without the credentials of the URI."""
        text = " ".join(re.sub("\x1b\\[[0-9;]*m", "", str(told)).split())
        if self._uri is not None:
            text = text.replace(self._uri.geturl(), self.name)
        for secret in self._secrets:
            if len(secret) >= _GUESSABLE:
                text = text.replace(secret, "…").replace(unquote(secret), "…")
        return text

    def _parameters(self) -> dict[str, str]:
        """The parameters of the URI, and, for S3, what the environment or a profile says of endpoint and region."""
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
            # Without a region Arrow asks Amazon for that of the bucket.
            parameters.setdefault("region", "us-east-1")
        return parameters


def _profile() -> dict[str, str]:
    """The settings and credentials of the profile of AWS that counts in this process."""
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
    """Files by their paths in a folder.  A file is there when it is whole, and on the disk."""

    def __init__(self, location: str | Path | Location) -> None:
        self.place = location if isinstance(location, Location) else Location(location)
        self.location = self.place.name
        self._settled: set[str] = set()
        with self.told("cannot be reached"):
            self.files, self._root = self.place.open()

    def begin(self, path: str) -> Any:
        """A stream to a file that is not there yet, and will be when it is `finish`ed under its name."""
        self.files.create_dir(posixpath.dirname(self._whole(path)), recursive=True)
        return self.files.open_output_stream(self._part(path))

    def finish(self, path: str, name: str) -> int:
        """Give what was begun as *path*, and closed, its name; how many bytes it has."""
        part, whole = self._part(path), self._whole(name)
        with self._begun():
            self._settle(part)
            self.files.move(part, whole)
        folder = posixpath.dirname(name)
        self._settle(self._whole(folder))
        # The folders above change with a new one in them, and this is the first file that could be lost with it.
        if folder not in self._settled:
            self._settled.add(folder)
            while folder:
                folder = posixpath.dirname(folder)
                self._settle(self._whole(folder))
        with self._begun():
            size = self.size(name)
            if size is None:
                raise FileNotFoundError(whole)
        return size

    def discard(self, path: str) -> None:
        """Remove what was begun as *path*."""
        self._remove(self._part(path))

    def open(self, path: str) -> Any:
        """The file, for reading anywhere in it."""
        return self.files.open_input_file(self._whole(path))

    def read(self, path: str) -> bytes | None:
        """What is in a small file; None if it is not there."""
        try:
            with self.open(path) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def write(self, path: str, content: bytes) -> None:
        """Put a small file where there may be one."""
        with self.begin(path) as stream:
            stream.write(content)
        self.finish(path, path)

    def move(self, path: str, to: str) -> None:
        """Give a file another name."""
        self.files.create_dir(posixpath.dirname(self._whole(to)), recursive=True)
        self.files.move(self._whole(path), self._whole(to))

    def size(self, path: str) -> int | None:
        """How many bytes the file has; None if it is not there."""
        info = self.files.get_file_info(self._whole(path))
        return None if info.type == fs.FileType.NotFound else int(info.size)

    def list(self, folder: str) -> list[str]:
        """All files in a folder, and in those in it."""
        selector = fs.FileSelector(self._whole(folder), allow_not_found=True, recursive=True)
        found = self.files.get_file_info(selector)
        return [posixpath.relpath(info.path, self._root) for info in found if info.type == fs.FileType.File]

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        self._remove(self._whole(path))

    @contextmanager
    def _begun(self) -> Iterator[None]:
        """Explain why a file is missing that this process has begun."""
        try:
            yield
        except FileNotFoundError as error:
            reason = "what was begun is not there any more, as when another process archives the same"
            raise FileNotFoundError(errno.ENOENT, reason) from error

    @contextmanager
    def told(self, what: str) -> Iterator[None]:
        """Tell what the system has to say of the files in a line."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or self.place.without_secrets(error)
            raise EventkitError(
                f"the archive in {self.location} {what}: {reason}; what counted before counts still"
            ) from (None if self.place.is_remote else error)

    def _remove(self, whole: str) -> None:
        with suppress(FileNotFoundError):
            self.files.delete_file(whole)

    def _whole(self, path: str) -> str:
        return posixpath.join(self._root, path)

    def _part(self, path: str) -> str:
        folder, name = posixpath.split(self._whole(path))
        return posixpath.join(folder, f".{name}.part")

    def _settle(self, whole: str) -> None:
        """Wait until it is on the disk; elsewhere, what is closed is safe."""
        if isinstance(self.files, fs.LocalFileSystem):
            handle = os.open(whole, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

"""The files of an archive, wherever they are."""

import os
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyarrow import fs

from ..errors import EventkitError


class Store:
    """Files by their paths in a folder.  A file is there when it is whole, and on the disk."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._settled: set[str] = set()
        if "://" not in location:
            self._files, self._root = fs.LocalFileSystem(), location
            return
        with self.told("cannot be reached"):
            try:
                self._files, self._root = fs.FileSystem.from_uri(location)
            except ValueError as error:
                raise ValueError(f"{location} names no folder that Arrow knows of: {error}") from None

    def begin(self, path: str) -> Any:
        """A stream to a file that is not there yet, and will be when it is `finish`ed under its name."""
        self._files.create_dir(posixpath.dirname(self._whole(path)), recursive=True)
        return self._files.open_output_stream(self._part(path))

    def finish(self, path: str, name: str) -> int:
        """Give what was begun as *path*, and closed, its name; how many bytes it has."""
        part, whole = self._part(path), self._whole(name)
        self._settle(part)
        self._files.move(part, whole)
        folder = posixpath.dirname(name)
        self._settle(self._whole(folder))
        # The folders above change with a new one in them, and this is the first file that could be lost with it.
        if folder not in self._settled:
            self._settled.add(folder)
            while folder:
                folder = posixpath.dirname(folder)
                self._settle(self._whole(folder))
        size = self.size(name)
        if size is None:
            raise FileNotFoundError(whole)
        return size

    def discard(self, path: str) -> None:
        """Remove what was begun as *path*."""
        self._remove(self._part(path))

    def open(self, path: str) -> Any:
        """The file, for reading anywhere in it."""
        return self._files.open_input_file(self._whole(path))

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

    def size(self, path: str) -> int | None:
        """How many bytes the file has; None if it is not there."""
        info = self._files.get_file_info(self._whole(path))
        return None if info.type == fs.FileType.NotFound else int(info.size)

    def list(self, folder: str) -> list[str]:
        """All files in a folder, and in those in it."""
        selector = fs.FileSelector(self._whole(folder), allow_not_found=True, recursive=True)
        found = self._files.get_file_info(selector)
        return [posixpath.relpath(info.path, self._root) for info in found if info.type == fs.FileType.File]

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        self._remove(self._whole(path))

    @contextmanager
    def told(self, what: str) -> Iterator[None]:
        """Tell what the system has to say of the files in a line."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or " ".join(str(error).split())
            if isinstance(error, FileNotFoundError):
                reason = "what was begun is not there any more, as when somebody else archives the same"
            raise EventkitError(
                f"the archive in {self.location} {what}: {reason}; what counted before counts still"
            ) from error

    def _remove(self, whole: str) -> None:
        with suppress(FileNotFoundError):
            self._files.delete_file(whole)

    def _whole(self, path: str) -> str:
        return posixpath.join(self._root, path)

    def _part(self, path: str) -> str:
        folder, name = posixpath.split(self._whole(path))
        return posixpath.join(folder, f".{name}.part")

    def _settle(self, whole: str) -> None:
        """Wait until it is on the disk; elsewhere, what is closed is safe."""
        if isinstance(self._files, fs.LocalFileSystem):
            handle = os.open(whole, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

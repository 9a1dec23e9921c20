"""The lease of one archiver, under which it adds files to an archive, and adopting a database that was restored."""

import posixpath
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol

import msgspec

from ..errors import EventkitError
from ..kit import backend_of
from ..operations.bulk import (
    AdoptArchive,
    ArchiveFile,
    ExtendArchive,
    FindRetired,
    ForgetFiles,
    ListPaths,
    OpenArchive,
    ReadArchive,
    SwapFiles,
)
from ..operations.position import FindFork, Position, VerifyPosition
from ..operations.tables import ReadIdentity
from ..protocols import Connection
from .files import Store, epoch_of, topic_folder

_ATTEMPTS = 5
"""The number of attempts at a commit, because a writer whose lease has ended may commit as well."""


class Conflict(Exception):
    """Raised when another writer has committed to the table since it was read."""


class Table(Protocol):
    """A table in the folder of a stream."""

    failures: tuple[type[Exception], ...]
    """The errors of its library, also for files in its folder that it cannot read."""

    folder: str
    """The folder of its metadata; without it, there is no table."""

    def read(self) -> dict[str, int]:
        """Return the files of the table, relative to the archive's folder, and the number of rows in each."""
        ...

    def commit(self, new: list[ArchiveFile], gone: list[str], same: bool) -> None:
        """Replace the files *gone* by the files *new*; raise `Conflict` if the table has changed since it was read.

        With *same*, the rows are the same.
        """
        ...


class Listing:
    """The synchronization of a stream's table with the manifest."""

    def __init__(self, store: Store, stream: str, format: str) -> None:
        self._store = store
        self._table: Table
        try:
            if format == "delta":
                from .delta import Delta

                self._table = Delta(store, stream)
            else:
                from .iceberg import Iceberg

                self._table = Iceberg(store, stream)
        except ModuleNotFoundError as error:
            raise EventkitError(
                f"an archive with a table of {format} takes {error.name}: pip install 'eventkit-db[{format}]'"
            ) from None

    def follow(self, manifest: Callable[[], list[ArchiveFile]]) -> None:
        """Commit the manifest's files to the table.

        The manifest is read after the table: a process with an older manifest has an older table, and commits nothing.
        """
        for _ in range(_ATTEMPTS):
            try:
                has = self._table.read()
                files = manifest()
                new = [file for file in files if file.path not in has]
                gone = has.keys() - {file.path for file in files}
                if new or gone:
                    same = sum(file.rows for file in new) == sum(has[path] for path in gone)
                    self._table.commit(new, sorted(gone), same)
                return
            except Conflict:
                continue
            except self._table.failures as error:
                self._failed(self._store.place.without_secrets(error)[:200] or type(error).__name__)
        self._failed("another process keeps writing to it")

    def _failed(self, reason: str) -> NoReturn:
        raise EventkitError(
            f"the table of the archive in {self._store.location} cannot be brought in step: {reason}; the archive "
            f"itself is complete: archive again, and if the error remains, remove {self._table.folder} there"
        )


_GRACE = 3_600_000
"""The milliseconds for which replaced files are kept for their readers."""


class Claim(msgspec.Struct):
    """The holder of the lease, as recorded in the folder."""

    database: str
    lease: int


def claim_in(store: Store, stream: str) -> Claim | None:
    """Return the lease recorded in the folder of a stream; None if there is none."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(store.read(_claim_path(stream)) or b"", type=Claim)
    return None


def _claim_path(stream: str) -> str:
    return f"{topic_folder(stream)}/_lease.json"


class ArchiveLease:
    """A lease that has begun.  Every method raises `EventkitError` when another process has begun the next."""

    def __init__(self, connection: Connection, stream: str, location: str | Path | None, format: str | None) -> None:
        self.connection = connection
        self.stream = stream
        archive = connection.execute(ReadArchive(stream))
        if location is None and archive is None:
            raise ValueError(f"stream {stream!r} has no archive yet: pass the folder for it with to=")
        self.store = Store(archive.location if location is None and archive is not None else location or "")
        chosen = format or (archive.format if archive is not None else "parquet")
        self._listing = None if chosen == "parquet" else Listing(self.store, stream, chosen)
        with self.store.explained("cannot be written"):
            if archive is None:  # The location cannot be changed after the first lease.
                tried = f"{topic_folder(stream)}/_tried"
                self.store.write(tried, b"")
                self.store.remove(tried)
            self.epoch, self.covered = connection.execute(OpenArchive(stream, self.store.location, format))
            self._claim()
            # Unfinished files of earlier leases are deleted.
            found = self.store.list(topic_folder(stream))
            if left := {path for path in found if (epoch_of(path) or self.epoch) < self.epoch}:
                for path in left.difference(connection.execute(ListPaths(stream))):
                    self.store.remove(path)
        self._list()

    def files(self) -> list[ArchiveFile]:
        """Return the files in the manifest, in the order of offsets."""
        archive = self.connection.execute(ReadArchive(self.stream))
        return archive.files if archive is not None else []

    def extend(self, last: int, files: list[ArchiveFile], read: Position) -> None:
        """Add the files that cover the stream up to *last*, if the database still has the events *read* for them."""
        if not self.connection.execute(ExtendArchive(self.stream, self.epoch, self.covered, last, files, read)):
            raise self._ended(files)
        self.covered = last
        self._list()

    def swap(self, old: list[ArchiveFile], new: list[ArchiveFile]) -> None:
        """Replace the files *old* by *new*."""
        if not self.connection.execute(SwapFiles(self.stream, self.epoch, [file.path for file in old], new)):
            raise self._ended(new)
        self._list()

    def clear(self) -> None:
        """Delete files that were replaced a while ago."""
        paths = self.connection.execute(FindRetired(self.stream, _GRACE))
        with self.store.explained("cannot be written"):
            for path in paths:
                self.store.remove(path)
        if paths:
            self.connection.execute(ForgetFiles(self.stream, paths))

    def _list(self) -> None:
        if self._listing is not None:
            self._listing.follow(self.files)

    def _claim(self) -> None:
        ours = Claim(self.connection.execute(ReadIdentity()), self.epoch)
        theirs = claim_in(self.store, self.stream)
        if theirs is not None and theirs.database != ours.database:
            raise EventkitError(
                f"the archive of stream {self.stream!r} in {self.store.location} is written from another database: "
                f"archive to another folder, or remove {_claim_path(self.stream)} there if that database is gone"
            )
        if theirs is not None and theirs.lease >= ours.lease:
            raise EventkitError(
                f"the archive of stream {self.stream!r} in {self.store.location} goes further than this database, "
                f"which was restored from a backup, was promoted from a standby or is a copy: to continue from here, "
                f"run eventkit adopt --archive {self.stream}"
            )
        self.store.write(_claim_path(self.stream), msgspec.json.encode(ours))

    def _ended(self, files: list[ArchiveFile]) -> EventkitError:
        """Return the error for *files* that were not added, and never will be."""
        for file in files:
            with suppress(OSError):
                self.store.remove(file.path)
        return EventkitError(
            f"another process has begun to archive stream {self.stream!r}: the events archived so far stay, and it "
            f"continues after them; archive a stream from one process at a time"
        )


class Adopted(NamedTuple):
    """An adopted database: the stream, the place, the offset reached before, and the offset after which to continue."""

    stream: str
    location: str
    before: int
    after: int
    files: int


def adopt_checkpoint(url: str, checkpoint: str | Path) -> list[Adopted]:
    """Let a Spark query continue after the last event that both its checkpoint and the database have.

    The query has to be stopped.  Rows that it has written from lost events stay where they are.  Streams in which the
    database has not gone back are unchanged.
    """
    store = Store(checkpoint)
    batches = sorted(int(name) for path in store.list("offsets") if (name := posixpath.basename(path)).isdigit())
    if not batches:
        raise ValueError(f"{store.location} is no checkpoint of a query: name the folder given as checkpointLocation")
    adopted: dict[str, Adopted] = {}
    with closing(backend_of(url).connect(url, create=False)) as connection:
        # The last micro-batch may have to be repeated, from the end of the one before it.
        for batch in batches[-2:]:
            path = f"offsets/{batch}"
            text = (store.read(path) or b"").decode()
            lines = [_adopt_line(connection, store.location, line, adopted) for line in text.split("\n")]
            if "\n".join(lines) != text:
                store.remove(f"offsets/.{batch}.crc")
                store.write(path, "\n".join(lines).encode())
    return list(adopted.values())


def adopt_archive(url: str, stream: str, *, to: str | Path | None = None) -> Adopted:
    """Let the archive of a stream continue from the database's state of it.

    Files that the database does not know have lost events: they are moved to the folder ``_lost`` of the stream.  *to*
    names the archive's folder if the database is older than the archive.
    """
    with closing(backend_of(url).connect(url, create=False)) as connection:
        archive = connection.execute(ReadArchive(stream))
        if archive is None:
            if to is None:
                raise ValueError(
                    f"stream {stream!r} has no archive in this database: pass the archive's folder with to="
                )
            connection.execute(OpenArchive(stream, Store(to).location, None))
            archive = connection.execute(ReadArchive(stream))
            assert archive is not None
        store = Store(to or archive.location)
        with store.explained("cannot be adopted"):
            claim = claim_in(store, stream)
            if claim is not None and claim.database != connection.execute(ReadIdentity()):
                raise EventkitError(f"the archive of stream {stream!r} in {store.location} is one of another database")
            missing = [file.path for file in archive.files if store.size(file.path) is None]
            if missing:
                raise EventkitError(
                    f"{len(missing)} files of the manifest are not in {store.location}, such as "
                    f"{missing[0]}: they were compacted since; restore the folder as it was with the database"
                )
            known = set(connection.execute(ListPaths(stream)))
            lost = [path for path in store.list(topic_folder(stream)) if epoch_of(path) and path not in known]
            for path in lost:
                store.move(path, f"{topic_folder(stream)}/_lost/{posixpath.basename(path)}")
            if claim is not None:
                connection.execute(AdoptArchive(stream, claim.lease))
        reached = max((int(posixpath.basename(path).split("-")[1]) for path in lost), default=archive.covered)
    return Adopted(stream, store.location, reached, archive.covered, len(lost))


def _adopt_line(connection: Connection, location: str, line: str, adopted: dict[str, Adopted]) -> str:
    """Return a line of a checkpoint, with its positions replaced by those of this database."""
    try:
        places = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return line
    if not isinstance(places, dict) or not places:
        return line
    changed = False
    for stream, place in places.items():
        position = Position.read_back(place)
        if position is None:
            return line
        if position.database != connection.execute(ReadIdentity()):
            raise EventkitError(
                f"the checkpoint {location} is of another database than the one at the url: correct the url, or start "
                f"again with another checkpointLocation"
            )
        if not connection.execute(VerifyPosition(stream, position)):
            fork = connection.execute(FindFork(stream, position))
            places[stream] = fork._asdict()
            adopted[stream] = Adopted(stream, location, position.offset, fork.offset, 0)
            changed = True
    return msgspec.json.encode(places).decode() if changed else line

"""A turn at writing to the archive of a topic, which lasts until somebody else begins one.

The database counts turns, and takes nothing from whoever is not the last.  So a file that was written in an earlier
turn, and is not in the manifest when a turn begins, never will be, and may go.  A turn is noted in the folder as well:
a copy of the database knows nothing of what its original has written there since, and must not take it for rubbish.
"""

from contextlib import suppress
from pathlib import Path

import msgspec

from ..errors import EventkitError
from ..operations.extract import ReadIdentity
from ..operations.lake import (
    ExtendLake,
    FindRetired,
    ForgetFiles,
    LakeFile,
    ListPaths,
    OpenLake,
    ReadLake,
    SwapFiles,
)
from ..operations.position import Position
from ..protocols import Connection
from . import layout
from .listing import Listing
from .store import Store

_GRACE = 3_600_000
"""Milliseconds for which files that were replaced stay there, for those who read them."""


class Claim(msgspec.Struct):
    """Whose turn it is, as it stands in the folder."""

    database: str
    turn: int


def claim_in(store: Store, topic: str) -> Claim | None:
    """The turn that is noted in the folder of a topic; None where there is none."""
    found = store.read(_claim_path(topic))
    try:
        return None if found is None else msgspec.json.decode(found, type=Claim)
    except msgspec.DecodeError:
        return None


def _claim_path(topic: str) -> str:
    return f"{layout.folder(topic)}/_turn.json"


class Turn:
    """A turn that has begun.  Every method raises `EventkitError` when somebody else's has begun since."""

    def __init__(
        self, connection: Connection, topic: str, location: str | Path | None, format: str | None = None
    ) -> None:
        self._connection = connection
        self.topic = topic
        lake = connection.execute(ReadLake(topic))
        if location is None and lake is None:
            raise ValueError(f"topic {topic!r} has no archive yet: say to which folder it is to go")
        self.store = Store(lake.location if location is None and lake is not None else location or "")
        chosen = format or (lake.format if lake is not None else "parquet")
        self._listing = None if chosen == "parquet" else Listing(self.store, topic, chosen)
        with self.store.told("cannot be written"):
            if lake is None:
                self._try()
            self.epoch, self.covered = connection.execute(OpenLake(topic, self.store.location, format))
            self._claim()
            self._sweep()
        self._list()

    def files(self) -> list[LakeFile]:
        """The files that count, in the order of offsets."""
        lake = self._connection.execute(ReadLake(self.topic))
        return lake.files if lake is not None else []

    def extend(self, last: int, files: list[LakeFile], read: Position) -> None:
        """Let files count that have everything up to *last*, if the database still has what was *read* for them."""
        if not self._connection.execute(ExtendLake(self.topic, self.epoch, self.covered, last, files, read)):
            raise self._ended(files)
        self.covered = last
        self._list()

    def swap(self, old: list[LakeFile], new: list[LakeFile]) -> None:
        """Let *new* count for *old*."""
        if not self._connection.execute(SwapFiles(self.topic, self.epoch, [file.path for file in old], new)):
            raise self._ended(new)
        self._list()

    def clear(self) -> None:
        """Remove what was replaced a while ago."""
        paths = self._connection.execute(FindRetired(self.topic, _GRACE))
        with self.store.told("cannot be written"):
            for path in paths:
                self.store.remove(path)
        if paths:
            self._connection.execute(ForgetFiles(self.topic, paths))

    def _list(self) -> None:
        if self._listing is not None:
            self._listing.follow(self.files)

    def _try(self) -> None:
        """Write there once, or a folder where that cannot be done would be the archive's for good."""
        path = f"{layout.folder(self.topic)}/_tried"
        self.store.write(path, b"")
        self.store.remove(path)

    def _claim(self) -> None:
        ours = Claim(self._connection.execute(ReadIdentity()), self.epoch)
        theirs = claim_in(self.store, self.topic)
        if theirs is not None and theirs.database != ours.database:
            raise EventkitError(
                f"the archive of topic {self.topic!r} in {self.store.location} is written from another database: "
                f"archive to another folder, or remove {_claim_path(self.topic)} there if that database is gone"
            )
        if theirs is not None and theirs.turn >= ours.turn:
            raise EventkitError(
                f"the archive of topic {self.topic!r} in {self.store.location} goes further than this database, which "
                f"was restored from a backup, was promoted from a standby or is a copy: if it is to go on from here, "
                f"run eventkit adopt --archive {self.topic}"
            )
        self.store.write(_claim_path(self.topic), msgspec.json.encode(ours))

    def _sweep(self) -> None:
        """Remove what earlier turns have left unfinished."""
        left = [path for path in self.store.list(layout.folder(self.topic)) if self._is_over(path)]
        if left:
            known = set(self._connection.execute(ListPaths(self.topic)))
            for path in left:
                if path not in known:
                    self.store.remove(path)

    def _is_over(self, path: str) -> bool:
        epoch = layout.epoch(path)
        return epoch is not None and epoch < self.epoch

    def _ended(self, files: list[LakeFile]) -> EventkitError:
        """What there is to say when *files* do not count, and never will."""
        for file in files:
            with suppress(OSError):
                self.store.remove(file.path)
        return EventkitError(
            f"somebody else has begun to archive topic {self.topic!r}: what was archived until then stays, and theirs "
            f"goes on behind it; let one at a time archive a topic"
        )

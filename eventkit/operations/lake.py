"""What is asked of a database about the archives of its streams: which files they have, and how far they go.

The manifest is a row for each topic, with the offset up to which its files have everything, and a row for each file.
Both are written in one transaction, and files are what they were found to be before, so a file counts when the
manifest says so, and not before.  Whoever writes has opened the archive, which ends the turn of whoever did before.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from ..errors import EventkitError
from . import Operation, Plan, Rows
from .position import Position, VerifyPosition
from .stream import SaveOffset, drop_events

CONSUMER = "archive"
"""The consumer of a topic by which `keep_unconsumed` spares what is not archived yet, and that shows how much it is."""


class LakeFile(NamedTuple):
    """A file of an archive: where it is, seen from the archive's folder, and what is in it."""

    path: str
    date: str
    first: int
    last: int
    rows: int
    bytes: int
    oldest: int
    newest: int


class Opened(NamedTuple):
    """A turn at writing to an archive, whose files have everything up to *covered*."""

    epoch: int
    covered: int


class Lake(NamedTuple):
    """The archive of a topic: its *files*, in order, have every event up to the offset *covered* once.

    What was pruned before the topic was first archived is not in it.
    """

    location: str
    format: str
    covered: int
    files: list[LakeFile]


class LakeStats(NamedTuple):
    """The archive of a topic in numbers."""

    topic: str
    location: str
    format: str
    covered: int
    files: int
    rows: int
    bytes: int
    updated_ms: int


class OpenLake(Operation[Opened], frozen=True):
    """Begin to write to a topic's archive, which is made if there is none.

    Files of Parquet may become another *format*, and None is what it is.
    """

    topic: str
    location: str
    format: str | None

    def plan(self) -> Plan[Opened]:
        """The next epoch; none where the archive is elsewhere, or of another format."""
        if rows := (yield self):
            return Opened(*rows[0])
        [(location, format, *_), *_] = yield ReadLake(self.topic)
        if location != self.location:
            raise EventkitError(
                f"the archive of topic {self.topic!r} is in {location}, not in {self.location}: name that one"
            )
        raise EventkitError(f"the archive of topic {self.topic!r} is kept as {format}, not as {self.format}: name that")


class AdoptLake(Operation[None], frozen=True):
    """Let the next turn at a topic's archive be later than *epoch*."""

    topic: str
    epoch: int

    def decode(self, rows: Rows) -> None:
        """Nothing to say."""


class ReadLake(Operation[Lake | None], frozen=True):
    """What a topic's archive has, and how far it goes, at one moment; None if there is none."""

    writes: ClassVar[bool] = False
    topic: str

    def decode(self, rows: Rows) -> Lake | None:
        """A row for each file, or one without any."""
        if not rows:
            return None
        location, format, covered, *_ = rows[0]
        return Lake(location, format, covered, [LakeFile(*row[3:]) for row in rows if row[3] is not None])


class ListLakes(Operation[list[LakeStats]], frozen=True):
    """All archives, in numbers."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> list[LakeStats]:
        """One archive a row."""
        return [LakeStats(*row) for row in rows]


class ExtendLake(Operation[bool], frozen=True):
    """Add the files that have everything behind *after* up to *last*; False if it is not one's turn any more.

    The database must still have what was *read* for them.
    """

    topic: str
    epoch: int
    after: int
    last: int
    files: list[LakeFile]
    read: Position

    def plan(self) -> Plan[bool]:
        """The offset comes first, so that of two who write the same range one waits for the other."""
        if not (yield CoverLake(self.topic, self.epoch, self.after, self.last)):
            return False
        if not (yield from VerifyPosition(self.topic, self.read).plan()):
            raise self.read.lost(self.topic, "archive it again")
        if self.files:
            yield AddFiles(self.topic, self.files)
        yield SaveOffset(self.topic, CONSUMER, self.last)
        return True


class CoverLake(Operation[None], frozen=True):
    """Let an archive go up to *last*; no row if it does not go to *after*, or if it is not one's turn any more."""

    topic: str
    epoch: int
    after: int
    last: int


class AddFiles(Operation[None], frozen=True):
    """Note what files an archive has."""

    topic: str
    files: list[LakeFile]


class SwapFiles(Operation[bool], frozen=True):
    """Have the files *new* for the files *old*, which hold the same; False if it is not one's turn any more."""

    topic: str
    epoch: int
    old: list[str]
    new: list[LakeFile]

    def plan(self) -> Plan[bool]:
        """All of the old files, or nothing happens."""
        if not (yield HoldLake(self.topic, self.epoch)):
            return False
        retired = yield RetireFiles(self.topic, self.old)
        if len(retired) != len(self.old):
            raise EventkitError(
                f"{len(self.old) - len(retired)} of the files to be replaced do not count any more: compact again"
            )
        yield AddFiles(self.topic, self.new)
        return True


class HoldLake(Operation[None], frozen=True):
    """A row if it is one's turn still, and nobody else's until the transaction ends."""

    topic: str
    epoch: int


class RetireFiles(Operation[None], frozen=True):
    """Let files count no more; a row for each that did."""

    topic: str
    paths: list[str]


class FindRetired(Operation[list[str]], frozen=True):
    """The files that have counted no more for so many milliseconds."""

    writes: ClassVar[bool] = False
    topic: str
    grace: int

    def decode(self, rows: Rows) -> list[str]:
        """One path a row."""
        return [path for (path,) in rows]


class ListPaths(Operation[list[str]], frozen=True):
    """The files that the manifest knows of, retired ones too."""

    writes: ClassVar[bool] = False
    topic: str

    def decode(self, rows: Rows) -> list[str]:
        """One path a row."""
        return [path for (path,) in rows]


class ForgetFiles(Operation[None], frozen=True):
    """Forget files that were retired, and are not there any more."""

    topic: str
    paths: list[str]

    def decode(self, rows: Rows) -> None:
        """Nothing to say."""


class PruneArchived(Operation[int], frozen=True):
    """Drop the oldest of the events that the archive has, at most *limit*; how many."""

    topic: str
    location: str
    older_than: int | None
    keep_unconsumed: bool
    limit: int

    def plan(self) -> Plan[int]:
        """How far the manifest says that may go, and the step."""
        [(last,)] = yield self
        return (yield from drop_events(self.topic, last))

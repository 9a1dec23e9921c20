"""Operations of an archive."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from ..errors import EventkitError
from . import Operation, Plan, Rows, column, nothing
from .position import Position, VerifyPosition
from .stream import SaveOffset, drop_events

CONSUMER = "archive"
"""The consumer of a topic that shows how much is archived; `keep_unconsumed` keeps the events after it."""


class LakeFile(NamedTuple):
    """A file of an archive: its path relative to the archive's folder, and its contents."""

    path: str
    date: str
    first: int
    last: int
    rows: int
    bytes: int
    oldest: int
    newest: int


class Opened(NamedTuple):
    """A turn of writing to an archive, whose files have everything up to *covered*."""

    epoch: int
    covered: int


class Lake(NamedTuple):
    """The archive of a topic: its *files*, in order, have every event up to the offset *covered* once.

    Events that were pruned before the topic was first archived are missing.
    """

    location: str
    format: str
    covered: int
    files: list[LakeFile]


class LakeStats(NamedTuple):
    """The numbers of a topic's archive."""

    topic: str
    location: str
    format: str
    covered: int
    files: int
    rows: int
    bytes: int
    updated_ms: int


class OpenLake(Operation[Opened], frozen=True):
    """Begin to write to a topic's archive; create it if there is none.

    Files of Parquet may become another *format*; None keeps the format.
    """

    topic: str
    location: str
    format: str | None

    def plan(self) -> Plan[Opened]:
        """Return the next epoch; raise an error if the archive has another location or format."""
        if rows := (yield self):
            return Opened(*rows[0])
        [(location, format, *_), *_] = yield ReadLake(self.topic)
        if location != self.location:
            raise EventkitError(
                f"the archive of topic {self.topic!r} is in {location}, not in {self.location}: pass that one"
            )
        raise EventkitError(f"the archive of topic {self.topic!r} has format {format}, not {self.format}: pass that")


class AdoptLake(Operation[None], frozen=True):
    """Make the next turn of a topic's archive later than *epoch*."""

    topic: str
    epoch: int
    decode = nothing


class ReadLake(Operation[Lake | None], frozen=True):
    """Read the files of a topic's archive and the offset that they cover; None if there is no archive."""

    writes: ClassVar[bool] = False
    topic: str

    def decode(self, rows: Rows) -> Lake | None:
        """Return the archive: one row for each file, or one row without a file."""
        if not rows:
            return None
        location, format, covered, *_ = rows[0]
        return Lake(location, format, covered, [LakeFile(*row[3:]) for row in rows if row[3] is not None])


class ListLakes(Operation[list[LakeStats]], frozen=True):
    """Read the numbers of all archives."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> list[LakeStats]:
        return [LakeStats(*row) for row in rows]


class ExtendLake(Operation[bool], frozen=True):
    """Add the files that have everything after *after* up to *last*; return False if another writer has the turn.

    The database must still have the events that were *read* for them.
    """

    topic: str
    epoch: int
    after: int
    last: int
    files: list[LakeFile]
    read: Position

    def plan(self) -> Plan[bool]:
        """Write the offset first: of two writers of the same range, one waits for the other."""
        if not (yield CoverLake(self.topic, self.epoch, self.after, self.last)):
            return False
        if not (yield from VerifyPosition(self.topic, self.read).plan()):
            raise self.read.lost(self.topic, "archive it again")
        if self.files:
            yield AddFiles(self.topic, self.files)
        yield SaveOffset(self.topic, CONSUMER, self.last)
        return True


class CoverLake(Operation[None], frozen=True):
    """Set the covered offset of an archive to *last*; no row if it is not *after*, or another writer has the turn."""

    topic: str
    epoch: int
    after: int
    last: int


class AddFiles(Operation[None], frozen=True):
    """Record the files of an archive."""

    topic: str
    files: list[LakeFile]


class SwapFiles(Operation[bool], frozen=True):
    """Replace the files *old* by the files *new*, which hold the same events; False if another writer has the turn."""

    topic: str
    epoch: int
    old: list[str]
    new: list[LakeFile]

    def plan(self) -> Plan[bool]:
        """Replace all of the old files, or none."""
        if not (yield HoldLake(self.topic, self.epoch)):
            return False
        retired = yield RetireFiles(self.topic, self.old)
        if len(retired) != len(self.old):
            raise EventkitError(
                f"{len(self.old) - len(retired)} of the files to be replaced were retired meanwhile: compact again"
            )
        yield AddFiles(self.topic, self.new)
        return True


class HoldLake(Operation[None], frozen=True):
    """Lock the archive until the transaction ends; no row if another writer has the turn."""

    topic: str
    epoch: int


class RetireFiles(Operation[None], frozen=True):
    """Retire files; return a row for each that was not retired yet."""

    topic: str
    paths: list[str]


class FindRetired(Operation[list[str]], frozen=True):
    """Find the files that were retired so many milliseconds ago."""

    writes: ClassVar[bool] = False
    topic: str
    grace: int
    decode = column


class ListPaths(Operation[list[str]], frozen=True):
    """List the files in the manifest, retired ones too."""

    writes: ClassVar[bool] = False
    topic: str
    decode = column


class ForgetFiles(Operation[None], frozen=True):
    """Delete retired files that no longer exist from the manifest."""

    topic: str
    paths: list[str]
    decode = nothing


class PruneArchived(Operation[int], frozen=True):
    """Delete the oldest archived events, at most *limit*; return their number."""

    topic: str
    location: str
    older_than: int | None
    keep_unconsumed: bool
    limit: int

    def plan(self) -> Plan[int]:
        """Read the offset that the manifest allows, and delete up to it."""
        [(last,)] = yield self
        return (yield from drop_events(self.topic, last))

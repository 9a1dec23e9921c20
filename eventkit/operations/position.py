"""How far a reader of a topic has come, with the proof of what it has read.

A database goes back when an asynchronous standby is promoted or a backup is restored: events that were read are gone,
and later events are given the same offsets.  A reader that only compared numbers would skip those, so a position that
outlives a connection carries what identifies the last event read, and is verified before it is used again.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, ClassVar, NamedTuple

from ..arguments import MOST
from ..errors import DatabaseReplaced
from . import Operation, Plan, Rows


class WentBack(DatabaseReplaced):
    """Raised to a reader when the database no longer has what it has read."""


class Position(NamedTuple):
    """Everything up to *offset* has been read, in the database *database*.

    The proof is the last event at or below the offset, by its own offset, its moment in milliseconds and a digest of
    its content, where that is known.  Of an event that was pruned there is no moment either.
    """

    database: str
    offset: int
    event: int = 0
    created: int = 0
    digest: str = ""

    @classmethod
    def read_back(cls, fields: Any) -> Position | None:
        """The position whose fields were stored by name; None for anything else."""
        try:
            return cls(**fields)
        except TypeError:
            return None

    def at(self, event: int, created: int) -> Position:
        """The position of a reader that has handled this event, of which it does not know the text."""
        return Position(self.database, event, event, created)

    def after(
        self, event: int, key: str | None, payload: str | bytes, headers: str | bytes | None, created: int
    ) -> Position:
        """The position of a reader that has read on, up to this event."""
        return Position(self.database, event, event, created, digest(key, payload, headers))

    def proved_by(
        self, event: int, key: str | None, payload: str | bytes, headers: str | bytes | None, created: int
    ) -> bool:
        """Whether this is the last event that was read.

        A later moment is another event with the same content.  `testing.advance` moves moments back.
        """
        return (
            event == self.event
            and created <= self.created
            and (not self.digest or digest(key, payload, headers) == self.digest)
        )

    def lost(self, topic: str, remedy: str) -> WentBack:
        """The error for a reader whose position is not one of the database any more."""
        return WentBack(
            f"the database has gone back: event {self.event} of topic {topic!r}, which was read, is gone or is another "
            f"one. A backup was restored, or an asynchronous standby was promoted: {remedy}"
        )


def digest(key: str | None, payload: str | bytes, headers: str | bytes | None) -> str:
    """Return the digest of an event's content.  Text may be given as the bytes that are stored."""
    content = sha256(b"" if key is None else b"=" + key.encode())
    for text in (payload, headers or b""):
        content.update(b"\0" + (text.encode() if isinstance(text, str) else text))
    return content.hexdigest()[:32]


class ReadPosition(Operation[Position], frozen=True):
    """The position at an offset, with the proof that the database has for it now."""

    writes: ClassVar[bool] = False
    topic: str
    offset: int

    def plan(self) -> Plan[Position]:
        """The last event at or below the offset."""
        return _position((yield ReadProof(self.topic, self.offset, MOST)), self.offset)


class VerifyPosition(Operation[bool], frozen=True):
    """Whether the database still has what a reader has read, as far as that can be known.

    The events may have been pruned, which is no loss to a reader that has read them.
    """

    writes: ClassVar[bool] = False
    topic: str
    position: Position

    def plan(self) -> Plan[bool]:
        """Compare the last event that was read with the one that is there now."""
        known = self.position
        [(database, pruned_to, *event)] = yield ReadProof(self.topic, known.event, MOST)
        if database != known.database:
            return False
        return (
            bool(pruned_to >= known.event) or (event[0] == known.event and not known.created) or known.proved_by(*event)
        )


class FindFork(Operation[Position], frozen=True):
    """Where a database that has gone back parted from the one that *position* was read in.

    Events that were published since are younger than all that was read.
    """

    writes: ClassVar[bool] = False
    topic: str
    position: Position

    def plan(self) -> Plan[Position]:
        """The last event that is no younger than the last one read."""
        rows = yield ReadProof(self.topic, self.position.event, self.position.created)
        _, pruned_to, event, *_ = rows[0]
        return _position(rows, max(pruned_to, event or 0))


class ReadProof(Operation[None], frozen=True):
    """The database's identity, how far the topic is pruned, and its last event up to an offset and a moment."""

    writes: ClassVar[bool] = False
    topic: str
    offset: int
    created: int


def _position(rows: Rows, offset: int) -> Position:
    [(database, pruned_to, event, key, payload, headers, created)] = rows
    if event is None:
        return Position(database, offset, min(offset, pruned_to))
    return Position(database, offset, event, created, digest(key, payload, headers))

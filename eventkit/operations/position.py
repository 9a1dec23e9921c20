"""The position of a reader in a topic, with the proof of what it has read.

A database goes back when an asynchronous standby is promoted or a backup is restored: events that were read are gone,
and later events get the same offsets.  A reader that only compared numbers would skip those, so a position that
outlives a connection identifies the last event read, and is verified before it is used again.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, NamedTuple

from ..checks import MOST
from ..errors import DatabaseReplaced
from . import Plan, Read, Rows, Step, step


class WentBack(DatabaseReplaced):
    """Raised to a reader when the database no longer has the events that it read."""


class Position(NamedTuple):
    """A position: everything up to *offset* has been read, in the database *database*.

    The proof is the last event at or below the offset: its own offset, its time in milliseconds, and a digest of its
    content if that is known.  A pruned event has no time either.  A position that is never stored has a hash instead of
    the digest, which only this process can compare, in a tenth of the time.
    """

    database: str
    offset: int
    event: int = 0
    created: int = 0
    digest: str | int = ""

    @classmethod
    def read_back(cls, fields: Any) -> Position | None:
        """Return the position whose fields were stored by name; None for anything else."""
        try:
            return cls(**fields)
        except TypeError:
            return None

    def at(self, event: int, created: int) -> Position:
        """Return the position of a reader that has handled this event, of unknown text."""
        return Position(self.database, event, event, created)

    def after(
        self, event: int, key: str | None, payload: str | bytes, headers: str | bytes | None, created: int
    ) -> Position:
        """Return the position of a reader that has read up to this event."""
        return Position(self.database, event, event, created, digest(key, payload, headers))

    def past(self, rows: Rows) -> Position:
        """Return the position after the last of *rows*, for this process alone; without rows, this one."""
        if not rows:
            return self
        event, *content, created = rows[-1]
        return Position(self.database, event, event, created, hash(tuple(content)))

    def proved_by(
        self, event: int, key: str | None, payload: str | bytes, headers: str | bytes | None, created: int
    ) -> bool:
        """Return whether this is the last event that was read.

        An event with a later time is another event with the same content.  `testing.advance` moves times back.
        """
        if event != self.event or created > self.created:
            return False
        if isinstance(self.digest, int):
            return hash((key, payload, headers)) == self.digest
        return not self.digest or digest(key, payload, headers) == self.digest

    def lost(self, topic: str, remedy: str) -> WentBack:
        """Return the error for a reader whose position is not in the database any more."""
        return WentBack(
            f"the database has gone back: event {self.event} of stream {topic!r}, which was read, is gone or is "
            f"another one. A backup was restored, or an asynchronous standby was promoted: {remedy}"
        )


def digest(key: str | None, payload: str | bytes, headers: str | bytes | None) -> str:
    """Return the digest of an event's content.  Text may be given as the bytes that are stored."""
    content = sha256(b"" if key is None else b"=" + key.encode())
    for text in (payload, headers or b""):
        content.update(b"\0" + (text.encode() if isinstance(text, str) else text))
    return content.hexdigest()[:32]


class ReadPosition(Read[Position], frozen=True):
    """Read the position at an offset, with the proof that the database has for it now."""

    topic: str
    offset: int

    def plan(self) -> Plan[Position]:
        """Read the last event at or below the offset."""
        return _position((yield _proof(self.topic, self.offset)), self.offset)


class VerifyPosition(Read[bool], frozen=True):
    """Return whether the database still has what a reader has read, if that can be known.

    The events may have been pruned, which is no loss to a reader that has read them.
    """

    topic: str
    position: Position

    def plan(self) -> Plan[bool]:
        """Compare the last event that was read with the one that is there now."""
        known = self.position
        [(database, pruned_to, *event)] = yield _proof(self.topic, known.event)
        if database != known.database:
            return False
        return (
            bool(pruned_to >= known.event) or (event[0] == known.event and not known.created) or known.proved_by(*event)
        )


class FindFork(Read[Position], frozen=True):
    """Find where a database that has gone back parted from the one in which *position* was read.

    Events that were published since are younger than all that was read.
    """

    topic: str
    position: Position

    def plan(self) -> Plan[Position]:
        """Read the last event that is no younger than the last one read."""
        rows = yield _proof(self.topic, self.position.event, self.position.created)
        _, pruned_to, event, *_ = rows[0]
        return _position(rows, max(pruned_to, event or 0))


def _proof(topic: str, offset: int, created: int = MOST) -> Step:
    """Read the database's identity, how far the topic is pruned, and its last event up to an offset and a time."""
    return step("ReadProof", topic=topic, offset=offset, created=created)


def _position(rows: Rows, offset: int) -> Position:
    [(database, pruned_to, event, key, payload, headers, created)] = rows
    if event is None:
        return Position(database, offset, min(offset, pruned_to))
    return Position(database, offset, event, created, digest(key, payload, headers))

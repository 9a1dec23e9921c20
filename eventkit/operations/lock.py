"""What is asked of a database about locks.

A lock is held by whoever knows its token, until it expires.  Its row stays when it is released, so that its fence
grows with every holder.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from ..arguments import as_datetime
from . import Operation, Outlook, Probe, Rows


class AcquireLock(Operation[int | None], frozen=True):
    """Take the lock for *ttl* milliseconds, if nobody holds it; its fence, or None."""

    name: str
    token: int
    holder: str
    ttl: int

    def decode(self, rows: Rows) -> int | None:
        """The fence of the one row."""
        return rows[0][0] if rows else None

    def undo(self, answer: int | None) -> Operation[Any] | None:
        """The release, so that somebody else gets it at once."""
        return None if answer is None else ReleaseLock(self.name, self.token)


class RenewLock(Operation[bool], frozen=True):
    """Let the lock expire *ttl* milliseconds from now."""

    name: str
    token: int
    ttl: int

    def decode(self, rows: Rows) -> bool:
        """Whether it was still held."""
        return bool(rows)


class ReleaseLock(Operation[bool], frozen=True):
    """Let others have the lock."""

    name: str
    token: int

    def decode(self, rows: Rows) -> bool:
        """Whether it was still held."""
        return bool(rows)


class ReadHolder(Operation[tuple[str | None, datetime | None]], frozen=True):
    """Who holds the lock, and until when."""

    writes: ClassVar[bool] = False
    name: str

    def decode(self, rows: Rows) -> tuple[str | None, datetime | None]:
        """The holder and the moment; None and None for a lock that is free."""
        return (rows[0][0], as_datetime(rows[0][1])) if rows else (None, None)


class LockAhead(Probe, frozen=True):
    """Whether the lock is free, or when it will expire."""

    name: str

    @property
    def subjects(self) -> tuple[str, ...]:
        """The lock."""
        return (f"lock:{self.name}",)

    def decode(self, rows: Rows) -> Outlook:
        """Ready if nobody holds it."""
        expires_at, now = rows[0]
        return Outlook(expires_at is None, expires_at, now)

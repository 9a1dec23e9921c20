"""`Pressure`: saying "later" early, instead of taking in more than the database can.

What comes in is measured as it is written.  From certain marks on, requests that add something are refused with 429 and
``Retry-After`` before anything is done for them; whoever takes work out is never refused.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from ..protocols import AsyncConnection
from .problems import Refusal

_LOOK_EVERY = 0.25
"""Seconds between two looks at the size of the log."""

_RECOVERY = 1.0
"""Seconds after which writes are tried again that took too long."""

_WEIGHT = 0.1
"""What one write counts in the mean of the latest."""


class Pressure:
    """How hard it is at the moment to write to one database."""

    def __init__(self, connection: AsyncConnection, max_wal: int, max_commit: float, max_writing: int) -> None:
        # Whoever has no such log has no such limit.
        self._wal: Any = getattr(connection, "wal_size", lambda: 0)
        self._max_wal = max_wal
        self._max_commit = max_commit
        self._max_writing = max_writing
        self.writing = 0
        self.commit = 0.0
        """The mean seconds that the latest writes took."""
        self.wal = 0
        """The bytes of the log, when it was looked at last."""
        self.refused = 0
        self._look_at = self._measured_at = 0.0

    @contextmanager
    def write(self) -> Iterator[None]:
        """Around a write that adds something: it is refused, or counted and measured."""
        began = monotonic()
        if reason := self._too_much(began):
            self.refused += 1
            raise Refusal(429, "overloaded", f"{reason}: send less at once, or try again later")
        self.writing += 1
        try:
            yield
        finally:
            self.writing -= 1
            self._measured_at = monotonic()
            self.commit += _WEIGHT * (self._measured_at - began - self.commit)

    def _too_much(self, now: float) -> str | None:
        if now >= self._look_at:
            self.wal, self._look_at = self._wal(), now + _LOOK_EVERY
        if self.wal > self._max_wal:
            return f"the database's log has {self.wal:,} bytes that wait for a checkpoint"
        if self.writing >= self._max_writing:
            return f"{self.writing:,} writes wait for the database"
        if self.commit > self._max_commit and now < self._measured_at + _RECOVERY:
            return f"the database takes {self.commit:.1f} s for a write"
        return None

"""What is asked of a database about limits: each is one row, and each question one statement that also counts."""

from __future__ import annotations

from . import Operation, Rows


class CountCall(Operation[bool], frozen=True):
    """Count a call in the present window of *per* milliseconds, if it holds fewer than *limit*."""

    name: str
    per: int
    limit: int

    def decode(self, rows: Rows) -> bool:
        """Whether it was counted."""
        return bool(rows)


class TakeToken(Operation[bool], frozen=True):
    """Take a token from a bucket of *burst*, which gets *rate* a second and is full after *full_after* milliseconds."""

    name: str
    rate: float
    burst: float
    full_after: int

    def decode(self, rows: Rows) -> bool:
        """Whether there was one."""
        return bool(rows)

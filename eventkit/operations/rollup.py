"""What is asked of a database about sums by the hour."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from . import Operation, Plan, Rows
from .staging import MoveMark
from .stream import SaveOffset

CONSUMER = "rollup"
"""The consumer of a topic that shows how far its events are summed up."""


class Sum(NamedTuple):
    """How much was measured of something in an hour, which begins so many milliseconds after 1970."""

    subject: str
    name: str
    hour: int
    measure: str
    amount: int


class AddSums(Operation[bool], frozen=True):
    """Add what the events of a topic behind *after* up to *last* come to; False if somebody else has done so."""

    topic: str
    after: int
    last: int
    sums: list[Sum]

    def plan(self) -> Plan[bool]:
        """The mark comes first, so that of two who add the same one waits for the other."""
        if not (yield MoveMark(f"rollup:{self.topic}", self.after, self.last)):
            return False
        if self.sums:
            yield AddAmounts(self.sums)
        yield SaveOffset(self.topic, CONSUMER, self.last)
        return True


class AddAmounts(Operation[None], frozen=True):
    """Add to what there is."""

    sums: list[Sum]


class ReadSums(Operation[list[Sum]], frozen=True):
    """The sums of hours from one up to another, without that one."""

    writes: ClassVar[bool] = False
    since: int
    before: int

    def decode(self, rows: Rows) -> list[Sum]:
        """One sum a row."""
        return [Sum(*row) for row in rows]

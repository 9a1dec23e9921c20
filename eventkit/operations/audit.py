"""What is asked of a database that somebody else may want to know of: an operation, and the event that tells of it."""

from __future__ import annotations

from typing import Any

from . import Operation, Plan
from .stream import Publish

AUDIT = "eventkit.audit"
"""The stream of what administrators have done."""


class Audited(Operation[Any], frozen=True):
    """Do something, and tell of it in the same transaction; what answers False was not done, and is not told."""

    operation: Operation[Any]
    entry: str

    def plan(self) -> Plan[Any]:
        """The operation's own plan, and the event."""
        answer = yield from self.operation.plan()
        if answer is not False:
            yield Publish(AUDIT, None, self.entry, None)
        return answer

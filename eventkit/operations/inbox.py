"""What is asked of a database to tell which messages a consumer has seen."""

from __future__ import annotations

from . import Operation, Rows


class See(Operation[bool], frozen=True):
    """Note that the consumer has the message; whether it is the first time."""

    consumer: str
    message_id: str

    def decode(self, rows: Rows) -> bool:
        """A row was made."""
        return bool(rows)


class PruneInbox(Operation[int], frozen=True):
    """Forget what the consumer has seen longer ago; how many messages."""

    consumer: str
    older_than: int

    def decode(self, rows: Rows) -> int:
        """As many as rows."""
        return len(rows)

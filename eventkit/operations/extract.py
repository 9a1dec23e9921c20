"""What is asked of a database by whoever reads streams in bulk, from a range of offsets to the next.

Ranges are planned in one place and read in another, so an offset travels with the identity of the database that it
belongs to.  The end of a range is a settled offset: what is there by then is all that will ever be there.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from . import Operation, Rows


class Extent(NamedTuple):
    """How far a topic goes: everything up to *pruned_to* is gone, and everything up to *head* has settled."""

    known: bool
    pruned_to: int
    head: int


class ReadIdentity(Operation[str], frozen=True):
    """Which database this is; a copy has the identity of its original, and a new one has its own."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> str:
        """The one row."""
        identity: str = rows[0][0]
        return identity


class ListTopics(Operation[list[str]], frozen=True):
    """The names of all topics that have events, settings or consumers."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> list[str]:
        """One name a row."""
        return [name for (name,) in rows]


class ReadExtent(Operation[Extent], frozen=True):
    """How far a topic goes, and whether anybody ever heard of it."""

    writes: ClassVar[bool] = False
    topic: str

    def decode(self, rows: Rows) -> Extent:
        """The one row."""
        known, pruned_to, head = rows[0]
        return Extent(bool(known), pruned_to, head)


class FindEnd(Operation[tuple[int, int]], frozen=True):
    """The last of the *most* events of a topic behind *after*, up to *last*, and how many those are."""

    writes: ClassVar[bool] = False
    topic: str
    after: int
    last: int
    most: int

    def decode(self, rows: Rows) -> tuple[int, int]:
        """Offset and number; *last*, where there are not as many."""
        offset, number = rows[0]
        return (self.last if number < self.most else offset), number


class Fetching(Operation[Rows], frozen=True):
    """A read whose rows are columns to whoever asks, so that a backend may answer with those instead."""

    writes: ClassVar[bool] = False
    columns: ClassVar[tuple[str, ...]]

    def decode(self, rows: Rows) -> Rows:
        """The rows."""
        return rows


class FetchEvents(Fetching, frozen=True):
    """The events behind *after* up to *last*, in order: those of some keys, if any are named, and of a span of time.

    The moment is in milliseconds.
    """

    columns: ClassVar[tuple[str, ...]] = ("offset", "key", "payload", "headers", "created_at")
    topic: str
    after: int
    last: int
    keys: list[str]
    since: int | None
    before: int | None
    limit: int


class FetchStanding(Fetching, frozen=True):
    """Which database this is, and up to which offset the topic is pruned."""

    columns: ClassVar[tuple[str, ...]] = ("identity", "pruned_to")
    topic: str


class ReadTaskNumbers(Operation[tuple[int, int]], frozen=True):
    """A number below those of all tasks, and the highest of them."""

    writes: ClassVar[bool] = False

    def decode(self, rows: Rows) -> tuple[int, int]:
        """The one row."""
        below, last = rows[0]
        return below, last


class FindTaskEnd(Operation[tuple[int, int]], frozen=True):
    """The last of the *most* tasks behind a number, up to *last*, and how many those are."""

    writes: ClassVar[bool] = False
    after: int
    last: int
    most: int

    def decode(self, rows: Rows) -> tuple[int, int]:
        """Number and count; *last*, where there are not as many."""
        number, count = rows[0]
        return (self.last if count < self.most else number), count


class FetchTasks(Fetching, frozen=True):
    """The tasks behind a number up to another, as they are by the clock: those of a state, if one is named."""

    columns: ClassVar[tuple[str, ...]] = (
        "id",
        "queue",
        "state",
        "payload",
        "key",
        "headers",
        "priority",
        "attempt",
        "max_attempts",
        "run_at",
        "enqueued_at",
        "expires_at",
        "lease_expires_at",
        "worker",
        "claimed_at",
        "finished_at",
        "reason",
        "error",
        "result",
    )
    after: int
    last: int
    state: str | None
    limit: int


class FetchResults(Fetching, frozen=True):
    """The results behind an id that are kept still."""

    columns: ClassVar[tuple[str, ...]] = ("id", "value", "expires_at")
    after: str
    limit: int


class FetchSchedules(Fetching, frozen=True):
    """All schedules."""

    columns: ClassVar[tuple[str, ...]] = (
        "name",
        "when",
        "tz",
        "queue",
        "payload",
        "headers",
        "priority",
        "max_attempts",
        "catch_up",
        "paused",
        "next_at",
        "last_at",
        "fired",
        "skipped",
    )


class FetchConsumers(Fetching, frozen=True):
    """The consumers of all topics, and how many events are ahead of each."""

    columns: ClassVar[tuple[str, ...]] = ("topic", "name", "offset", "lag", "updated_at")

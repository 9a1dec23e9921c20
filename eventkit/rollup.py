"""Hourly sums, and the progress of pipelines."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from . import checks
from .errors import EventkitError
from .operations.admin import SavePipeline
from .operations.bulk import ReadSums, Sum
from .protocols import Connection

HOUR = 3_600_000
"""An hour in milliseconds."""

STEPS = 4
"""The number of buckets from a latency to its double."""

KINDS = (
    "enqueued",
    "started",
    "succeeded",
    "retried",
    "failed",
    "lapsed",
    "released",
    "snoozed",
    "cancelled",
    "dead",
    "expired",
    "requeued",
    "purged",
)
"""The steps of a task that are counted for its queue."""

FAILURES = ("retried", "failed", "lapsed")
"""The ends of a failed attempt."""


class Span(NamedTuple):
    """The measurements of a topic or a queue (*subject*) in an hour, or in several."""

    subject: str
    name: str
    begin_ms: int
    seconds: int
    amounts: Mapping[str, int]

    @property
    def begin(self) -> datetime:
        """The time at which it begins."""
        return datetime.fromtimestamp(self.begin_ms / 1000, UTC)

    def count(self, *measures: str) -> int:
        """Return the sum of these counts."""
        return sum(self.amounts.get(measure, 0) for measure in measures)

    @property
    def attempts(self) -> int:
        """The number of ended attempts, successful or not."""
        return self.count("succeeded", *FAILURES)

    @property
    def rate(self) -> float:
        """Events of a topic, or ended attempts of a queue, in a second."""
        return (self.count("events") if self.subject == "topic" else self.attempts) / self.seconds

    @property
    def failure_rate(self) -> float | None:
        """The share of failed attempts; None if there were none."""
        return self.count(*FAILURES) / self.attempts if self.attempts else None

    def percentile(self, latency: str, share: float) -> float | None:
        """Return the milliseconds of that percentile (*share*) of a latency (``wait``, ``run``); None without one."""
        buckets = sorted(
            (int(measure.partition(":")[2]), amount)
            for measure, amount in self.amounts.items()
            if measure.startswith(f"{latency}:")
        )
        rank = share * sum(amount for _, amount in buckets)
        for bucket, amount in buckets:
            rank -= amount
            if rank <= 0:
                return middle(bucket)
        return None


def middle(bucket: int) -> float:
    """Return a latency in the middle of its bucket; the first one is for less than a millisecond."""
    return 2 ** ((bucket - 0.5) / STEPS) if bucket else 0.0


def read(kit: Any, *, since: datetime, before: datetime) -> list[Sum]:
    """Return the sums of the hours that begin within that time."""
    found: list[Sum] = kit._connection.execute(ReadSums(_milliseconds(since), _milliseconds(before)))
    return found


def spans(sums: Iterable[Sum], *, hours: int = 1) -> list[Span]:
    """Return the spans of each topic and queue, of so many *hours*, in the order of names and of time."""
    step = hours * HOUR
    amounts: dict[tuple[str, str, int], Counter[str]] = {}
    for one in sums:
        amounts.setdefault((one.subject, one.name, one.hour // step * step), Counter())[one.measure] += one.amount
    return [Span(*place, hours * 3600, counted) for place, counted in sorted(amounts.items())]


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


class Note:
    """The record of one pipeline's progress."""

    def __init__(self, connection: Connection, name: str, source: str, sink: str) -> None:
        self._connection = connection
        self._name = checks.name("pipeline", name)
        self._source = source
        self._sink = sink

    def __call__(self, rows: int = 0, batch: int | None = None, lag: int | None = None) -> None:
        """Report that it runs: *rows* more were written, up to a batch, with *lag* events ahead of it."""
        self._save("running", rows, batch, lag, None)

    def end(self, error: str | None = None) -> None:
        """Report that it has ended."""
        self._save("failed" if error else "done", 0, None, None, error)

    def _save(self, state: str, rows: int, batch: int | None, lag: int | None, error: str | None) -> None:
        self._connection.execute(
            SavePipeline(self._name, self._source, self._sink, state, batch, rows, lag, error and checks.text(error))
        )


@contextmanager
def noted(connection: Connection, name: str, source: str, sink: str) -> Iterator[Note]:
    """Report that it runs, and how it ends."""
    note = Note(connection, name, source, sink)
    note()
    try:
        yield note
    except BaseException as error:
        with suppress(EventkitError):
            note.end("interrupted" if isinstance(error, KeyboardInterrupt) else str(error) or type(error).__name__)
        raise
    note.end()

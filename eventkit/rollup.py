"""Hourly sums, and the progress of pipelines."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
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

_KINDS = "enqueued started succeeded retried failed lapsed released snoozed cancelled dead expired requeued purged"
KINDS = tuple(_KINDS.split())
"""The steps of a task that are counted for its queue."""

FAILURES = ("retried", "failed", "lapsed")
"""The ends of a failed attempt."""


class Span(NamedTuple):
    """The measurements of a stream or a queue (*subject*) in an hour, or in several."""

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
        """Events of a stream, or ended attempts of a queue, in a second."""
        return (self.count("events") if self.subject == "stream" else self.attempts) / self.seconds

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
    bounds = (int(moment.timestamp() * 1000) for moment in (since, before))
    found: list[Sum] = kit._connection.execute(ReadSums(*bounds))
    return found


def spans(sums: Iterable[Sum], *, hours: int = 1) -> list[Span]:
    """Return the spans of each stream and queue, of so many *hours*, in the order of names and of time."""
    step = hours * HOUR
    amounts: dict[tuple[str, str, int], Counter[str]] = {}
    for one in sums:
        subject = "stream" if one.subject == "topic" else one.subject
        amounts.setdefault((subject, one.name, one.hour // step * step), Counter())[one.measure] += one.amount
    return [Span(*place, hours * 3600, counted) for place, counted in sorted(amounts.items())]


Report = Callable[..., None]
"""A function that reports the progress of a pipeline: so many rows more, up to a batch, with a lag of events ahead."""


@contextmanager
def reported(connection: Connection, name: str, source: str, sink: str) -> Iterator[Report]:
    """Report that a pipeline runs, and how it ends."""
    checks.name("pipeline", name)

    def save(state: str, error: str | None, rows: int = 0, batch: int | None = None, lag: int | None = None) -> None:
        operation = SavePipeline(name, source, sink, state, batch, rows, lag, error and checks.text(error))
        connection.execute(operation)

    save("running", None)
    try:
        yield partial(save, "running", None)
    except BaseException as error:
        with suppress(EventkitError):
            reason = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error) or type(error).__name__
            save("failed", reason)
        raise
    save("done", None)

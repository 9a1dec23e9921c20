"""Sums by the hour, and what can be told from them: rates, failure rates, latencies.

Everything that is kept adds up, so hours make days, and what comes late is added to its hour.  A latency is counted in
a bucket, each of which ends a fifth beyond where it begins (four to a doubling); so a percentile is off by a tenth at
most, and is that of all that was measured, however many hours there are.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from .operations.rollup import ReadSums, Sum

HOUR = 3_600_000
"""Milliseconds."""

STEPS = 4
"""Buckets from a latency to its double."""

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
"""The ends of an attempt that has failed."""


class Span(NamedTuple):
    """What was measured of a topic or a queue (*subject*) in an hour, or in several."""

    subject: str
    name: str
    begin_ms: int
    seconds: int
    amounts: Mapping[str, int]

    @property
    def begin(self) -> datetime:
        """When it begins."""
        return datetime.fromtimestamp(self.begin_ms / 1000, UTC)

    def count(self, *measures: str) -> int:
        """How many there were of these, together."""
        return sum(self.amounts.get(measure, 0) for measure in measures)

    @property
    def attempts(self) -> int:
        """The attempts that have come to an end, well or not."""
        return self.count("succeeded", *FAILURES)

    @property
    def rate(self) -> float:
        """Events of a topic, or ended attempts of a queue, in a second."""
        return (self.count("events") if self.subject == "topic" else self.attempts) / self.seconds

    @property
    def failure_rate(self) -> float | None:
        """Which share of the attempts has failed; None where there were none."""
        return self.count(*FAILURES) / self.attempts if self.attempts else None

    def percentile(self, latency: str, share: float) -> float | None:
        """Within how many milliseconds that *share* of a latency (``wait``, ``run``) was; None where there was none."""
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
    """A latency in the middle of its bucket; the first one is for those of less than a millisecond."""
    return 2 ** ((bucket - 0.5) / STEPS) if bucket else 0.0


def read(kit: Any, *, since: datetime, before: datetime) -> list[Sum]:
    """The sums of the hours that begin within that time."""
    found: list[Sum] = kit._connection.execute(ReadSums(_milliseconds(since), _milliseconds(before)))
    return found


def spans(sums: Iterable[Sum], *, hours: int = 1) -> list[Span]:
    """What the sums tell of each topic and queue, in spans of so many *hours*, in the order of names and of time."""
    step = hours * HOUR
    amounts: dict[tuple[str, str, int], Counter[str]] = {}
    for one in sums:
        amounts.setdefault((one.subject, one.name, one.hour // step * step), Counter())[one.measure] += one.amount
    return [Span(*place, hours * 3600, counted) for place, counted in sorted(amounts.items())]


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)

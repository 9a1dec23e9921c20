"""The rate of following a stream, in micro-batches of several sizes."""

from collections.abc import Iterator
from statistics import median

from ..report import Table, thousands, verdict
from ..settings import Settings
from .stage import EVENTS, Stage, fill, staged

_SIZES = (20_000, 100_000, 500_000)
_BARS = {100_000: 450_000}


def measure(settings: Settings) -> Iterator[Table]:
    """Measure following a stream."""
    count = settings.count(EVENTS)
    with staged(settings, "spark-following") as stage:
        for url in stage.urls.values():
            fill(url, "orders", count)
        yield _batches(stage, settings, count)


def _batches(stage: Stage, settings: Settings, count: int) -> Table:
    table = Table(
        "Spark: following a stream to a no-op sink",
        ("database", "rows in a micro-batch", "rows/s", "of one micro-batch", "bar", "reached"),
        note=f"The median of queries that read {count:,} events with `availableNow`: all rows by the time of all "
        f"micro-batches but the first, with planning, checkpoint and commit. {stage.note}",
    )
    for database in stage.urls:
        for size in _SIZES:
            taken = settings.count(size)
            rates = [_rate(stage, database, taken, number) for number in range(1 if settings.quick else 4)]
            rate = median(rates[1:] or rates)  # The first one warms up.
            bar = _BARS.get(size)
            reached = ("–", "–") if bar is None else (f"≥ {bar:,}", verdict(rate >= bar))
            table.add([database, f"{taken:,}", thousands(rate), f"{taken / rate * 1000:.0f} ms", *reached])
    return table


def _rate(stage: Stage, database: str, size: int, number: int) -> float:
    stream = stage.follow(database, topic="orders", startingOffsets="earliest", maxOffsetsPerTrigger=str(size))
    checkpoint = str(stage.folder / f"{database}-{size}-{number}")
    query = stream.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    running = query.start()
    running.awaitTermination()
    batches = [batch for batch in running.recentProgress if batch["numInputRows"]]
    counted = batches[1:] or batches
    seconds = sum(batch["durationMs"]["triggerExecution"] for batch in counted) / 1000
    return float(sum(batch["numInputRows"] for batch in counted) / seconds)

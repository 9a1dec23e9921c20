"""Streams that are followed: the rate of micro-batches, and the delay of an event from its publisher to the sink."""

import time
from collections.abc import Iterator
from queue import SimpleQueue
from statistics import median, quantiles
from time import perf_counter
from typing import TYPE_CHECKING

import eventkit

from ..databases import Settings
from ..report import Table, at_least, at_most, milliseconds, thousands
from . import EVENTS, Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SIZES = {20_000: None, 100_000: 450_000, 500_000: None}
"""The sizes of micro-batches, and the required rows a second."""

_READERS = {"false": ("workers", 0.120), "true": ("the driver", 0.075)}
_DELAYS = 40
_PATIENCE = 120.0


def measure(settings: Settings, stage: Stage) -> Iterator[Table]:
    """Measure following a stream, in micro-batches of several sizes."""
    count = settings.count(EVENTS)
    table = Table(
        "Spark: following a stream to a no-op sink",
        "database | rows in a micro-batch | rows/s | of one micro-batch | bar | reached",
        note=f"The median of queries that read {count:,} events with `availableNow`: all rows by the time of all "
        "micro-batches but the first, with planning, checkpoint and commit.",
    )
    stage.fill("orders", count)
    for database in stage.urls:
        for size, bar in _SIZES.items():
            taken = settings.count(size)
            rates = [_rate(stage, database, taken, number) for number in range(1 if settings.quick else 4)]
            rate = median(rates[1:] or rates)  # The first one warms up.
            cells = (database, f"{taken:,}", thousands(rate), milliseconds(taken / rate))
            table.add(*cells, *at_least(rate, bar))
    yield table


def _rate(stage: Stage, database: str, size: int, number: int) -> float:
    stream = stage.follow(database, topic="orders", startingOffsets="earliest", maxOffsetsPerTrigger=str(size))
    checkpoint = str(stage.folder / f"{database}-{size}-{number}")
    query = stream.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    running = query.start()
    running.awaitTermination()
    batches = [batch for batch in running.recentProgress if batch["numInputRows"]]
    counted = batches[1:] or batches
    spent = sum(batch["durationMs"]["triggerExecution"] for batch in counted) / 1000
    return float(sum(batch["numInputRows"] for batch in counted) / spent)


def measure_latency(settings: Settings, stage: Stage) -> Iterator[Table]:
    """Measure the delay of single events."""
    table = Table(
        "Spark: one event, from its publisher to the sink",
        "database | read by | median | 90 % | bar | reached",
        note="The sink is a function that collects the micro-batch (`foreachBatch`), the checkpoint is on the "
        "local disk, and events are half a second apart.",
    )
    for database in stage.urls:
        for low_latency, (reader, bar) in _READERS.items():
            times = _delays(stage, database, low_latency, settings.count(_DELAYS, least=4))
            parts = quantiles(times, n=10, method="inclusive")
            cells = (database, reader, milliseconds(parts[4]), milliseconds(parts[8]))
            table.add(*cells, *at_most(parts[4], bar, milliseconds))
    yield table


def _delays(stage: Stage, database: str, low_latency: str, count: int) -> list[float]:
    arrivals: SimpleQueue[float] = SimpleQueue()

    def arrive(batch: "DataFrame", number: int) -> None:
        if batch.collect():
            arrivals.put(perf_counter())

    with eventkit.connect(stage.urls[database]) as kit:
        name = f"one {low_latency}"
        topic = kit.stream(name)
        topic.publish(0)
        stream = stage.follow(database, topic=name, startingOffsets="earliest", lowLatency=low_latency)
        checkpoint = str(stage.folder / f"{database}-{low_latency}")
        query = stream.writeStream.foreachBatch(arrive).option("checkpointLocation", checkpoint).start()
        try:
            arrivals.get(timeout=_PATIENCE)
            times = []
            for number in range(count + 3):
                time.sleep(0.5)
                begun = perf_counter()
                topic.publish(number)
                times.append(arrivals.get(timeout=_PATIENCE) - begun)
            return times[3:]
        finally:
            query.stop()

"""The delay of an event from the call that publishes it to the sink of a query."""

import time
from collections.abc import Iterator
from queue import SimpleQueue
from statistics import quantiles
from time import perf_counter
from typing import TYPE_CHECKING

import eventkit

from ..report import Table, milliseconds, verdict
from ..settings import Settings
from .stage import Stage, staged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_READERS = {"false": ("workers", 0.120), "true": ("the driver", 0.075)}
_EVENTS = 60
_PATIENCE = 120.0


def measure(settings: Settings) -> Iterator[Table]:
    """Measure the delay of single events."""
    with staged(settings, "spark-latency") as stage:
        table = Table(
            "Spark: one event, from its publisher to the sink",
            ("database", "read by", "median", "90 %", "bar", "reached"),
            note="The sink is a function that collects the micro-batch (`foreachBatch`), the checkpoint is on the "
            f"local disk, and events are half a second apart. {stage.note}",
        )
        for database in stage.urls:
            for low_latency, (reader, bar) in _READERS.items():
                times = _times(stage, database, low_latency, settings.count(_EVENTS, least=4))
                parts = quantiles(times, n=10, method="inclusive")
                reached = (f"≤ {milliseconds(bar)}", verdict(parts[4] <= bar))
                table.add([database, reader, milliseconds(parts[4]), milliseconds(parts[8]), *reached])
        yield table


def _times(stage: Stage, database: str, low_latency: str, count: int) -> list[float]:
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

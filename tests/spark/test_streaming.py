"""A stream as a stream: each event once, in micro-batches, and on from where it was after a restart."""

from pathlib import Path
from typing import Any

import pytest
from spark.streams import Query

import eventkit

both_readers = pytest.mark.parametrize("low_latency", ["false", "true"], ids=["workers", "driver"])


@both_readers
def test_each_event_comes_once(spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path, low_latency: str) -> None:
    """A query that is run again goes on behind what it has read, and its consumer follows."""
    orders = kit.stream("orders")
    first = orders.publish_many(list(range(25)))
    query = Query(
        spark, tmp_path, url, topic="orders", consumer="lake", maxOffsetsPerTrigger="10", lowLatency=low_latency
    )
    assert [progress["numInputRows"] for progress in query.run()] == [10, 10, 5]
    assert orders.offset("lake") == first[-1]
    second = orders.publish_many([25, 26])
    assert [progress["numInputRows"] for progress in query.run()] == [2]
    assert [row.offset for row in query.rows()] == first + second
    assert orders.offset("lake") == second[-1]
    assert query.run() == []

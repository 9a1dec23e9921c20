"""No event is skipped: publishers commit in any order while a query runs, and it receives every committed event."""

import time
from pathlib import Path
from typing import Any

import pytest
from racing_publisher import NAMES, publish_in_every_way
from spark.streams import Query, wait_for

import eventkit
from eventkit.conformance.clauses import proves
from eventkit.conformance.processes import spawn


def race(spark: Any, folder: Path, url: str, writers: int, seconds: float, **options: str) -> None:
    """Read while all publishers run."""
    for name in NAMES:
        with eventkit.connect(url) as kit:
            kit.stream(name).save_offset("waiting", 0)
    query = Query(spark, folder, url, subscribe=",".join(NAMES), startingOffsets="earliest", **options)
    running = query.start(processingTime="0 seconds")
    try:
        processes = [spawn(publish_in_every_way, url, writer, seconds) for writer in range(writers)]
        time.sleep(seconds)  # They publish for this long, and then get time to end.
        sent = [one for process in processes for one in process.result()[0]]
        with eventkit.connect(url) as kit:
            committed = sorted(event.offset for name in NAMES for event in kit.stream(name).read(limit=1_000_000))
        wait_for(lambda: len(query.rows()) >= len(committed))
        assert len(committed) == len([kind for kind, _, _ in sent if kind == "event"])
        assert [row.offset for row in query.rows()] == committed
    finally:
        running.stop()


@proves("D3")
def test_what_was_committed_is_received(spark: Any, postgres_url: str, tmp_path: Path) -> None:
    """A query of many small micro-batches receives it."""
    eventkit.connect(postgres_url).close()
    race(spark, tmp_path, postgres_url, writers=3, seconds=3)


@proves("D3")
@pytest.mark.slow
@pytest.mark.parametrize("low_latency", ["false", "true"], ids=["workers", "driver"])
def test_what_a_fleet_committed_is_received(spark: Any, postgres_url: str, tmp_path: Path, low_latency: str) -> None:
    """Eight publish for a minute, and each of the readers receives it."""
    eventkit.connect(postgres_url).close()
    race(spark, tmp_path, postgres_url, writers=8, seconds=60, lowLatency=low_latency)

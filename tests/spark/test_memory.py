"""Readers take the same memory for any number of events."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from spark.families import command, descendants
from spark.streams import both, read, stored

import eventkit
from eventkit.conformance.clauses import proves

pytestmark = [pytest.mark.slow, both]

EVENTS = 10_000_000
MOST = {"python": 400, "java": 1_500}
"""Megabytes of a worker's process, and of the driver; 178 to 294 of the one were measured, 500 to 678 of the other."""

FILL = {
    "sqlite": "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT {count}) "
    "INSERT INTO {table} (topic, payload) SELECT 'orders', json_object('id', n, 'pad', '{pad}') FROM n",
    "postgresql": "INSERT INTO {table} (topic, payload) "
    "SELECT 'orders', json_build_object('id', n, 'pad', '{pad}') FROM generate_series(1, {count}) AS n",
}


class Watch:
    """A thread that samples the processes of Spark, and records the most memory of each kind."""

    def __init__(self) -> None:
        self.most = {"python": 0, "java": 0}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(0.1):
            for process in descendants(os.getpid()):
                words = command(process)
                kind = "java" if "java" in words.partition(" ")[0] else "python" if "pyspark" in words else None
                if kind is not None:
                    self.most[kind] = max(self.most[kind], megabytes(process))


def megabytes(process: int) -> int:
    """Return its memory: its own pages and those that it shares."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") // 2**20
    except OSError:
        return 0


LARGE = 2_000

FILL_LARGE = {
    "sqlite": "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT {count}) "
    "INSERT INTO {table} (topic, payload) SELECT 'orders', '\"' || hex(randomblob(262100)) || '\"' FROM n",
    "postgresql": "INSERT INTO {table} (topic, payload) "
    "SELECT 'orders', to_json(repeat(md5(n::text), 16380)) FROM generate_series(1, {count}) AS n",
}
"""SQL that adds a gigabyte of events."""


def check(spark: Any, url: str, tmp_path: Path, count: int, longest: int, trigger: str) -> None:
    """Read the events once and follow them; no process takes more than its most."""
    with Watch() as watch:
        assert read(spark, url, topic="orders").selectExpr("count(*)", "sum(length(payload)) > 0").first() == (
            count,
            True,
        )
        options = {"topic": "orders", "startingOffsets": "earliest", "maxOffsetsPerTrigger": trigger}
        stream = spark.readStream.format("eventkit").options(url=url, **options).load()
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        assert sum(batch["numInputRows"] for batch in query.recentProgress) == count
    print(watch.most)
    assert watch.most["python"] > 0
    assert {kind: most for kind, most in watch.most.items() if most > MOST[kind]} == {}


@proves("D1", "D3")
def test_events_of_half_a_megabyte_take_no_more_memory(
    spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path
) -> None:
    """They are read once and followed, behind some small ones."""
    [kind, _, _] = url.partition(":")
    kit.stream("orders").publish_many(range(1_000))
    with kit.transaction() as tx:
        tx.execute(FILL_LARGE[kind].format(count=LARGE, table=stored("event", url)))
    check(spark, url, tmp_path, LARGE + 1_000, 524_000, "1000")


@proves("D1", "D3")
def test_ten_million_events_take_no_more_memory(spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path) -> None:
    """They are read once and followed, with all their columns."""
    [kind, _, _] = url.partition(":")
    for _ in range(10):
        with kit.transaction() as tx:
            tx.execute(FILL[kind].format(count=EVENTS // 10, pad="x" * 60, table=stored("event", url)))
    check(spark, url, tmp_path, EVENTS, 0, "1000000")

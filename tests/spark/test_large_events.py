"""Events and tasks of 512 KiB are read a few at a time, for any number of them."""

from typing import Any

import pytest

import eventkit
from eventkit import arrow
from eventkit.conformance import proves
from eventkit.spark.source import EventkitSource

EVENTS = 24
LARGE = 524_286


@pytest.fixture
def large(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a topic and a queue of these, and a limit of some of them."""
    monkeypatch.setattr(arrow, "_FIRST", 4)
    monkeypatch.setattr(arrow, "_BYTES", 3 * 2**20)
    with eventkit.connect(url) as kit:
        for _ in range(EVENTS // 4):
            kit.stream("orders").publish_many(["x" * LARGE] * 4)
            kit.queue("jobs").enqueue_many(["x" * LARGE] * 4)
    return url


def source(url: str, **options: str) -> tuple[Any, Any]:
    """Return Spark's reader for the options, and the columns."""
    made = EventkitSource({"url": url, **options})
    return made, made.schema()


@proves("D1")
def test_the_first_are_few() -> None:
    """The first read is small, because payloads may have the maximal size."""
    assert arrow.Portion().rows * LARGE <= 2 * arrow._BYTES


@proves("D1", "D8")
@pytest.mark.parametrize("options", [{"topic": "orders"}, {"table": "tasks"}])
def test_what_is_read_at_once_is_some_megabytes(large: str, options: dict[str, str]) -> None:
    """This includes the first ones, whose size is not known."""
    made, columns = source(large, **options)
    reader = made.reader(columns)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert sum(batch.num_rows for batch in batches) == EVENTS
    assert 2**20 < max(batch.nbytes for batch in batches) < 4 * 2**20


@proves("D3")
def test_a_micro_batch_that_the_driver_reads_is_some_megabytes(large: str) -> None:
    """It is read again unchanged."""
    made, columns = source(large, topic="orders", startingOffsets="earliest", lowLatency="true")
    reader = made.simpleStreamReader(columns)
    position, found = reader.initialOffset(), 0
    while True:
        batches, end = reader.read(position)
        batches = list(batches)
        if end == position:
            break
        assert sum(batch.nbytes for batch in batches) < 4 * 2**20
        assert list(reader.readBetweenOffsets(position, end)) == batches
        found, position = found + sum(batch.num_rows for batch in batches), end
    assert found == EVENTS
    reader._following.close()

"""Each event arrives in the sink once, although processes are killed while a stream is read."""

from pathlib import Path
from typing import Any

import pytest
from spark.killing import KilledQuery

import eventkit
from eventkit.conformance.clauses import proves


@pytest.fixture
def query(spark: Any, url: str, tmp_path: Path) -> KilledQuery:
    """Return a query over the topic ``orders``, with the consumer ``lake``."""
    return KilledQuery(spark, tmp_path, url)


@proves("D3", "D4")
@pytest.mark.slow
def test_each_event_comes_once_after_kills(kit: eventkit.EventKit, query: KilledQuery) -> None:
    """Kills come in planning, in reading, and between the two; the consumer is never ahead of the sink."""
    stream = kit.stream("orders")
    published = []
    for at in (4, 7, 9):
        published += stream.publish_many([1, 2, 3])
        assert query.run(at)
        assert stream.offset("lake") <= max(query.offsets(), default=0)
    assert not query.run()
    assert query.offsets() == published
    assert stream.offset("lake") == published[-1]


@proves("D3", "D4")
@pytest.mark.slow
def test_each_event_comes_once_after_a_kill_at_any_step(kit: eventkit.EventKit, query: KilledQuery) -> None:
    """Fifty kills come at each of the first steps of a run, one after the other."""
    stream = kit.stream("orders")
    published = []
    for at in range(1, 51):
        published += stream.publish_many(list(range(8)))
        query.run(at % 25 + 1)
        assert stream.offset("lake") <= max(query.offsets(), default=0)
    assert not query.run()
    assert query.offsets() == published

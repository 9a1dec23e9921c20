"""A stream as a streaming source: each event once, in micro-batches, also after a restart."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from spark.streams import Query, both, offsets, read, stored

import eventkit
from eventkit.arrow import by_rows, opened
from eventkit.conformance.clauses import proves
from eventkit.kit import backend_of
from eventkit.operations.tables import FetchEvents

both_readers = pytest.mark.parametrize(
    ("url", "low_latency"), [("sqlite", "true"), ("postgresql", "false")], indirect=["url"], ids=["driver", "workers"]
)
"""Marks tests of the reader in the driver, on one kind of database, and of that in the workers, on the other."""


def sizes(progress: list[dict[str, Any]]) -> list[int]:
    """Return how many events each micro-batch had."""
    return [batch["numInputRows"] for batch in progress]


@proves("D3", "D4")
@both_readers
def test_each_event_comes_once(spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path, low_latency: str) -> None:
    """A restarted query continues after the events it has read, and its consumer follows."""
    orders = kit.stream("orders")
    first = orders.publish_many(list(range(25)))
    options = {"topic": "orders", "consumer": "lake", "maxOffsetsPerTrigger": "10", "lowLatency": low_latency}
    query = Query(spark, tmp_path, url, **options)
    assert sizes(query.run()) == [10, 10, 5]
    assert orders.offset("lake") == first[-1]
    second = orders.publish_many([25, 26])
    assert sizes(query.run()) == [2]
    assert query.offsets() == first + second
    assert orders.offset("lake") == second[-1]
    third = orders.publish(27)
    anew = Query(spark, tmp_path / "anew", url, **options)
    anew.run()
    assert anew.offsets() == [third]


@proves("D3")
@both_readers
def test_a_running_query_sees_what_is_new(
    spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path, low_latency: str
) -> None:
    """By default it starts at the head; new topics that match a pattern are included."""
    kit.stream("orders").publish("before")
    query = Query(spark, tmp_path, url, subscribePattern="orders.*", lowLatency=low_latency)
    with query.running() as running:
        running.processAllAvailable()
        expected = [kit.stream("orders").publish("one")]
        running.processAllAvailable()
        assert query.offsets() == expected
        expected.append(kit.stream("orders.eu").publish("two"))
        running.processAllAvailable()
        assert query.offsets() == expected


@proves("D3")
def test_a_limit_is_shared_by_topics(spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path) -> None:
    """Each topic gets its part, and the unused rest goes to the others; the progress has the events left of each."""
    kit.stream("few").publish_many([1, 2])
    kit.stream("many").publish_many(list(range(15)))
    query = Query(spark, tmp_path, url, subscribe="few,many", startingOffsets="earliest", maxOffsetsPerTrigger="10")
    batches = query.run()
    assert sizes(batches) == [10, 7]
    lags = [eventkit.spark.progress(batch).sources[0].metrics for batch in batches]  # type: ignore[arg-type]
    assert [(lag["avgOffsetsBehindLatest"], lag["maxOffsetsBehindLatest"]) for lag in lags] == [
        ("3.5", "7"),
        ("0.0", "0"),
    ]
    place = json.loads(batches[0]["sources"][0]["endOffset"])
    assert [row.topic for row in query.rows() if row.offset <= place["few"]["offset"]] == ["few", "few"]


@proves("D3")
def test_a_micro_batch_waits_for_enough(spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path) -> None:
    """The wait is bounded, and omitted if the query ends with the existing events."""
    stream = kit.stream("orders")
    stream.publish_many([1, 2, 3])
    earliest = {"topic": "orders", "startingOffsets": "earliest", "minOffsetsPerTrigger": "5"}
    query = Query(spark, tmp_path / "once", url, **earliest)
    assert sizes(query.run()) == [3]
    patient = Query(spark, tmp_path / "patient", url, **earliest)
    with patient.running() as running:
        running.processAllAvailable()
        assert patient.rows() == []
        stream.publish_many([4, 5])
        running.processAllAvailable()
        assert len(patient.rows()) == 5
    impatient = Query(
        spark, tmp_path / "impatient", url, **earliest | {"minOffsetsPerTrigger": "9"}, maxTriggerDelay="1ms"
    )
    with impatient.running() as running:
        running.processAllAvailable()
        assert len(impatient.rows()) == 5


@proves("D3")
def test_an_empty_stream(spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path) -> None:
    """A query over a topic without events ends with nothing, and finds them when there are some."""
    kit.stream("orders").save_offset("other", 0)
    query = Query(spark, tmp_path, url, topic="orders")
    assert (query.run(), query.rows()) == ([], [])
    offset = kit.stream("orders").publish(1)
    query.run()
    assert query.offsets() == [offset]


@proves("D1", "D3")
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_nothing_is_read_beyond_what_has_settled(spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path) -> None:
    """An event that commits late, below others, is not skipped."""
    stream = kit.stream("orders")
    query = Query(spark, tmp_path, url, topic="orders", startingOffsets="earliest")
    early = stream.publish("early")
    with kit.transaction() as tx:
        late = stream.publish("late", tx=tx)
        later = stream.publish("later")
        query.run()
        assert query.offsets() == [early]
        assert offsets(read(spark, url, topic="orders")) == [early]
        assert offsets(read(spark, url, topic="orders", endingOffsets=str(later + 1))) == [early]
    query.run()
    assert query.offsets() == [early, late, later]


TEXTS = [
    '{"b": 1,  "a":1.0, "a": null}',
    "[1, [2]]",
    "null",
    "12345678901234567890",
    '"true"',
    "true",
    "1.0",
    '"é\\u0000"',
]
"""Payloads whose text a reader could change: spaces, names that repeat, numbers, texts that look like other values."""


@proves("D1", "D3")
@both
def test_every_reader_gives_payloads_and_headers_as_they_are(
    spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path
) -> None:
    """They are equal in each byte: in a batch, in Kafka's layout, in streams of workers and driver, without ADBC."""
    headers = '{"one": "1.0", "flag": "true", "text": "{\\"a\\": null}"}'
    expected = [(text, {"one": "1.0", "flag": "true", "text": '{"a": null}'}) for text in TEXTS]
    with kit.transaction() as tx:
        kit.stream("orders").publish(0, tx=tx)
        for text in TEXTS:
            values = f"('orders', '{text}', '{headers}')"
            tx.execute(f"INSERT INTO {stored('event', url)} (topic, payload, headers) VALUES {values}")
    options = {"url": url, "topic": "orders"}
    first = str(kit.stream("orders").read(limit=1)[0].offset + 1)

    def found(frame: Any) -> list[tuple[str, dict[str, str]]]:
        return [(row.payload, row.headers) for row in frame.orderBy("offset").collect()]

    batch = spark.read.format("eventkit").options(**options, startingOffsets=first)
    assert found(batch.load()) == expected
    rows = batch.options(layout="kafka", includeHeaders="true").load().orderBy("offset").collect()
    as_text = [(row.value.decode(), {one.key: one.value.decode() for one in row.headers}) for row in rows]
    assert as_text == expected
    for low_latency in ("false", "true"):
        name = f"as_they_are_{low_latency}"
        stream = spark.readStream.format("eventkit").options(**options, startingOffsets=first, lowLatency=low_latency)
        writer = stream.load().writeStream.format("memory").queryName(name)
        writer.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start().awaitTermination()
        assert found(spark.table(name)) == expected
    fetch = FetchEvents("orders", int(first) - 1, 2**62, [], None, None, 100)
    with closing(backend_of(url).connect(url, create=False)) as connection:
        by_driver = by_rows(connection)(fetch, ["payload", "headers"])
    with opened(url) as read:
        assert read(fetch, ["payload", "headers"]).to_pylist() == by_driver.to_pylist()
    assert by_driver["payload"].to_pylist() == TEXTS

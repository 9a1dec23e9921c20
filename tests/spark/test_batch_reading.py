"""Streams, tasks and other tables as they are when the query begins, in every layout, at any size."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from spark.streams import both, offsets, read, stored

import eventkit
from eventkit import arrow
from eventkit.conformance.clauses import proves
from eventkit.spark.source import EventkitSource


def moment(naive: datetime) -> datetime:
    """Return a moment in the form that Spark gives to Python: naive, in the zone of this machine."""
    return datetime.fromtimestamp(naive.timestamp(), UTC)


@proves("D1")
@both
def test_events_come_as_they_were_published(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """Every column equals that of the kit, and there are no others, in every layout and under a schema of some."""
    orders = kit.stream("orders")
    orders.publish({"id": 1}, key="a", headers={"trace": "x", "ümlaut": "é"})
    orders.publish("🙂\u0000")
    orders.publish("x" * (524_288 - 2))
    kit.stream("others").publish(None)
    expected = orders.read()
    rows = read(spark, url, topic="orders").orderBy("offset").collect()
    assert [row.offset for row in rows] == [event.offset for event in expected]
    assert [row.topic for row in rows] == ["orders"] * 3
    assert [row.key for row in rows] == ["a", None, None]
    assert [json.loads(row.payload) for row in rows] == [event.payload for event in expected]
    assert rows[0].payload == '{"id":1}'
    assert [row.headers for row in rows] == [{"trace": "x", "ümlaut": "é"}, None, None]
    assert [moment(row.created_at) for row in rows] == [event.created_at for event in expected]
    table = read(spark, url, topic="orders", layout="kafka", includeHeaders="true")
    row = table.orderBy("offset").first()
    assert (bytes(row.key), bytes(row.value), row.topic) == (b"a", b'{"id":1}', "orders")
    assert (row.partition, row.offset, row.timestampType) == (0, expected[0].offset, 0)
    headers = {header.key: bytes(header.value).decode() for header in row.headers}
    assert headers == {"trace": "x", "ümlaut": "é"}
    assert "headers" not in read(spark, url, topic="orders", layout="kafka").columns
    assert "headers" not in read(spark, url, topic="orders", includeHeaders="false").columns
    some = read(spark, url, topic="others", schema="topic string, offset long")
    assert some.collect() == [("others", kit.stream("others").head())]


@proves("D1")
def test_payloads_become_structs(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """A payload of the type is a struct; the text of any other is in a column of its own."""
    orders = kit.stream("orders")
    good = {
        "id": 2**53 + 1,
        "to": "é",
        "at": "2026-01-31T12:00:00+01:00",
        "price": "12.50",
        "lines": [{"n": 1}],
        "more": 1,
    }
    for payload in (good, {"id": 1}, {"id": "1"}, {"to": "no id"}, [1], None, {"id": 1, "price": "1.234"}):
        orders.publish(payload)
    described = "id BIGINT NOT NULL, to STRING, at TIMESTAMP, price DECIMAL(5,2), lines ARRAY<STRUCT<n: INT>>"
    table = read(spark, url, topic="orders", payloadSchema=described)
    rows = table.orderBy("offset").collect()
    first = rows[0].payload
    assert (first.id, first.to, str(first.price), first.lines) == (2**53 + 1, "é", "12.50", [(1,)])
    assert moment(first.at) == datetime(2026, 1, 31, 11, tzinfo=UTC)
    assert rows[1].payload == (1, None, None, None, None)
    corrupt = [None, None, '{"id":"1"}', '{"to":"no id"}', "[1]", None, '{"id":1,"price":"1.234"}']
    assert [row._corrupt for row in rows] == corrupt
    assert [row.payload for row in rows[2:]] == [None] * 5
    narrow = read(spark, url, topic="orders", payloadSchema="id long", schema="payload struct<id: long>")
    assert narrow.select("payload.id").filter("id = 1").count() == 2


@proves("D1")
@both
def test_topics_and_keys(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """Topics are named one by one, or by a pattern; only the events of some keys leave the database."""
    for topic in ("orders", "orders.eu", "payments", "a,b"):
        kit.stream(topic).publish(topic)

    def topics(**options: str) -> set[str]:
        return {row.topic for row in read(spark, url, **options).collect()}

    assert topics(subscribe="orders, payments") == {"orders", "payments"}
    assert topics(subscribePattern=r"orders.*") == {"orders", "orders.eu"}
    assert topics(topic="a,b") == {"a,b"}
    assert topics(subscribePattern="none") == set()
    stream = kit.stream("orders")
    [a, _, c] = [stream.publish(key, key=key) for key in ("a", "b", '"c" \\ \'$1')]
    assert offsets(read(spark, url, topic="orders", key="a")) == [a]
    assert offsets(read(spark, url, topic="orders", key=json.dumps(["a", '"c" \\ \'$1', "d"]))) == [a, c]
    kit.stream("empty").save_offset("lake", 0)
    assert read(spark, url, topic="empty").count() == 0


@proves("D1", "D4")
@both
def test_bounds(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """As with Kafka, the first offset is read and the last one is not, and each topic may have its own."""
    orders = kit.stream("orders").publish_many([1, 2, 3, 4, 5])
    payments = kit.stream("payments").publish_many([1, 2])

    def read_from(**options: str) -> list[int]:
        return offsets(read(spark, url, subscribe="orders,payments", **options))

    assert read_from(startingOffsets=str(orders[3])) == [*orders[3:], *payments]
    assert read_from(startingOffsets="latest") == []
    assert read_from(endingOffsets=str(orders[2])) == orders[:2]
    places = {"orders": orders[1], "payments": payments[1]}
    assert read_from(startingOffsets=json.dumps(places)) == [*orders[1:], payments[1]]
    assert read_from(endingOffsets=json.dumps(places)) == [orders[0], payments[0]]
    kit.stream("orders").save_offset("lake", orders[2])
    assert read_from(consumer="lake") == [*orders[3:], *payments]


@proves("D1")
@both
def test_moments(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """Events are read from one moment on and before another, in any zone."""
    stream = kit.stream("orders")
    stream.publish_many(list(range(3)))
    eventkit.testing.advance(kit, 3600)
    middle = stream.publish_many(list(range(3)))
    between = datetime.now(UTC).timestamp() - 1800
    eventkit.testing.advance(kit, 3600)
    stream.publish_many(list(range(3)))
    begin = datetime.fromtimestamp(between - 3600, UTC).isoformat()
    end = str(int((datetime.now(UTC).timestamp() - 1800) * 1000))
    assert offsets(read(spark, url, topic="orders", startingTimestamp=begin, endingTimestamp=end)) == middle
    at = str(stream.read(middle[0] - 1)[0].created_ms)
    assert max(offsets(read(spark, url, topic="orders", endingTimestamp=at))) < middle[0]


@proves("D1")
@both
def test_parts(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """A range is divided among tasks by offsets, and none exceeds the configured size."""
    orders = kit.stream("orders").publish_many(list(range(50)))
    kit.stream("noise").publish_many(list(range(500)))
    orders += kit.stream("orders").publish_many(list(range(50)))
    table = read(spark, url, topic="orders", minPartitions="4")
    assert (table.rdd.getNumPartitions(), offsets(table)) == (4, orders)
    table = read(spark, url, topic="orders", maxRecordsPerPartition="40")
    sizes = table.rdd.glom().map(len).collect()
    assert (sizes, offsets(table)) == ([40, 40, 20], orders)


@proves("D1")
@both
def test_numbers_far_apart_make_no_parts(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """A stream or queue of two rows is read by one task, and one of many rows by the requested number."""
    orders = [kit.stream("orders").publish(1)]
    kit.queue("q").enqueue(1)
    with kit.transaction() as tx:
        for table in ("event", "task"):
            if url.startswith("sqlite"):
                tx.execute(f"UPDATE sqlite_sequence SET seq = 60000000 WHERE name = 'eventkit_{table}'")
            else:
                tx.execute(f"SELECT setval('{stored(f'{table}_id_seq', url)}', 60000000)")
    kit.queue("q").enqueue(2)
    orders.append(kit.stream("orders").publish(2))
    table = read(spark, url, topic="orders")
    assert (table.rdd.getNumPartitions(), offsets(table)) == (1, orders)
    assert read(spark, url, table="tasks").rdd.getNumPartitions() == 1
    orders += kit.stream("orders").publish_many(list(range(98)))
    sizes = read(spark, url, topic="orders", minPartitions="4").rdd.glom().map(len).collect()
    assert sizes == [25, 25, 25, 25]


@proves("D5")
def test_events_that_were_pruned(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """Pruned offsets raise an error, unless an option permits them."""
    orders = kit.stream("orders").publish_many(list(range(10)))
    kit.stream("orders").prune(keep_count=4)
    assert offsets(read(spark, url, topic="orders")) == orders[6:]
    gone = (
        f"offsets {orders[2]} to {orders[5]} of 'orders' .* are pruned, and {orders[6]} to {orders[9]} are there: set"
    )
    with pytest.raises(PySparkException, match=gone):
        read(spark, url, topic="orders", startingOffsets=str(orders[2])).count()
    rest = read(spark, url, topic="orders", startingOffsets=str(orders[2]), failOnDataLoss="false")
    assert offsets(rest) == orders[6:]


@proves("D10")
def test_credentials_stay_where_they_are_used(spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path) -> None:
    """The URL comes from a file, and no plan shows it."""
    kit.stream("orders").publish(1)
    secret = tmp_path / "secret"
    secret.write_text(url + "\n")
    table = spark.read.format("eventkit").options(urlFile=str(secret), topic="orders").load()
    assert table.count() == 1
    assert url not in table._jdf.queryExecution().toString()


@proves("D8")
@both
def test_tables(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """Each equals the kit's answer."""
    emails = kit.queue("emails")
    emails.enqueue({"to": "ann"}, key="1", headers={"a": "b"})
    emails.enqueue({"to": "bob"}, delay=3600)
    emails.enqueue({"to": "eve"}, priority=1)
    [task] = emails.claim("worker")
    emails.fail(task, "no such address")
    kit.results.save("report", {"rows": 1})
    kit.schedules.add("nightly", "0 3 * * *", "emails", {"all": True})
    kit.stream("orders").publish_many([1, 2, 3])
    kit.stream("orders").save_offset("lake", kit.stream("orders").head() - 2)

    def table(name: str) -> list[Any]:
        rows: list[Any] = read(spark, url, table=name).collect()
        return rows

    tasks = {row.payload: row for row in table("tasks")}
    assert {row.state for row in tasks.values()} == {"ready", "scheduled", "dead"}
    assert tasks['{"to":"ann"}'].headers == {"a": "b"}
    assert tasks['{"to":"ann"}'].key == "1"
    [dead] = table("dead")
    assert (dead.reason, dead.error, dead.attempt, dead.priority) == ("failed", "no such address", 1, 1)
    assert dead.finished_at is not None
    [result] = table("results")
    assert (result.id, result.value) == ('"report"', '{"rows":1}')
    [schedule] = table("schedules")
    assert (schedule.name, schedule.when, schedule.paused, schedule.last_at) == ("nightly", "0 3 * * *", False, None)
    [consumer] = table("consumers")
    assert (consumer.topic, consumer.name, consumer.lag) == ("orders", "lake", 2)


@proves("D2", "D8")
def test_tables_are_no_streams(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """The error names the way to follow tasks."""
    stream = spark.readStream.format("eventkit").options(url=url, table="tasks").load()
    query = stream.writeStream.format("noop").start()
    with pytest.raises(PySparkException, match=r"table=tasks is not a stream: .* topic eventkit\.tasks"):
        query.awaitTermination()


def batches(url: str, renew: Any, **options: str) -> Iterator[Any]:
    """Return the batches of a plan that was made before something happened."""
    source = EventkitSource({"url": url, "topic": "orders", **options})
    reader = source.reader(source.schema())
    parts = reader.partitions()
    renew()
    return (batch for part in parts for batch in reader.read(part))


@proves("D5")
@both
def test_events_pruned_before_they_are_read_are_an_error(kit: eventkit.EventKit, url: str) -> None:
    """The error has the missing offsets, or an option permits them."""
    stream = kit.stream("orders")
    offsets = stream.publish_many(range(6))

    def prune() -> None:
        stream.prune(keep_count=2, keep_unconsumed=False)

    with pytest.raises(ValueError, match=f"offsets 1 to {offsets[3]} of 'orders' were to be read and are pruned: set"):
        list(batches(url, prune))
    [batch] = batches(url, prune, failOnDataLoss="false")
    assert batch.to_pydict()["offset"] == offsets[4:]
    stream.publish_many(range(100))
    read_then = batches(url, lambda: None)
    assert next(read_then).num_rows < 100
    prune()
    with pytest.raises(ValueError, match="of 'orders' were to be read and are pruned: set"):
        list(read_then)


@proves("D5")
def test_a_task_does_not_read_another_database(kit: eventkit.EventKit, url: str, new_identity: Any) -> None:
    """It refuses a database other than the planned one."""
    kit.stream("orders").publish(1)
    with pytest.raises(ValueError, match="is of another database than the current one"):
        list(batches(url, new_identity))


EVENTS = 24
LARGE = 524_286


@pytest.fixture
def large(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a topic and a queue of these, and a limit of some of them."""
    # The first read is small, because payloads may have the maximal size.
    assert arrow._FIRST * LARGE <= 2 * arrow._BYTES
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


@proves("D1", "D8")
@both
@pytest.mark.parametrize("options", [{"topic": "orders"}, {"table": "tasks"}])
def test_a_read_gives_some_megabytes_at_once(large: str, options: dict[str, str]) -> None:
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

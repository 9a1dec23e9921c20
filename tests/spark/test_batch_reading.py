"""A stream as a table: the events that exist when the query begins, in every layout."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException

import eventkit
from eventkit.conformance.clauses import proves


def read(spark: Any, url: str, *, schema: str | None = None, **options: Any) -> Any:
    """Return the table of some options."""
    reader = spark.read.format("eventkit").options(url=url, **options)
    return (reader.schema(schema) if schema else reader).load()


def offsets(table: Any) -> list[int]:
    """Return the offsets in the table, in order."""
    return [row.offset for row in table.select("offset").orderBy("offset").collect()]


def moment(naive: datetime) -> datetime:
    """Return a moment in the form that Spark gives to Python: naive, in the zone of this machine."""
    return datetime.fromtimestamp(naive.timestamp(), UTC)


@proves("D1")
@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_events_come_as_they_were_published(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """Every column equals that of the kit, and there are no others."""
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


@proves("D1")
def test_columns_of_kafka(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """The layout of Kafka's consumers has keys, values and headers as bytes."""
    [event] = [kit.stream("orders").publish({"id": 1}, key="a", headers={"trace": "x"})]
    table = read(spark, url, topic="orders", layout="kafka", includeHeaders="true")
    [row] = table.collect()
    assert (bytes(row.key), bytes(row.value), row.topic) == (b"a", b'{"id":1}', "orders")
    assert (row.partition, row.offset, row.timestampType) == (0, event, 0)
    assert [(header.key, bytes(header.value)) for header in row.headers] == [("trace", b"x")]
    assert "headers" not in read(spark, url, topic="orders", layout="kafka").columns
    assert "headers" not in read(spark, url, topic="orders", includeHeaders="false").columns


@proves("D1")
def test_columns_are_left_out_by_a_schema(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """A schema of some columns reads only those."""
    offset = kit.stream("orders").publish(1, key="a")
    assert read(spark, url, topic="orders", schema="key string, offset long").collect() == [("a", offset)]
    assert read(spark, url, topic="orders", schema="topic string").collect() == [("orders",)]


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
def test_several_topics(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """Topics are named one by one, or by a pattern."""
    for topic in ("orders", "orders.eu", "payments", "a,b"):
        kit.stream(topic).publish(topic)

    def topics(**options: str) -> set[str]:
        return {row.topic for row in read(spark, url, **options).collect()}

    assert topics(subscribe="orders, payments") == {"orders", "payments"}
    assert topics(subscribePattern=r"orders.*") == {"orders", "orders.eu"}
    assert topics(topic="a,b") == {"a,b"}
    assert topics(subscribePattern="none") == set()


@proves("D1", "D4")
@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
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
def test_keys(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """Only the events of some keys leave the database."""
    stream = kit.stream("orders")
    [a, _, c] = [stream.publish(key, key=key) for key in ("a", "b", '"c" \\ \'$1')]
    stream.publish(None)
    assert offsets(read(spark, url, topic="orders", key="a")) == [a]
    assert offsets(read(spark, url, topic="orders", key=json.dumps(["a", '"c" \\ \'$1', "d"]))) == [a, c]


@proves("D1")
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
@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_numbers_far_apart_make_no_parts(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """A stream or queue of two rows is read by one task, and one of many rows by the requested number."""
    orders = [kit.stream("orders").publish(1)]
    kit.queue("q").enqueue(1)
    with kit.transaction() as tx:
        for table in ("event", "task"):
            if url.startswith("sqlite"):
                tx.execute(f"UPDATE sqlite_sequence SET seq = 60000000 WHERE name = 'eventkit_{table}'")
            else:
                tx.execute(f"SELECT setval('\"{url.partition('schema=')[2]}\".eventkit_{table}_id_seq', 60000000)")
    kit.queue("q").enqueue(2)
    orders.append(kit.stream("orders").publish(2))
    table = read(spark, url, topic="orders")
    assert (table.rdd.getNumPartitions(), offsets(table)) == (1, orders)
    assert read(spark, url, table="tasks").rdd.getNumPartitions() == 1
    orders += kit.stream("orders").publish_many(list(range(98)))
    sizes = read(spark, url, topic="orders", minPartitions="4").rdd.glom().map(len).collect()
    assert sizes == [25, 25, 25, 25]


@proves("D1")
def test_nothing_there(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """A configured stream without events is an empty table."""
    kit.stream("orders").save_offset("lake", 0)
    assert read(spark, url, topic="orders").count() == 0


@proves("D5")
def test_what_was_pruned(spark: Any, kit: eventkit.EventKit, url: str) -> None:
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
def test_credentials_stay_where_they_are_used(
    spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The URL comes from a file or from the environment of the process that uses it, and no plan shows it."""
    kit.stream("orders").publish(1)
    secret = tmp_path / "secret"
    secret.write_text(url + "\n")
    table = spark.read.format("eventkit").options(urlFile=str(secret), topic="orders").load()
    assert table.count() == 1
    assert url not in table._jdf.queryExecution().toString()

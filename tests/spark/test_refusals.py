"""What cannot be read is told by Spark with our line, which names the remedy."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from spark.streams import Query

import eventkit
from eventkit.conformance.clauses import proves


def refusal(fails: Callable[[], Any]) -> str:
    """What Spark tells; our line is in it, without the way there."""
    with pytest.raises(PySparkException) as raised:
        fails()
    told = str(raised.value)
    assert "Traceback" not in told
    return told


@proves("D2")
@pytest.mark.parametrize(
    ("options", "schema", "told"),
    [
        (
            {"topic": "order"},
            None,
            r"there is no topic 'order': did you mean 'orders'\? It begins with its first event",
        ),
        (
            {"topic": "orders", "startingOffset": "1"},
            None,
            "(?i)no option startingOffset: did you mean starting",
        ),
        ({"topic": "orders"}, "offset string", "the column 'offset' is bigint, not string: leave schema"),
        ({"topic": "orders"}, "id long", "there is no column 'id': there are offset, topic, key, payload"),
        ({"topic": "orders", "endingOffsets": "earliest"}, None, "endingOffsets is latest, or an offset"),
        ({"topic": "orders", "startingOffsets": '{"ordres": 1}'}, None, "names the topic 'ordres', which is not read"),
        (
            {"topic": "orders", "payloadSchema": "id INTERVAL DAY"},
            None,
            "payloadSchema has no way to read interval day",
        ),
    ],
)
def test_reading(
    spark: Any, kit: eventkit.EventKit, url: str, options: dict[str, str], schema: str | None, told: str
) -> None:
    """Whatever is wrong with the options."""
    kit.stream("orders").publish(1)

    def table() -> Any:
        reader = spark.read.format("eventkit").options(url=url, **options)
        return (reader.schema(schema) if schema else reader).load()

    assert re.search(told, refusal(lambda: table().collect()))


@proves("D2")
@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("sqlite:////nowhere/shop.db", "/nowhere"),
        ("sqlite:///{folder}/none.db", "there is no .*none.db: run python -m eventkit_migrations upgrade"),
        ("mysql://host/shop", "no installed backend serves 'mysql'"),
        ("postgresql://postgres@127.0.0.1:1/shop", "127.0.0.1.* port 1"),
    ],
)
def test_the_database_is_not_there(spark: Any, tmp_path: Path, place: str, told: str) -> None:
    """Nothing is made by reading it."""
    url = place.format(folder=tmp_path)
    reader = spark.read.format("eventkit").options(url=url, topic="orders")
    assert re.search(told, refusal(lambda: reader.load().collect()))
    assert list(tmp_path.iterdir()) == []


@proves("D5")
def test_checkpoints(spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path, new_identity: Any) -> None:
    """A checkpoint goes with a database, with the topics that it names, and with what is still there."""
    stream = kit.stream("orders")
    [first, *_] = stream.publish_many([1, 2])
    earliest = {"startingOffsets": "earliest"}
    Query(spark, tmp_path, url, topic="orders", **earliest).run()
    kit.stream("payments").publish(1)
    told = refusal(Query(spark, tmp_path, url, topic="payments", **earliest).run)
    assert "the checkpoint is at an offset of 'orders', which is not read any more: name it in subscribe" in told
    lost = stream.publish_many([3, 4, 5])
    stream.prune(max_keep=1)
    told = refusal(Query(spark, tmp_path, url, topic="orders", **earliest).run)
    told_of = (
        f"offsets {first + 2} to {lost[1]} of 'orders' were to be read and are pruned, and {lost[2]} to {lost[2]} are"
    )
    assert told_of in told
    rest = Query(spark, tmp_path, url, topic="orders", failOnDataLoss="false", **earliest)
    rest.run()
    assert [row.offset for row in rest.rows()] == [first, first + 1, lost[2]]
    new_identity()
    told = refusal(Query(spark, tmp_path, url, topic="orders", **earliest).run)
    assert "of another database than the one that is there now" in told
    assert "name another checkpointLocation" in told

"""Spark reports an unreadable source with eventkit's line, which names the remedy."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from spark.streams import Query, read, write

import eventkit
from eventkit.conformance.clauses import proves


def refusal(fails: Callable[[], Any]) -> str:
    """Return Spark's error, which has eventkit's line without a stack trace."""
    with pytest.raises(PySparkException) as raised:
        fails()
    message = str(raised.value)
    assert "Traceback" not in message
    return message


@proves("D2")
@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        (
            {"topic": "order"},
            None,
            r"there is no topic 'order': did you mean 'orders'\? It begins with its first",
        ),
        ({"topic": "orders", "startingOffset": "1"}, None, "(?i)no option startingOffset: did you mean starting"),
        ({"topic": "orders"}, "offset string", "the column 'offset' is bigint, not string: leave schema"),
        ({"topic": "orders"}, "id long", "there is no column 'id': the columns are offset, topic, key, payload"),
        ({"topic": "orders", "endingOffsets": "earliest"}, None, "endingOffsets must be latest, or an offset"),
        ({"topic": "orders", "startingOffsets": '{"ordres": 1}'}, None, "names the topic 'ordres', which is not read"),
        ({"topic": "orders", "payloadSchema": "id INTERVAL DAY"}, None, "payloadSchema cannot read interval day"),
    ],
)
def test_reading(
    spark: Any, kit: eventkit.EventKit, url: str, options: dict[str, str], schema: str | None, message: str
) -> None:
    """Every mistake in the options is refused."""
    kit.stream("orders").publish(1)

    assert re.search(message, refusal(lambda: read(spark, url, schema=schema, **options).collect()))


@proves("D2")
@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("sqlite:////nowhere/shop.db", "/nowhere"),
        ("sqlite:///{folder}/none.db", "there is no .*none.db: run python -m eventkit_migrations upgrade"),
        ("mysql://host/shop", "no installed backend serves 'mysql'"),
        ("postgresql://postgres@127.0.0.1:1/shop", "127.0.0.1.* port 1"),
    ],
)
def test_the_database_is_not_there(spark: Any, tmp_path: Path, place: str, message: str) -> None:
    """Reading does not create it."""
    url = place.format(folder=tmp_path)
    assert re.search(message, refusal(lambda: read(spark, url, topic="orders").collect()))
    assert list(tmp_path.iterdir()) == []


@proves("D5")
def test_checkpoints(spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path, new_identity: Any) -> None:
    """A checkpoint belongs to a database, to its topics, and to the remaining events."""
    stream = kit.stream("orders")
    [first, *_] = stream.publish_many([1, 2])
    earliest = {"startingOffsets": "earliest"}
    Query(spark, tmp_path, url, topic="orders", **earliest).run()
    kit.stream("payments").publish(1)
    message = refusal(Query(spark, tmp_path, url, topic="payments", **earliest).run)
    assert "the checkpoint is at an offset of 'orders', which is not read any more: name it in subscribe" in message
    lost = stream.publish_many([3, 4, 5])
    stream.prune(keep_count=1)
    message = refusal(Query(spark, tmp_path, url, topic="orders", **earliest).run)
    reason = (
        f"offsets {first + 2} to {lost[1]} of 'orders' were to be read and are pruned, and {lost[2]} to {lost[2]} are"
    )
    assert reason in message
    rest = Query(spark, tmp_path, url, topic="orders", failOnDataLoss="false", **earliest)
    rest.run()
    assert rest.offsets() == [first, first + 1, lost[2]]
    new_identity()
    message = refusal(Query(spark, tmp_path, url, topic="orders", **earliest).run)
    assert "of another database than the current one" in message
    assert "name another checkpointLocation" in message


@proves("D2")
@pytest.mark.parametrize(
    ("select", "options", "message"),
    [
        ("1 AS payload", {"topic": "t"}, "payload is int, and neither JSON text nor a struct: convert it"),
        ("'1' AS payload, 1 AS key", {"topic": "t"}, r"the column key is int, not a string: convert it, .* cast"),
        ("'1' AS payload, '2' AS headers", {"topic": "t"}, "headers is string, not a map<string,string>"),
        ("'1' AS payload, 'soon' AS run_at", {"queue": "q"}, "the column run_at is string, not a timestamp"),
        ("'1' AS payload, 'high' AS priority", {"queue": "q"}, "the column priority is string, not a whole number"),
        ("'1' AS payload, 2 AS n", {"topic": "t"}, r"column 'n' would not be written: select\(\) only topic,"),
        ("1 AS id", {"topic": "t"}, "the column 'id' would not be written"),
        ("'1' AS key", {"topic": "t"}, r"there is no column payload: add one, as in select\(to_json"),
        ("'1' AS payload", {}, "no target to write to: set option topic or queue, or add a column topic"),
        ("'1' AS payload", {"topic": "t", "queue": "q"}, "topic publishes events and queue enqueues tasks: leave one"),
        ("'1' AS payload", {"topik": "t"}, "no option topik: did you mean topic"),
        ("'1' AS payload", {"topic": ""}, "1 to 255 characters"),
    ],
)
def test_writing(
    spark: Any, kit: eventkit.EventKit, url: str, select: str, options: dict[str, str], message: str
) -> None:
    """Every mistake in columns or options is refused; nothing is written."""
    assert re.search(message, refusal(lambda: write(spark.sql(f"SELECT {select}"), url, **options)))
    assert kit.stream("t").head() == 0
    assert kit.queue("q").size() == 0


@proves("D2")
def test_overwriting(spark: Any, url: str) -> None:
    """A mode does not delete events that others have still to read."""
    writer = spark.sql("SELECT '1' AS payload").write.format("eventkit").options(url=url, topic="t").mode("overwrite")
    assert re.search(r"mode overwrite would delete .* write with mode\('append'\)", refusal(writer.save))


@proves("D2")
@pytest.mark.parametrize(
    ("mode", "columns", "options", "message"),
    [
        ("complete", "count(*)", {}, r"output mode complete rewrites all rows .*: use outputMode\('append'\)"),
        ("append", "offset", {"writeId": "monday"}, "writeId is for single writes: a query has an id of its own"),
        ("append", "offset", {"txnAppId": "a", "txnVersion": "1"}, "txnAppId and txnVersion are for foreachBatch"),
    ],
)
def test_writing_streams(
    spark: Any,
    kit: eventkit.EventKit,
    url: str,
    tmp_path: Path,
    mode: str,
    columns: str,
    options: dict[str, str],
    message: str,
) -> None:
    """Options of single writes, and unsupported modes, are refused."""
    kit.stream("orders").publish(1)
    stream = spark.readStream.format("eventkit").options(url=url, topic="orders", startingOffsets="earliest")
    rows = stream.load().selectExpr(f"to_json(struct({columns} AS n)) AS payload")
    writer = rows.writeStream.format("eventkit").options(url=url, topic="t", **options).outputMode(mode)
    checkpoint = str(tmp_path / "checkpoint")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    assert re.search(message, refusal(lambda: query.start().awaitTermination()))


@proves("D2")
@pytest.mark.parametrize("content", ["7", '{"orders": {"0": 7}}'])
def test_a_checkpoint_of_something_else(
    spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path, content: str
) -> None:
    """It was written by another source: that of rates, or Kafka's."""
    kit.stream("orders").publish(1)
    options = {"topic": "orders", "startingOffsets": "earliest"}
    Query(spark, tmp_path, url, **options).run()
    [offsets] = [file for file in (tmp_path / "checkpoint" / "offsets").iterdir() if file.name == "0"]
    lines = offsets.read_text("utf-8").splitlines()
    offsets.write_text("\n".join([*lines[:-1], content]), "utf-8")
    (tmp_path / "checkpoint" / "offsets" / ".0.crc").unlink(missing_ok=True)
    message = refusal(Query(spark, tmp_path, url, **options).run)
    assert "not written by eventkit: name another checkpointLocation" in message

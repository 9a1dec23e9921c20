"""DataFrames become events and tasks: complete, once, and not at all if a row is bad."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, StringType, StructField, StructType
from spark.streams import both, read, write

import eventkit
from eventkit.conformance.clauses import proves
from eventkit.conformance.threads import asleep, in_thread
from eventkit.operations.bulk import StageEvents
from eventkit.spark.options import Address, WriteOptions
from eventkit.spark.writer import BadRow, BatchWriter, Shape, Staged
from eventkit.testing import advance


def numbers(spark: Any, count: int, partitions: int = 2) -> Any:
    """Return a DataFrame whose payloads are the numbers from 0."""
    return spark.range(0, count, 1, partitions).selectExpr("cast(id as string) as payload")


@proves("D6")
@both
def test_events_are_what_a_publisher_would_have_published(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """Every column of two rows arrives, with defaults in the second; the topic is a column."""
    rows = [
        ("first", "k", ' {"a":[1,null,"🙂\\u0000"]} ', {"h": "é"}, "d"),
        ("second", None, "null", None, None),
        ("first", None, '"again"', {}, "d"),
    ]
    schema = "topic string, key string, payload string, headers map<string,string>, dedup string"
    write(spark.createDataFrame(rows, schema).coalesce(1), url)
    [first], [second] = kit.stream("first").read(), kit.stream("second").read()
    assert (first.key, first.payload, first.headers) == ("k", {"a": [1, None, "🙂\0"]}, {"h": "é"})
    assert (second.key, second.payload, second.headers) == (None, None, {})
    assert kit.stream("first").publish("late", dedup="d") == first.offset


@proves("D7")
def test_rows_that_kafkas_layout_cannot_bring_are_bad() -> None:
    """A row without a value, with bytes that are no text, or with two headers of a name."""
    headers = ArrayType(StructType().add("key", "string").add("value", "binary"))
    schema = StructType().add("topic", "string").add("key", "binary").add("value", "binary").add("headers", headers)
    shape = Shape(WriteOptions(Address("sqlite:///unused.db"), layout="kafka"), schema)
    header = {"key": "h", "value": b"1"}
    rows = [
        ("t", b"k", b'{"n":1}', [header]),
        ("t", None, None, None),
        ("t", b"\xff", b"2", None),
        ("t", None, b"3", [header, header]),
    ]
    batch = pa.RecordBatch.from_pylist(
        [dict(zip(schema.names, row, strict=True)) for row in rows], to_arrow_schema(schema)
    )
    bad: list[BadRow] = []
    [chunk] = shape.chunks(iter([batch]), bad)
    assert (chunk.name, chunk.rows) == ("t", [('{"n":1}', "k", '{"h":"1"}', None)])
    assert [(row.number, row.reason.partition(":")[0]) for row in bad] == [
        (1, "the payload is null"),
        (2, "the key is not text in UTF-8"),
        (3, "two headers have the same name"),
    ]


@proves("D6")
def test_structs_become_json(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """Structs of any content are JSON as msgspec writes it."""
    query = """
        SELECT named_struct(
            'n', 1, 'x', 0.5D, 'no', null, 'when', timestamp'2026-01-02 03:04:05Z', 'day', date'2026-01-02',
            'price', cast(1.10 AS decimal(9, 2)), 'list', array(1, 2), 'map', map('k', named_struct('y', true))
        ) AS payload
    """
    write(spark.sql(query), url, topic="t")
    [event] = kit.stream("t").read()
    assert event.payload == {
        "n": 1,
        "x": 0.5,
        "no": None,
        "when": "2026-01-02T03:04:05Z",
        "day": "2026-01-02",
        "price": "1.10",
        "list": [1, 2],
        "map": {"k": {"y": True}},
    }


@proves("D1", "D6")
@pytest.mark.parametrize("layout", ["native", "kafka"])
@both
def test_a_stream_is_written_to_another_one(spark: Any, kit: eventkit.EventKit, url: str, layout: str) -> None:
    """In either layout, a read may have columns that are not written; the largest event of 512 KiB is one as others."""
    largest = "x" * (512 * 1024 - 2)
    kit.stream("here").publish({"n": 1}, key="k", headers={"h": "1"})
    kit.stream("here").publish_many([largest, "small"])
    write(read(spark, url, topic="here", layout=layout, includeHeaders="true"), url, topic="there", layout=layout)
    [first, *others] = kit.stream("there").read()
    assert (first.payload, first.key, first.headers) == ({"n": 1}, "k", {"h": "1"})
    assert [event.payload for event in others] == [largest, "small"]


@proves("D6")
@both
def test_rows_become_tasks(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """Keys, priorities and moments have the same meaning as in `enqueue`."""
    soon = datetime.now(UTC) + timedelta(hours=1)
    rows = [
        ("taken", '"not again"', None, None, None, None, None),
        ("new", '"later"', {"h": "1"}, 0, 7, soon, "ann"),
        (None, '"first"', None, 5, None, None, None),
    ]
    schema = (
        "key string, payload string, headers map<string,string>, priority int, max_attempts long, run_at timestamp, "
        "group_key string"
    )
    queue = kit.queue("q")
    queue.enqueue("taken", key="taken")
    write(spark.createDataFrame(rows, schema), url, queue="q")
    assert [task.payload for task in queue.receive(9)] == ["first", "taken"]
    advance(kit, 3601)
    [later] = queue.receive(9)
    assert (later.payload, later.key, later.headers, later.max_attempts) == ("later", "new", {"h": "1"}, 7)
    assert later.group == "ann"


@proves("D6")
@both
def test_a_subscriber_has_all_of_a_large_batch_in_order(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """Partitions follow one another, each in its order; the commit wakes the subscriber, which sees nothing before."""
    subscription = kit.stream("t").subscribe()
    received = in_thread(lambda: [next(subscription).payload for _ in range(5_000)])
    write(
        numbers(spark, 5_000, partitions=3).selectExpr("concat('[', payload, repeat(' ', 60), ']') AS payload"),
        url,
        topic="t",
    )
    assert received.result(60) == [[number] for number in range(5_000)]
    assert kit.stream("t").head() - kit.stream("t").read(limit=1)[0].offset == 4_999


@proves("D6")
@both
def test_a_worker_is_woken(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """Spark's commit wakes it as any other does."""
    claimed = asleep(kit.queue("q").claim, "worker", wait=60)
    write(numbers(spark, 1, 1), url, queue="q")
    assert [task.payload for task in claimed.result(60)] == [0]


@proves("D6")
@both
def test_a_write_with_an_id_is_written_once(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """This holds for any number of repetitions, parts and concurrent writers; another id is another write."""
    write(numbers(spark, 10, 1), url, topic="t", writeId="monday")
    write(numbers(spark, 10, 3), url, topic="t", writeId="monday")

    def race() -> None:
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)  # Each thread has a session of its own.
        write(numbers(spark, 10, 2), url, topic="t", writeId="tuesday")

    for future in [in_thread(race) for _ in range(2)]:
        future.result(60)
    assert len(kit.stream("t").read()) == 20
    write(numbers(spark, 10, 1), url, topic="other", writeId="monday")
    write(numbers(spark, 10, 1), url, queue="t", writeId="monday")
    assert (len(kit.stream("other").read()), kit.queue("t").size()) == (10, 10)
    write(numbers(spark, 10), url, topic="t")
    write(numbers(spark, 10), url, topic="t")
    assert len(kit.stream("t").read()) == 40


@proves("D6")
@both
def test_versions_of_an_application_rise(kit: eventkit.EventKit, url: str, caplog: pytest.LogCaptureFixture) -> None:
    """A write whose version is not newer than the last one to its target is skipped, and logged as a warning."""
    schema = StructType([StructField("payload", StringType())])

    def commit(topic: str, version: int) -> None:
        options = {"url": url, "topic": topic, "txnAppId": "totals", "txnVersion": str(version)}
        writer = BatchWriter(WriteOptions.parse(options), schema, overwrite=False)
        late = [StageEvents(writer._writer, version, version, 0, 0, topic, [(f"[{version}]", None, None, None)])]
        writer.commit([Staged(writer._writer, version, version, 0, 1, 0, late)])

    for topic, version in (("t", 0), ("t", 2), ("other", 1)):
        commit(topic, version)
    assert not caplog.records
    commit("t", 2)
    commit("t", 1)
    assert [event.payload for event in kit.stream("t").read()] == [[0], [2]]
    assert [event.payload for event in kit.stream("other").read()] == [[1]]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    warning = "version 1, or a newer one, of txnAppId 'totals' was written to topic 't' before: skipped 1 rows"
    assert warning in caplog.text


@proves("D6")
@both
def test_a_batch_that_does_not_fit_leaves_nothing(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """It can be written with the same id when there is room."""
    queue = kit.queue("q")
    queue.configure(max_size=10)
    queue.enqueue("one")
    with pytest.raises(PySparkException, match="has reached its max_size"):
        write(numbers(spark, 10), url, queue="q", writeId="w")
    assert queue.size() == 1
    queue.configure(max_size=11)
    write(numbers(spark, 10), url, queue="q", writeId="w")
    assert queue.size() == 11


BAD = [
    ((None, "k", {"h": "1"}, None), "the payload is null"),
    *(((text, "k", None, None), "the payload is not JSON") for text in ("{", "1 2", "NaN", '"\\ud800"')),
    (("[" * 65 + "]" * 65, None, None, None), "nested deeper than 64 levels"),
    (('"' + "x" * 1000 + '"', None, None, None), "more than 1,000"),
    (("1", "", None, None), "1 to 1000 characters"),
    (("2", "x" * 1001, None, None), "1 to 1000 characters"),
    (("3", "a\tb", None, None), "no control characters"),
    (("4", None, {"h": None}, None), "str → str"),
    (("5", None, None, ""), "1 to"),
]
"""Rows and why they are refused."""


@proves("D7")
def test_bad_rows_are_named_and_nothing_is_written(
    spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path
) -> None:
    """An option writes them elsewhere, each with its reason, and the others as usual."""
    url += "?max_payload=1000"
    good = [(str(number), None, None, None) for number in range(100, 103)]
    schema = "payload string, key string, headers map<string,string>, dedup string"
    frame = spark.createDataFrame(good + [row for row, _ in BAD], schema).coalesce(1)
    with pytest.raises(
        PySparkException, match="row 3 of partition 0 cannot be written, and nothing was: the payload is null"
    ):
        write(frame, url, topic="t")
    assert kit.stream("t").read() == []
    for _ in range(2):
        write(frame, url, topic="t", writeId="w", quarantine=str(tmp_path / "bad"))
    assert [event.payload for event in kit.stream("t").read()] == [100, 101, 102]
    [file] = (tmp_path / "bad").iterdir()
    bad = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    assert [line["row"] for line in bad] == list(range(3, 3 + len(BAD)))
    for line, (row, reason) in zip(bad, BAD, strict=True):
        assert reason in line["reason"]
        assert line["value"]["payload"] == row[0]


REFUSED = """
import sys
from eventkit.spark import session
spark = session(master="local[2]")
frame = spark.createDataFrame([("1",), ("{",)], "payload string").coalesce(1)
print("begins", file=sys.stderr, flush=True)
try:
    frame.write.format("eventkit").options(url=sys.argv[1], topic="t").mode("append").save()
except Exception as error:
    print(str(error).splitlines()[0])
spark.stop()
"""


@proves("D7")
@pytest.mark.slow
@both
def test_a_bad_row_is_no_page_of_log(kit: eventkit.EventKit, url: str) -> None:
    """The driver refuses it once: no task fails, which Spark would retry and log with its Java stack."""
    ran = subprocess.run([sys.executable, "-c", REFUSED, url], capture_output=True, text=True, timeout=300)
    assert "row 1 of partition 0 cannot be written, and nothing was: the payload is not JSON" in ran.stdout
    logged = (
        ran.stderr.partition("begins\n")[2].partition("Traceback")[0].splitlines()
    )  # Of Spark's daemon, which ends.
    assert len(logged) <= 3, logged
    assert "\tat " not in ran.stderr
    assert kit.stream("t").read() == []


@proves("D7")
def test_a_queue_refuses_what_is_no_number(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """A priority out of range and zero attempts are refused."""
    rows = [("1", 2**40, None), ("2", None, 0)]
    frame = spark.createDataFrame(rows, "payload string, priority long, max_attempts int").coalesce(1)
    with pytest.raises(PySparkException, match="row 0 of partition 0 .* priority is a whole number"):
        write(frame, url, queue="q")
    with pytest.raises(PySparkException, match="row 0 of partition 0 .* max_attempts is a whole number from 1"):
        write(frame.where("priority is null"), url, queue="q")
    assert kit.queue("q").size() == 0

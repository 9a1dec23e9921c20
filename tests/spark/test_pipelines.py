"""Pipelines: from a stream through a function into a sink, with their state in the database."""

import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress
from spark.streams import both, forget_commit, write

import eventkit
from eventkit import EventkitError
from eventkit.conformance.clauses import proves
from eventkit.operations.admin import ListPipelines
from eventkit.spark import Pipeline
from eventkit.spark.pipeline import _Reporter


def state(kit: Any) -> tuple[Any, ...]:
    """Return the state of the one pipeline."""
    [found] = kit._connection.execute(ListPipelines())
    return found.name, found.source, found.sink, found.state, found.rows, found.lag


def doubled(frame: Any) -> Any:
    """Return the pipeline's output for some events."""
    from pyspark.sql.functions import concat

    return frame.select(concat("payload", "payload").alias("payload"), "key")


@proves("D16")
@both
def test_a_pipeline_runs_once_and_goes_on(spark: Any, kit: Any, url: str, tmp_path: Path) -> None:
    """Each event is in the sink once, and the database has the pipeline's state."""
    orders = kit.stream("orders")
    orders.publish_many(list(range(1, 8)))
    pipeline = Pipeline(
        "double",
        url=url,
        source={"topic": "orders", "maxOffsetsPerTrigger": "4"},
        transform=doubled,
        sink={"topic": "doubled"},
        checkpoint=str(tmp_path / "checkpoint"),
    )
    assert pipeline.run_once(spark)[:2] == (2, 7)
    assert state(kit) == ("double", "orders", "topic=doubled", "done", 7, 0)
    orders.publish(9)
    assert pipeline.run_once(spark)[:2] == (1, 1)
    assert sorted(event.payload for event in kit.stream("doubled").read()) == [11, 22, 33, 44, 55, 66, 77, 99]
    assert state(kit)[3:] == ("done", 8, 0)
    assert [(one.name, one.lag) for one in orders.consumers()] == [("double", 0)]


@proves("D6", "D16")
@pytest.mark.parametrize(
    ("url", "sink"),
    [
        ("sqlite", "function"),
        *(pytest.param(kind, "stream", marks=pytest.mark.slow) for kind in ("sqlite", "postgresql")),
    ],
    indirect=["url"],
)
def test_a_write_that_comes_again_is_skipped_and_counted(
    spark: Any, kit: Any, url: str, tmp_path: Path, sink: str
) -> None:
    """After a kill between the write and Spark's record of it, the micro-batch is repeated."""

    def copy(frame: Any, number: int) -> None:
        for topic in ("copied", "also"):
            write(frame.select("payload"), url, topic=topic, txnAppId="copy", txnVersion=str(number))

    kit.stream("orders").publish_many([1, 2, 3])
    target: Any = copy if sink == "function" else {"topic": "copied"}
    source = {"topic": "orders", "maxOffsetsPerTrigger": "2"}
    pipeline = Pipeline("copy", url=url, source=source, sink=target, checkpoint=str(tmp_path / "checkpoint"))
    ran = pipeline.run_once(spark)
    assert (ran.batches, ran.skipped) == (2, 0)
    forget_commit(tmp_path / "checkpoint")
    kit.stream("orders").publish(4)
    again = pipeline.run_once(spark)
    assert (again.batches, again.skipped) == (2, 1)
    for topic in ("copied", "also") if sink == "function" else ("copied",):
        assert sorted(event.payload for event in kit.stream(topic).read()) == [1, 2, 3, 4]


@proves("D16")
def test_rows_are_those_of_the_sources(sqlite_url: str) -> None:
    """Spark Connect gives no sum of them, and a source without topics no lag."""
    source = {"description": "eventkit", "startOffset": "{}", "endOffset": "{}", "latestOffset": "{}"}
    source |= {"numInputRows": 7, "inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0}
    names = ("id", "runId", "name", "timestamp", "batchId", "batchDuration", "durationMs", "stateOperators", "sources")
    id = "5fdd1e0e-0000-4000-8000-000000000000"
    values = (id, id, "p", "2026-01-31T00:00:00.000Z", 3, 5, {}, [], [source])
    sink = {"description": "eventkit", "numOutputRows": -1, "metrics": {}}
    progress = StreamingQueryProgress.fromJson(dict(zip(names, values, strict=True)) | {"sink": sink})
    assert eventkit.spark.progress(progress).sources[0].metrics == {}
    query: Any = SimpleNamespace(id=id, recentProgress=[progress])
    with eventkit.connect(sqlite_url) as kit:
        watching = _Reporter("p", kit._connection, lambda *noted: None)
        watching.report(query)
        watching.report(query)
    assert watching.result()[:2] == (1, 7)


@proves("D16")
def test_a_sink_is_shown_without_credentials(sqlite_url: str) -> None:
    """They are hidden in the list and in the message of a failure."""
    sink = {"format": "parquet", "path": "s3a://KEYKEY:secret%2F1@bucket/orders"}
    pipeline = Pipeline("p", url=sqlite_url, source="orders", sink=sink, checkpoint="c")
    assert pipeline._to() == "format=parquet path=s3a://bucket/orders"
    assert pipeline._place is not None
    assert pipeline._place.without_secrets("no s3a://KEYKEY:secret%2F1@bucket/orders\nat all") == (
        "no s3a://bucket/orders at all"
    )


@proves("D16")
def test_a_pipeline_goes_on_until_it_is_interrupted(
    spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path
) -> None:
    """It then ends normally, and the session still writes."""
    kit.stream("orders").publish_many([1, 2])
    batches: list[int] = []
    collected, ended = threading.Event(), threading.Event()

    def collect(frame: Any, number: int) -> None:
        batches.append(frame.count())
        collected.set()

    def interrupt() -> None:
        # A pipeline that has failed already must not be interrupted, or another test would be.
        if collected.wait(60) and not ended.wait(1):
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    pipeline = Pipeline("collect", url=url, source="orders", sink=collect, checkpoint=str(tmp_path / "checkpoint"))
    try:
        pipeline.run(spark)
    finally:
        ended.set()
        thread.join()
    assert batches == [2]
    assert state(kit) == ("collect", "orders", "collect", "done", 2, 0)
    write(spark.sql("SELECT '3' AS payload"), url, topic="orders")
    assert [event.payload for event in kit.stream("orders").read()] == [1, 2, 3]


@proves("D16")
def test_a_failure_is_an_error_of_one_line(spark: Any, kit: Any, url: str, tmp_path: Path) -> None:
    """The caller gets the line, and the list shows it."""
    kit.stream("orders").publish(1)
    source = {"topic": "orders", "startOffsets": "1"}
    pipeline = Pipeline("p", url=url, source=source, sink={"topic": "t"}, checkpoint=str(tmp_path / "checkpoint"))
    with pytest.raises(EventkitError, match="no option startoffsets: did you mean startingOffsets") as caught:
        pipeline.run_once(spark)
    assert "\n" not in str(caught.value)
    assert state(kit)[3] == "failed"
    with pytest.raises(ValueError, match="name the database by one of url"):
        Pipeline("p", source="orders", sink={"topic": "t"}, checkpoint="c")

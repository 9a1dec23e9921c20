"""Queries continue from every checkpoint, across restored databases and changes of payloads, in every time zone."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from restoring import take_back
from spark.streams import Query, both, read, write

import eventkit
from eventkit.archive import adopt_checkpoint
from eventkit.conformance.clauses import proves
from eventkit.testing import advance


@proves("D3")
@pytest.mark.slow
@both
def test_every_checkpoint_is_one_to_go_on_from(spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path) -> None:
    """It may stand before a micro-batch, or in the middle of one, which is then repeated unchanged."""
    stream = kit.stream("orders")
    options = {"topic": "orders", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "5"}
    published = stream.publish_many(list(range(20)))
    query = Query(spark, tmp_path / "whole", url, **options)
    assert len(query.run()) == 4
    published += stream.publish_many(list(range(7)))
    checkpoint = tmp_path / "whole" / "checkpoint"
    for batch in range(4):
        for committed in (True, False):
            folder = tmp_path / f"{batch}{committed}"
            shutil.copytree(checkpoint, folder / "checkpoint")
            for log, last in (("offsets", batch), ("commits", batch if committed else batch - 1)):
                for file in (folder / "checkpoint" / log).iterdir():
                    if int(file.name.strip(".").removesuffix(".crc")) > last:
                        file.unlink()
            again = Query(spark, folder, url, **options)
            again.run()
            assert again.in_files() == published[5 * (batch + committed) :], (batch, committed)


@proves("D1", "D3")
@pytest.mark.slow
@both
def test_payloads_may_change(spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path) -> None:
    """New fields are ignored until the schema has them; a payload that no longer has the type is kept as text."""
    stream = kit.stream("orders")

    def run(schema: str) -> list[Any]:
        options = {"topic": "orders", "startingOffsets": "earliest", "payloadSchema": schema}
        query = Query(spark, tmp_path, url, **options)
        query.run()
        table = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "out"))
        return [*table.orderBy("offset").select("payload.*", "_corrupt").collect()]

    stream.publish_many([{"id": 1}, {"id": 2, "to": "ann"}, {"id": "three"}])
    assert run("id BIGINT") == [(1, None), (2, None), (None, '{"id":"three"}')]
    stream.publish_many([{"id": 4, "to": "bob"}, {"to": "eve"}])
    rows = run("id BIGINT, to STRING")
    assert [(row.id, row.to, row._corrupt) for row in rows[2:]] == [
        (None, None, '{"id":"three"}'),
        (4, "bob", None),
        (None, "eve", None),
    ]


@proves("D1", "D6")
@both
def test_moments_are_the_same_in_every_zone(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """The session's zone only affects how moments are displayed."""
    stream, queue = kit.stream("orders"), kit.queue("q")
    stream.publish({"at": "2026-03-29T02:30:00Z"})
    eventkit.testing.advance(kit, 3600)
    [event] = stream.read()
    after = (event.created_at + timedelta(seconds=1)).isoformat()
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        table = read(spark, url, topic="orders", payloadSchema="at TIMESTAMP")
        [row] = table.selectExpr("unix_millis(created_at) AS created", "unix_millis(payload.at) AS at").collect()
        assert row.created == round(event.created_at.timestamp() * 1000)
        assert row.at == 1000 * datetime(2026, 3, 29, 2, 30, tzinfo=UTC).timestamp()
        assert read(spark, url, topic="orders", startingTimestamp=after).count() == 0
        assert read(spark, url, topic="orders", endingTimestamp=after).count() == 1
        write(spark.sql("SELECT '1' AS payload, current_timestamp() + INTERVAL 1 HOUR AS run_at"), url, queue="q")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    advance(kit, 3300)
    assert queue.receive(1) == []
    advance(kit, 301)
    assert len(queue.receive(1)) == 1


@proves("D5")
@both
@pytest.mark.parametrize("low_latency", ["false", pytest.param("true", marks=pytest.mark.slow)])
def test_a_checkpoint_beyond_a_restored_database(
    spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path, low_latency: str
) -> None:
    """The query is refused while the head is below it and after; a new start reads all new events."""
    options = {"topic": "orders", "startingOffsets": "earliest", "lowLatency": low_latency}
    stream = kit.stream("orders")
    before = stream.publish_many(["same"] * 20)
    query = Query(spark, tmp_path / "a", url, **options)
    query.run()
    take_back(kit, url, before[9])
    after = stream.publish_many(["same"] * 5)
    error = rf"checkpoint is at offset {before[-1]} of 'orders', but the database has gone back: .* end at {before[9]}"
    with pytest.raises(PySparkException, match=error):
        query.run()
    after += stream.publish_many(["same"] * 10)
    with pytest.raises(PySparkException, match=error):
        query.run()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    adopted = adopt_checkpoint(url, tmp_path / "a" / "checkpoint")
    assert [one[:4] for one in adopted] == [("orders", str(tmp_path / "a" / "checkpoint"), before[-1], before[9])]
    assert adopt_checkpoint(url, tmp_path / "a" / "checkpoint") == []
    for again in (query, Query(spark, tmp_path / "b", url, failOnDataLoss="false", **options)):
        again.run()
        assert sorted(again.in_files()) == sorted(before + after)
    more = stream.publish("more")
    query.run()
    assert query.offsets()[-1] == more

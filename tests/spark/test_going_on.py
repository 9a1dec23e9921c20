"""Queries continue from every checkpoint, across changes of payloads, in every time zone."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from spark.streams import Query

import eventkit
from eventkit.conformance.clauses import proves
from eventkit.testing import advance


@proves("D3")
@pytest.mark.slow
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
            # They are sorted by name, because the sink's record begins with the first micro-batch of all.
            files = spark.read.parquet(str(folder / "out" / "*.parquet")).orderBy("offset")
            assert [row.offset for row in files.collect()] == published[5 * (batch + committed) :], (batch, committed)


@proves("D1", "D3")
@pytest.mark.slow
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
def test_moments_are_the_same_in_every_zone(spark: Any, kit: eventkit.EventKit, url: str) -> None:
    """The session's zone only affects how moments are displayed."""
    stream, queue = kit.stream("orders"), kit.queue("q")
    stream.publish({"at": "2026-03-29T02:30:00Z"})
    eventkit.testing.advance(kit, 3600)
    [event] = stream.read()
    after = (event.created_at + timedelta(seconds=1)).isoformat()
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        options = {"url": url, "topic": "orders", "payloadSchema": "at TIMESTAMP"}
        table = spark.read.format("eventkit").options(**options).load()
        [row] = table.selectExpr("unix_millis(created_at) AS created", "unix_millis(payload.at) AS at").collect()
        assert row.created == round(event.created_at.timestamp() * 1000)
        assert row.at == 1000 * datetime(2026, 3, 29, 2, 30, tzinfo=UTC).timestamp()
        options = {"url": url, "topic": "orders"}
        assert spark.read.format("eventkit").options(**options, startingTimestamp=after).load().count() == 0
        assert spark.read.format("eventkit").options(**options, endingTimestamp=after).load().count() == 1
        due = spark.sql("SELECT '1' AS payload, current_timestamp() + INTERVAL 1 HOUR AS run_at")
        due.write.format("eventkit").options(url=url, queue="q").mode("append").save()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    advance(kit, 3300)
    assert queue.receive(1) == []
    advance(kit, 301)
    assert len(queue.receive(1)) == 1

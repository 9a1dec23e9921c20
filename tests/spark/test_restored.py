"""Queries whose database was restored from a backup that is older than their checkpoint."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from restoring import take_back
from spark.streams import Query

import eventkit
from eventkit.archive import adopt_checkpoint
from eventkit.conformance.clauses import proves


@proves("D5")
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
    for again, folder in (
        (query, tmp_path / "a"),
        (Query(spark, tmp_path / "b", url, failOnDataLoss="false", **options), tmp_path / "b"),
    ):
        if again is query:
            adopted = adopt_checkpoint(url, folder / "checkpoint")
            assert [one[:4] for one in adopted] == [("orders", str(folder / "checkpoint"), before[-1], before[9])]
            assert adopt_checkpoint(url, folder / "checkpoint") == []
        again.run()
        files = spark.read.parquet(str(folder / "out" / "*.parquet"))
        assert sorted(row.offset for row in files.collect()) == sorted(before + after)
    more = stream.publish("more")
    query.run()
    assert query.rows()[-1].offset == more

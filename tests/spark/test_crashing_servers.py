"""A server of Postgres that is killed at every step of a reader or writer, and started again."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import deadly
import pytest
from clusters import Cluster, ClusterError
from own_cluster import eventually
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from spark.killing import KilledQuery

import eventkit
from eventkit.conformance.clauses import proves
from eventkit.conformance.threads import in_thread

pytestmark = pytest.mark.slow

COUNT = 200
"""Rows of a write: of 2,000 bytes each they wait in the database."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Return the server."""
    with Cluster() as cluster:
        eventkit.connect(cluster.url).close()
        yield cluster


def revive(cluster: Cluster) -> None:
    """Start the server, whether it runs, is dead, or dies while pg_ctl tries to stop it."""
    with suppress(ClusterError):
        cluster.stop("immediate")
    eventually(lambda: cluster.pid is None, "the server has gone")
    cluster.start()


def length(url: str) -> int:
    """Return how many events have been written."""
    with eventkit.connect(url) as kit:
        return len(kit.stream("t").read(limit=100_000))


@proves("D6")
def test_what_is_written_while_servers_crash_is_written_once(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    """It crashes fifty times and more, between any two statements, before a commit and after it."""
    cloudpickle.register_pickle_by_value(deadly)
    spark.dataSource.register(deadly.DeadlySource)
    rows = spark.range(0, COUNT, 1, 2).selectExpr("concat('[', id, repeat(' ', 2000), ']') AS payload")
    for number, (place, step) in enumerate([*deadly.steps()] * 6, start=1):
        flag = tmp_path / f"flag{number}"
        fault = {"place": place, "step": step, "victim": cluster.pid, "flag": str(flag)}
        options = {"url": cluster.url, "topic": "t", "writeId": flag.name}

        def come_back(flag: Path = flag) -> None:
            eventually(flag.exists, "the server was killed")
            revive(cluster)

        coming = in_thread(come_back)
        for again in range(3):
            try:
                rows.write.format("deadly").options(**options, **fault).mode("append").save()
                break
            except PySparkException:
                assert again < 2, (place, step)
                coming.result(60)
        coming.result(60)
        assert length(cluster.url) == number * COUNT, (place, step)
        rows.repartition(3).write.format("eventkit").options(**options).mode("append").save()
        assert length(cluster.url) == number * COUNT, (place, step)


@proves("D3", "D4")
def test_what_is_read_while_servers_crash_comes_once(spark: Any, cluster: Cluster, tmp_path: Path) -> None:
    """It crashes fifty times, at each of the first steps of a run; the consumer is never ahead of the sink."""
    query = KilledQuery(spark, tmp_path, cluster.url)
    published: list[int] = []
    for at in range(1, 51):
        with eventkit.connect(cluster.url) as kit:
            published += kit.stream("orders").publish_many(list(range(8)))
        (tmp_path / "server").write_text(str(cluster.pid))
        query.run(at % 25 + 1)
        revive(cluster)
        with eventkit.connect(cluster.url) as kit:
            assert kit.stream("orders").offset("lake") <= max(query.offsets(), default=0)
    assert not query.run()
    assert query.offsets() == published

"""Readers, their drivers and servers of Postgres that are killed at any step or moment, and started again."""

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import deadly
import pytest
from clusters import Cluster, ClusterError
from own_cluster import eventually
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from spark.families import descendants
from spark.streams import Query, both

import eventkit
from eventkit.conformance.clauses import proves
from eventkit.conformance.threads import in_thread
from eventkit.spark.reader import StreamReader
from eventkit.spark.source import EventkitSource

pytestmark = pytest.mark.slow


def killing_source(folder: Path) -> type[EventkitSource]:
    """Return a source that counts its steps in all processes, and kills at the one whose number is in ``folder/at``.

    It kills the process that takes the step, or the server whose number is in ``folder/server``.
    Spark sends local classes by value, and not by name.
    """

    def step() -> None:
        with open(folder / "steps", "a+") as steps:
            fcntl.flock(steps, fcntl.LOCK_EX)
            steps.write(".")
            steps.flush()
            if steps.tell() == int((folder / "at").read_text()):
                if (folder / "server").exists():
                    os.kill(int((folder / "server").read_text()), signal.SIGQUIT)
                else:
                    os.kill(os.getpid(), signal.SIGKILL)

    def stepped(answer: Callable[..., Any]) -> Callable[..., Any]:
        def between_steps(*given: Any) -> Any:
            step()
            found = answer(*given)
            step()
            return found

        return between_steps

    class KillingReader(StreamReader):
        initialOffset = stepped(StreamReader.initialOffset)
        latestOffset = stepped(StreamReader.latestOffset)
        partitions = stepped(StreamReader.partitions)

        def read(self, partition: Any) -> Iterator[Any]:
            step()
            for batch in StreamReader.read(self, partition):
                yield batch
                step()

    class KillingSource(EventkitSource):
        @classmethod
        def name(cls) -> str:
            return "eventkit_killing"

        def streamReader(self, schema: Any) -> Any:
            return KillingReader(self._stream_options(), schema)

    return KillingSource


class KilledQuery:
    """A query that is killed at a step."""

    def __init__(self, spark: Any, folder: Path, url: str) -> None:
        spark.dataSource.register(killing_source(folder))
        self._folder = folder
        options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "4", "minPartitions": "2"}
        source = {"source": "eventkit_killing", "topic": "orders", "consumer": "lake"}
        self._query = Query(spark, folder, url, **source, **options)

    def run(self, at: int = 0) -> bool:
        """Run until a step counted from the start of this run, which kills it; return whether it got that far."""
        (self._folder / "steps").unlink(missing_ok=True)
        (self._folder / "at").write_text(str(at))
        try:
            self._query.run()
        except PySparkException:
            return True
        return False

    def offsets(self) -> list[int]:
        """Return the offsets in the sink."""
        return self._query.offsets()


PROGRAM = Path(__file__).with_name("programs.py")


def start(url: str, folder: Path, remote: str = "") -> "subprocess.Popen[str]":
    """Start a driver that reads."""
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), "read_topic", url, str(folder), remote],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def finished(driver: "subprocess.Popen[str]") -> list[int]:
    """Return the offsets in the sink when the driver has ended."""
    output, _ = driver.communicate(timeout=600)
    assert driver.returncode == 0
    return [int(word) for word in output.rpartition("ends")[2].split()]


@proves("D3", "D4")
@both
def test_each_event_comes_once_however_drivers_end(kit: eventkit.EventKit, url: str, tmp_path: Path) -> None:
    """Fifty drivers are killed after different times; in the end the sink has the published events."""
    stream = kit.stream("orders")
    chance = random.Random(1)
    published: list[int] = []
    for _ in range(50):
        published += stream.publish_many(list(range(100)))
        driver = start(url, tmp_path)
        assert driver.stdout is not None
        assert driver.stdout.readline() == "begins\n"
        time.sleep(chance.random() * 4)  # The moment of the kill is random; no event marks it.
        for process in [driver.pid, *descendants(driver.pid)]:
            os.kill(process, signal.SIGKILL)
        driver.communicate()
    assert finished(start(url, tmp_path)) == published
    assert stream.offset("lake") == published[-1]


@proves("D10")
@both
def test_a_session_of_connect_reads(kit: eventkit.EventKit, url: str, tmp_path: Path) -> None:
    """A client of Spark Connect without a Java of its own reads and streams as usual."""
    published = kit.stream("orders").publish_many(list(range(100)))
    assert finished(start(url, tmp_path, remote="local[2]")) == published
    assert kit.stream("orders").offset("lake") == published[-1]


@pytest.fixture
def query(spark: Any, url: str, tmp_path: Path) -> KilledQuery:
    """Return a query over the topic ``orders``, with the consumer ``lake``."""
    return KilledQuery(spark, tmp_path, url)


@proves("D3", "D4")
@both
def test_each_event_comes_once_after_kills(kit: eventkit.EventKit, query: KilledQuery) -> None:
    """Kills come in planning, in reading, and between the two; the consumer is never ahead of the sink."""
    stream = kit.stream("orders")
    published = []
    for at in (4, 7, 9):
        published += stream.publish_many([1, 2, 3])
        assert query.run(at)
        assert stream.offset("lake") <= max(query.offsets(), default=0)
    assert not query.run()
    assert query.offsets() == published
    assert stream.offset("lake") == published[-1]


@proves("D3", "D4")
@both
def test_each_event_comes_once_after_a_kill_at_any_step(kit: eventkit.EventKit, query: KilledQuery) -> None:
    """Fifty kills come at each of the first steps of a run, one after the other."""
    stream = kit.stream("orders")
    published = []
    for at in range(1, 51):
        published += stream.publish_many(list(range(8)))
        query.run(at % 25 + 1)
        assert stream.offset("lake") <= max(query.offsets(), default=0)
    assert not query.run()
    assert query.offsets() == published


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

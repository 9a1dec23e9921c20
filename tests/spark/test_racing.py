"""No event is missing or there twice: others publish, archive and prune while queries run."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from racing_publisher import NAMES, publish_in_every_way
from spark.streams import Query, both

import eventkit
from eventkit.archive import archive
from eventkit.conformance.clauses import proves
from eventkit.conformance.processes import spawn
from eventkit.operations.bulk import ReadArchive
from eventkit.operations.tables import ReadExtent
from eventkit.spark import query
from eventkit.spark.session import is_sparks
from eventkit.spark.views import events, overtaken


def race_reader(spark: Any, folder: Path, url: str, writers: int, seconds: float, **options: str) -> None:
    """Read while all publishers run."""
    for name in NAMES:
        with eventkit.connect(url) as kit:
            kit.stream(name).save_offset("waiting", 0)
    query = Query(spark, folder, url, subscribe=",".join(NAMES), startingOffsets="earliest", **options)
    with query.running() as running:
        processes = [spawn(publish_in_every_way, url, writer, seconds) for writer in range(writers)]
        time.sleep(seconds)  # They publish for this long, and then get time to end.
        sent = [one for process in processes for one in process.result()[0]]
        with eventkit.connect(url) as kit:
            committed = sorted(event.offset for name in NAMES for event in kit.stream(name).read(limit=1_000_000))
        running.processAllAvailable()
        assert len(committed) == len([kind for kind, _, _ in sent if kind == "event"])
        assert query.offsets() == committed


@proves("D3")
def test_what_was_committed_is_received(spark: Any, postgres_url: str, tmp_path: Path) -> None:
    """A query of many small micro-batches receives it."""
    eventkit.connect(postgres_url).close()
    race_reader(spark, tmp_path, postgres_url, writers=3, seconds=3)


@proves("D3")
@pytest.mark.slow
@pytest.mark.parametrize("low_latency", ["false", "true"], ids=["workers", "driver"])
def test_what_a_fleet_committed_is_received(spark: Any, postgres_url: str, tmp_path: Path, low_latency: str) -> None:
    """Eight publish for a minute, and each of the readers receives it."""
    eventkit.connect(postgres_url).close()
    race_reader(spark, tmp_path, postgres_url, writers=8, seconds=60, lowLatency=low_latency)


def publish(url: str, seconds: float) -> list[int]:
    """Publish in transactions of all lengths; return the offsets of what was committed."""
    committed, end = [], time.monotonic() + seconds
    with eventkit.connect(url) as kit:
        while time.monotonic() < end:
            with kit.transaction() as tx:
                offsets = [kit.stream("orders").publish(n, tx=tx) for n in range(random.randint(1, 5))]
                time.sleep(random.random() * 0.01)
            committed += offsets
            time.sleep(random.random() * 0.005)
    return committed


def archive_on(url: str, folder: Path, seconds: float) -> int:
    """Archive and prune in small steps."""
    end, covered = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        covered = archive(url, "orders", to=folder, prune=random.random() < 0.5).covered
        time.sleep(random.random() * 0.2)
    return covered


def seen(spark: Any, url: str) -> list[int]:
    while True:
        try:
            return [row.offset for row in query(spark, url, "SELECT offset FROM orders").collect()]
        except Exception as error:
            if not is_sparks(error) or not overtaken(error):
                raise


def race_archiver(spark: Any, url: str, folder: Path, publishers: int, seconds: float) -> None:
    """Query all the while: each answer has every event committed up to its last one, once."""
    with eventkit.connect(url) as kit:
        kit.stream("orders").publish("the first")
    end = time.monotonic() + seconds
    processes = [spawn(publish, url, seconds) for _ in range(publishers)]
    archiver = spawn(archive_on, url, folder, seconds + 1)
    answers = [seen(spark, url)]
    while time.monotonic() < end:
        answers.append(seen(spark, url))
    committed = sorted([1, *(offset for process in processes for offset in process.result())])
    assert archiver.result() > 1
    answers.append(seen(spark, url))
    for answer in answers:
        assert sorted(answer) == [offset for offset in committed if offset <= max(answer)]
    assert len(answers[-1]) == len(committed)


class Interrupted:
    """A connection that runs a function between the looks at a topic's end and its archive's."""

    def __init__(self, connection: Any, meanwhile: Callable[[], object]) -> None:
        self._connection = connection
        self._meanwhile: Callable[[], object] | None = meanwhile

    def execute(self, operation: Any) -> Any:
        answer = self._connection.execute(operation)
        if self._meanwhile is not None and isinstance(operation, ReadExtent | ReadArchive):
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()
        return answer


@proves("D17")
@both
def test_what_is_archived_and_pruned_between_two_looks_is_there_once(
    spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path
) -> None:
    """Events published in between are included."""
    stream = kit.stream("orders")
    stream.publish_many(range(10))
    archive(url, "orders", to=tmp_path)
    stream.publish_many(range(10, 20))

    def archive_and_prune() -> None:
        stream.publish_many(range(20, 25))
        archive(url, "orders", prune=True)
        assert stream.read() == []

    found = events(spark, Interrupted(kit._connection, archive_and_prune), url, "orders").collect()  # type: ignore[arg-type]
    assert sorted(int(row.payload) for row in found) == list(range(25))


@proves("D17")
@both
def test_no_event_is_missing_or_there_twice(spark: Any, url: str, tmp_path: Path) -> None:
    """Others publish, archive and prune meanwhile."""
    race_archiver(spark, url, tmp_path, publishers=2, seconds=3)


@pytest.mark.slow
@proves("D17")
@both
def test_no_event_is_missing_or_there_twice_for_long(spark: Any, url: str, tmp_path: Path) -> None:
    """The race lasts most of a minute, with more publishers."""
    race_archiver(spark, url, tmp_path, publishers=4, seconds=45)

"""The boundary between archive and live events, raced by publishers and by an archiver that prunes."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import eventkit
from eventkit.archive import archive
from eventkit.conformance import proves
from eventkit.conformance.processes import spawn
from eventkit.operations.bulk import ReadArchive
from eventkit.operations.tables import ReadExtent
from eventkit.spark import query
from eventkit.spark.session import is_sparks
from eventkit.spark.views import events, overtaken


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


def race(spark: Any, url: str, folder: Path, publishers: int, seconds: float) -> None:
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
@pytest.mark.parametrize("more", [0, 5])
def test_what_is_archived_and_pruned_between_two_looks_is_there_once(
    spark: Any, kit: eventkit.EventKit, url: str, tmp_path: Path, more: int
) -> None:
    """Events published in between are included."""
    stream = kit.stream("orders")
    stream.publish_many(range(10))
    archive(url, "orders", to=tmp_path)
    stream.publish_many(range(10, 20))

    def archive_and_prune() -> None:
        stream.publish_many(range(20, 20 + more))
        archive(url, "orders", prune=True)
        assert stream.read() == []

    found = events(spark, Interrupted(kit._connection, archive_and_prune), url, "orders").collect()  # type: ignore[arg-type]
    assert sorted(int(row.payload) for row in found) == list(range(20 + more))


@proves("D17")
def test_no_event_is_missing_or_there_twice(spark: Any, url: str, tmp_path: Path) -> None:
    """Others publish, archive and prune meanwhile."""
    race(spark, url, tmp_path, publishers=2, seconds=3)


@pytest.mark.slow
@proves("D17")
def test_no_event_is_missing_or_there_twice_for_long(spark: Any, url: str, tmp_path: Path) -> None:
    """The race lasts most of a minute, with more publishers."""
    race(spark, url, tmp_path, publishers=4, seconds=45)

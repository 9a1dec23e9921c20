"""Replays of an archive into a stream or a queue."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from archive.archives import archived, both, publish, published

from eventkit import EventkitError, archive
from eventkit.archive import replayer
from eventkit.archive.files import Store, merged
from eventkit.conformance.clauses import proves
from eventkit.operations.bulk import ReadArchive
from eventkit.testing import advance

DAY = 86_400


@proves("D14")
@both
def test_a_replay_gives_what_was_archived(kit: Any, url: str, location: Path) -> None:
    """Events are in their order, in a stream or a queue, also after they were pruned from the database."""
    publish(kit, 30)
    before = [row[1:4] for row in published(kit)]
    archive.archive(url, "orders", to=location, prune=True)
    assert published(kit) == []
    assert archive.replay(url, "orders", to_stream="again") == (30, None, False)
    assert [row[1:4] for row in published(kit, "again")] == before
    assert archive.replay(url, "orders", to_queue="jobs").events == 30
    tasks = kit.queue("jobs").tasks(limit=100)
    assert [(task.payload, task.headers, task.key) for task in tasks] == [
        ({"n": n}, {"trace": str(n)} if n % 2 else {}, None) for n in range(30)
    ]


@proves("D14")
@both
def test_dedup_leaves_out_what_is_there(kit: Any, url: str, location: Path) -> None:
    """This holds for any replay; without it, the same call is another replay."""
    offsets = publish(kit, 30)
    archive.archive(url, "orders", to=location)
    for _ in range(2):
        archive.replay(url, "orders", to_stream="again", dedup=True, last=offsets[19])
    archive.replay(url, "orders", to_stream="again", dedup=True, after=offsets[9])
    assert [row[2] for row in published(kit, "again")] == [row[2] for row in published(kit)]
    for _ in range(2):
        archive.replay(url, "orders", to_queue="jobs", dedup=True)
        archive.replay(url, "orders", to_stream="twice")
    assert kit.queue("jobs").size() == 30
    assert len(published(kit, "twice")) == 60


@proves("D14")
@both
def test_a_replay_of_an_id_ends_once(kit: Any, url: str, location: Path) -> None:
    """A repeated call with the id writes nothing, also when the archive has grown; another id is another replay."""
    publish(kit, 30)
    archive.archive(url, "orders", to=location)
    assert archive.replay(url, "orders", to_stream="again", id="may") == (30, None, False)
    publish(kit, 1)
    archive.archive(url, "orders")
    assert archive.replay(url, "orders", to_stream="again", id="may") == (0, None, True)
    assert archive.replay(url, "orders", to_stream="again", id="may", rate=1.0) == (0, None, True)
    assert len(published(kit, "again")) == 30
    assert archive.replay(url, "orders", to_queue="jobs", id="may").events == 31
    assert archive.replay(url, "orders", to_stream="again", id="june").events == 31


@proves("D14")
@both
def test_a_replay_is_of_what_was_asked_for(kit: Any, url: str, location: Path) -> None:
    """Offsets, times and keys select the events."""
    offsets = publish(kit, 6)
    advance(kit, DAY)
    offsets += publish(kit, 6)
    archive.archive(url, "orders", to=location)
    rows = {row[0]: row for row in archived(kit, location)}
    midnight = rows[offsets[6]][4]
    for number, (given, expected) in enumerate(
        [
            ({"after": offsets[3]}, offsets[4:]),
            ({"last": offsets[3]}, offsets[:4]),
            ({"since": midnight}, offsets[6:]),
            ({"before": midnight}, offsets[:6]),
            ({"keys": ["customer-1"], "after": offsets[5]}, [offsets[7], offsets[10]]),
            ({"keys": ["unknown"]}, []),
        ]
    ):
        topic = f"again-{number}"
        assert archive.replay(url, "orders", to_stream=topic, **given).events == len(expected)
        assert [row[1:4] for row in published(kit, topic)] == [rows[offset][1:4] for offset in expected]


@proves("D14")
@both
def test_of_two_replays_that_are_the_same_one_goes_on(
    kit: Any, url: str, location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event that both wrote is there once."""
    monkeypatch.setattr(replayer, "_ROWS", 2)
    publish(kit, 40)
    archive.archive(url, "orders", to=location)

    def run(_: int) -> bool:
        with suppress(EventkitError):
            archive.replay(url, "orders", to_stream="again", rate=200)
            return True
        return False

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(run, range(2)))
    assert any(outcomes)
    found = [row[2] for row in published(kit, "again")]
    assert found == [row[2] for row in published(kit)] * outcomes.count(True)


def test_a_rate_is_kept(kit: Any, url: str, location: Path) -> None:
    """It sends twenty events at fifty a second."""
    publish(kit, 20)
    archive.archive(url, "orders", to=location)
    began = time.monotonic()
    archive.replay(url, "orders", to_stream="again", rate=50)
    assert time.monotonic() - began >= 0.3


def test_days_that_overlap_come_in_the_order_of_offsets(kit: Any, url: str, location: Path) -> None:
    """Days overlap around midnight, where many publish at once."""
    publish(kit, 10)
    with kit.transaction() as tx:
        tx.execute("UPDATE eventkit_event SET created_at = created_at + 86400000 WHERE id % 3 = 0")
    assert archive.archive(url, "orders", to=location).files == 2
    files = kit._connection.execute(ReadArchive("orders")).files
    tables = list(merged(Store(str(location)), files))
    offsets = [offset for table in tables for offset in table["offset"].to_pylist()]
    assert offsets == [row[0] for row in published(kit)]

"""Rows staged by many processes become visible all at once, and only once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eventkit
from eventkit import EventkitError, QueueFull
from eventkit.conformance.processes import PATIENCE
from eventkit.conformance.threads import asleep
from eventkit.conformance.urls import with_options
from eventkit.operations.bulk import DropStaged, StageEvents, StageTasks, WriteBatch
from eventkit.operations.enqueue import PLAIN
from eventkit.operations.tables import PruneTopic
from eventkit.testing import advance

DAY = 86_400


@pytest.fixture(params=["sqlite", "postgres"])
def kit(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Return a kit on each of the databases, without a fallback poll."""
    url = f"sqlite:///{tmp_path / 'staged.db'}"
    url = url if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    with eventkit.connect(with_options(url, fallback_poll=DAY)) as kit:
        yield kit


def events(batch: int, attempt: int, part: int, position: int, *texts: str, dedup: str | None = None) -> StageEvents:
    """Return a chunk of events for a topic."""
    return StageEvents("w", batch, attempt, part, position, "t", [(text, "k", '{"h":"1"}', dedup) for text in texts])


def tasks(batch: int, attempt: int, *texts: str) -> StageTasks:
    """Return a chunk of tasks for a queue."""
    return StageTasks("w", batch, attempt, 0, 0, "q", [(text, *PLAIN) for text in texts])


def write(batch: int, attempts: list[int], chunks: int, **given: Any) -> WriteBatch:
    """Write the batch of these attempts."""
    plain = {"keep": None, "late": [], "queue": None, "number": 0, "deduplicated": False}
    return WriteBatch("w", batch, attempts=attempts, chunks=chunks, **plain | given)


def payloads(kit: Any) -> list[Any]:
    """Return the payloads of the topic."""
    return [event.payload for event in kit.stream("t").read()]


def left(kit: Any) -> int:
    """Return how many chunks are still there a day later."""
    advance(kit, DAY)
    return int(kit.maintain().staged)


def test_a_batch_comes_whole_in_order_and_once(kit: Any) -> None:
    """Rows staged by discarded attempts stay invisible, and are deleted."""
    run = kit._connection.execute
    for chunk in (
        events(3, 12, 1, 0, "4"),
        events(3, 11, 0, 1, "3"),
        events(3, 10, 0, 0, "8"),
        events(3, 11, 0, 0, "1", "2"),
    ):
        run(chunk)
    assert payloads(kit) == []
    assert run(write(3, [11, 12], 3))
    assert payloads(kit) == [1, 2, 3, 4]
    [first, *_] = kit.stream("t").read()
    assert (first.key, first.headers) == ("k", {"h": "1"})
    for again in (3, 2):
        run(events(again, 20, 0, 0, "9"))
        assert not run(write(again, [20], 1)), again
    assert run(write(4, [30], 0, late=[events(4, 30, 0, 0, "5")]))
    assert payloads(kit) == [1, 2, 3, 4, 5]
    assert left(kit) == 0


def test_a_batch_with_a_missing_part_is_not_written(kit: Any) -> None:
    """It leaves neither rows nor mark, so it can be written when it is complete."""
    run = kit._connection.execute
    run(events(1, 1, 0, 0, "1"))
    with pytest.raises(EventkitError, match="batch 1 of w has 1 of its 2 chunks: write it again"):
        run(write(1, [1], 2))
    assert payloads(kit) == []
    run(events(1, 1, 0, 1, "2"))
    assert run(write(1, [1], 2))
    assert payloads(kit) == [1, 2]


def test_unconfirmed_rows_are_deleted_after_a_day(kit: Any) -> None:
    """They are deleted earlier if the writer confirms a batch; a mark is deleted when its time has passed."""
    run = kit._connection.execute
    for batch in (1, 2, 3):
        run(events(batch, 1, 0, 0, "1"))
    run(DropStaged("w", 2))
    advance(kit, DAY - 10)
    assert kit.maintain().staged == 0
    advance(kit, 10)
    assert kit.maintain().staged == 1
    assert run(write(5, [], 0, keep=1000))
    assert run(write(6, [], 0, keep=None))
    assert run(write(7, [], 0, keep=60_000))
    advance(kit, 59)
    assert kit.maintain().written == 0
    assert not run(write(7, [], 0))
    advance(kit, 1)
    assert kit.maintain().written == 1
    assert run(write(7, [], 0))


def test_maintenance_prunes_by_settings_that_still_hold(kit: Any) -> None:
    """A topic is left alone if its settings changed after maintenance read them."""
    last = kit.stream("t").publish_many([1, 2])[-1]
    for keep, pruned in ((5, 0), (1, 2)):
        kit.stream("t").configure(keep_count=keep)
        assert kit._connection.execute(PruneTopic("t", None, 1, True, last)) == pruned


def test_a_dedup_id_counts_across_batches_and_inside_one(kit: Any) -> None:
    """The first event with the id stays."""
    run = kit._connection.execute
    kit.stream("t").publish(0, dedup="x")
    run(events(1, 1, 0, 0, "1", "2", dedup="y"))
    late = [events(1, 2, 1, 0, "3", dedup="x")]
    assert run(write(1, [1, 2], 1, late=late, deduplicated=True))
    assert payloads(kit) == [0, 1]


def test_tasks_of_a_batch_keep_to_the_bound_and_to_keys(kit: Any) -> None:
    """A batch that exceeds the bound leaves nothing, not even its mark."""
    run, queue = kit._connection.execute, kit.queue("q")
    queue.configure(max_size=3)
    queue.enqueue("taken", key="k")
    with pytest.raises(QueueFull, match="has reached its max_size"):
        run(write(1, [1], 0, late=[tasks(1, 1, "1", "2", "3")], queue="q", number=3))
    with pytest.raises(QueueFull, match="never fit"):
        run(write(1, [1], 0, late=[tasks(1, 1, "1", "2", "3", "4")], queue="q", number=4))
    assert queue.size() == 1
    later = StageTasks(
        "w",
        1,
        1,
        0,
        0,
        "q",
        [
            ("1", None, 5, None, None, None, None, None, None, None),
            ("2", None, 0, None, "k", None, None, None, None, None),
            ("3", None, 0, 7, None, 50_000, None, None, None, None),
        ],
    )
    assert run(write(1, [1], 0, late=[later], queue="q", number=3))
    [best, other] = queue.claim("worker", 5)
    assert (best.payload, best.priority, other.payload) == (1, 5, "taken")
    advance(kit, 51)
    [scheduled] = queue.claim("worker", 5)
    assert (scheduled.payload, scheduled.max_attempts) == (3, 7)


def test_a_batch_wakes_waiters(kit: Any) -> None:
    """A subscriber and a worker wake."""
    run = kit._connection.execute
    event = asleep(next, kit.stream("t").subscribe())
    assert run(write(1, [1], 0, late=[events(1, 1, 0, 0, "1")]))
    assert event.result(PATIENCE).payload == 1
    claimed = asleep(kit.queue("q").claim, "worker", wait=PATIENCE)
    assert run(write(2, [1], 0, late=[tasks(2, 1, "1")], queue="q", number=1))
    assert [task.payload for task in claimed.result(PATIENCE)] == [1]

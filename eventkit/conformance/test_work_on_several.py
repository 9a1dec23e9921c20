"""Working on several queues at once: `kit.work` (Q19)."""

import itertools
import time
from collections import Counter
from typing import Any

import pytest

import eventkit
from eventkit import EventKit

from .clauses import proves
from .processes import spawn
from .races import SOON, asleep
from .threads import PATIENCE


def _work(kit: EventKit, count: int, *queues: Any, **options: Any) -> list[Any]:
    """The payloads of the next so many tasks, each acked."""
    got = []
    with kit.work(queues, **options) as tasks:
        for task in itertools.islice(tasks, count):
            assert kit.queue(task.queue).ack(task)
            got.append(task.payload)
    return got


@proves("Q19")
@pytest.mark.parametrize("batch", [1, 3])
def test_weights_share_out_the_turns(kit: EventKit, batch: int) -> None:
    """While all have tasks, one of twice the weight has twice as many handed out, and nobody waits long."""
    for name in ("a", "b", "c"):
        kit.queue(name).enqueue_many([name] * 200)
    got = _work(kit, 140, "a", ("b", 2), ("c", 0.5), batch=batch)
    shares = Counter(got)
    assert abs(shares["a"] - 40) <= 2 * batch
    assert abs(shares["b"] - 80) <= 2 * batch
    assert abs(shares["c"] - 20) <= 2 * batch
    assert all("c" in got[place : place + 7 * batch + 7] for place in range(0, 120, 7))


@proves("Q19")
def test_who_had_nothing_is_not_owed_anything(kit: EventKit) -> None:
    """A queue that was empty for long has its share from now on, and no more."""
    kit.queue("busy").enqueue_many(["busy"] * 200)
    with kit.work(["busy", "late"]) as tasks:
        for _ in range(100):
            next(tasks)
        kit.queue("late").enqueue_many(["late"] * 50)
        shares = Counter(next(tasks).payload for _ in range(20))
    assert abs(shares["late"] - 10) <= 1


@proves("Q19")
def test_a_strict_order_is_kept(kit: EventKit) -> None:
    """Who comes later in it has a turn when those before have nothing."""
    kit.queue("last").enqueue_many([5, 6])
    kit.queue("first").enqueue_many([1, 2])
    kit.queue("second").enqueue_many([3, 4])
    assert _work(kit, 6, "first", "second", "last", strict=True) == [1, 2, 3, 4, 5, 6]


@proves("Q19", "Q2")
def test_within_a_queue_the_order_is_its_own(kit: EventKit) -> None:
    for name in ("a", "b"):
        kit.queue(name).enqueue_many([eventkit.NewTask(f"{name}{n}", priority=n % 3) for n in range(6)])
    got = _work(kit, 12, "a", "b")
    for name in ("a", "b"):
        assert [text for text in got if text[0] == name] == [f"{name}{n}" for n in (2, 5, 1, 4, 0, 3)]


def _enqueue_late(url: str, name: str, options: dict[str, Any]) -> float:
    """Enqueue a task; the moment after the commit."""
    with eventkit.connect(url) as kit:
        time.sleep(0.1)
        kit.queue(name).enqueue("late", **options)
        return time.time()


@proves("Q19", "W1", "W2")
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_task_of_any_of_them_wakes(kit: EventKit, url: str, name: str) -> None:
    with kit.work(["a", "b", "c"]) as tasks, spawn(_enqueue_late, url, name, {}) as process:
        assert next(tasks).queue == name
        assert time.time() - process.result() < SOON


@proves("Q19", "W1")
def test_the_next_due_moment_of_any_of_them_wakes(kit: EventKit) -> None:
    kit.queue("a").enqueue("later", delay=60)
    kit.queue("b").enqueue("soon", delay=0.3)
    started = time.monotonic()
    with kit.work(["a", "b"]) as tasks:
        assert next(tasks).payload == "soon"
    assert 0.2 < time.monotonic() - started < 2 * SOON


@proves("Q19", "Q12")
def test_a_paused_queue_is_passed_by(kit: EventKit) -> None:
    """And has its turn once it is resumed."""
    kit.queue("a").enqueue_many(["a"] * 3)
    kit.queue("b").enqueue_many(["b"] * 3)
    kit.queue("a").pause()
    with kit.work(["a", "b"], strict=True) as tasks:
        assert [next(tasks).payload for _ in range(3)] == ["b"] * 3
        waiting = asleep(lambda: next(tasks))
        kit.queue("a").resume()
        assert waiting.result(PATIENCE).payload == "a"


@proves("Q19")
def test_what_was_not_handed_out_goes_back(kit: EventKit) -> None:
    kit.queue("a").enqueue_many([1, 2, 3])
    with kit.work(["a", "b"], batch=3) as tasks:
        task = next(tasks)
    assert [(info.payload, info.state, info.attempt) for info in kit.queue("a").list()] == [
        (1, "leased", 1),
        (2, "ready", 0),
        (3, "ready", 0),
    ]
    assert kit.queue("a").ack(task)


@proves("Q19")
@pytest.mark.parametrize(
    "queues", [[], ["a", "a"], ["a", ("a", 2)], [("a", 0)], [("a", -1)], [("a", float("inf"))], [""]]
)
def test_queues_that_make_no_sense_are_refused(kit: EventKit, queues: list[Any]) -> None:
    with pytest.raises(ValueError, match="queue"):
        kit.work(queues)

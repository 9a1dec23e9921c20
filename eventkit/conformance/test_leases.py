"""The right to a task until a moment, and what it costs to lose it: Q3 and Q4."""

import time
from typing import Any

import eventkit
from eventkit import EventKit, Task, TaskQueue
from eventkit.testing import advance

from .clauses import proves
from .processes import spawn
from .races import SOON, database_ms


def _claim_and_die(url: str, lease: float) -> None:
    kit = eventkit.connect(url)
    [task] = kit.queue("jobs").claim("crashing", lease=lease, wait=SOON)
    kit.queue("claimed").enqueue(task.attempt)
    time.sleep(60)


@proves("Q3")
def test_attempts_count_at_claim(kit: EventKit) -> None:
    """Three runs in all by default, though no worker ever says how one ended."""
    queue = kit.queue("jobs")
    id = queue.enqueue(1).id
    for attempt in (1, 2, 3):
        [task] = queue.claim("worker", lease=0)
        assert (task.attempt, task.max_attempts) == (attempt, 3)
    assert queue.claim("worker") == []
    info = queue.get(id)
    assert info is not None
    assert (info.state, info.reason, info.attempt) == ("dead", "exhausted", 3)


@proves("Q3", "Q4")
def test_a_crashing_process_uses_up_an_attempt(kit: EventKit, url: str) -> None:
    queue = kit.queue("jobs")
    id = queue.enqueue(1, max_attempts=2).id
    for attempt in (1, 2):
        with spawn(_claim_and_die, url, 300.0) as process:
            [said] = kit.queue("claimed").receive() or kit.queue("claimed").claim("observer", wait=30)
            assert said.payload == attempt
            kit.queue("claimed").ack(said)
            process.kill()
        advance(kit, 301)
    assert queue.claim("worker") == []
    assert [(info.id, info.reason) for info in queue.dead()] == [(id, "exhausted")]


@proves("Q4")
def test_a_lease_lasts_300_seconds_unless_said_otherwise(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue_many([1, 2])
    before = database_ms(kit)
    [default] = queue.claim("worker")
    [short] = queue.claim("worker", lease=1.234)
    after = database_ms(kit)
    assert before + 300_000 <= default.lease_expires_ms <= after + 300_000
    assert before + 1_234 <= short.lease_expires_ms <= after + 1_234
    advance(kit, 2)
    assert [task.payload for task in queue.claim("worker", 9)] == [2]
    advance(kit, 290)
    assert queue.claim("worker", 9) == []
    advance(kit, 10)
    assert [task.payload for task in queue.claim("worker", 9)] == [1, 2]


@proves("Q4")
def test_leases_have_millisecond_resolution(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue(1)
    [task] = queue.claim("worker", lease=12.345)
    info = queue.get(task.id)
    assert info is not None
    assert info.claimed_ms is not None
    assert task.lease_expires_ms - info.claimed_ms == 12_345
    assert info.lease_expires_at == task.lease_expires_at


@proves("Q4")
def test_a_lapsed_lease_makes_the_task_claimable_at_once(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue(1)
    [first] = queue.claim("worker", lease=0)
    [second] = queue.claim("worker", lease=0.05)
    time.sleep(0.06)
    [third] = queue.claim("another")
    assert first.id == second.id == third.id
    assert first.token != second.token != third.token


@proves("Q4")
def test_an_exhausted_and_lapsed_task_is_dead(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    id = queue.enqueue(1, max_attempts=1).id
    queue.claim("lost", lease=5)
    advance(kit, 6)
    assert queue.peek() == []
    assert queue.claim("worker") == []
    [dead] = queue.dead()
    assert (dead.id, dead.reason, dead.attempt) == (id, "exhausted", 1)
    assert dead.error is not None
    assert "lost" in dead.error


@proves("Q4")
def test_a_task_says_whether_its_last_run_lapsed(kit: EventKit) -> None:
    """Until a run ends in another way.  A release is no end: the task is as it was before it was claimed."""
    kinds: dict[str, dict[str, Any]] = {"plain": {}, "keyed": {"key": "k"}, "later": {"delay": 5}, "limited": {}}
    for name, keywords in kinds.items():
        queue = kit.queue(name)
        queue.configure(max_running=5 if name == "limited" else None)
        queue.enqueue(1, max_attempts=9, **keywords)
        advance(kit, 5)

        def claimed(lease: float | None = None, queue: TaskQueue[Any] = queue) -> Task[Any]:
            [task] = queue.claim("worker", lease=lease)
            return task

        assert claimed(lease=0).lapsed is False
        assert claimed(lease=0).lapsed is True
        task = claimed()
        assert task.lapsed is True
        assert queue.release(task)
        task = claimed()
        assert task.lapsed is True
        assert queue.retry(task, delay=5)
        advance(kit, 5)
        assert claimed(lease=0).lapsed is False
        task = claimed()
        assert task.lapsed is True
        assert queue.snooze(task, 0)
        assert claimed(lease=0).lapsed is False
        task = claimed()
        assert task.lapsed is True
        assert queue.fail(task, "broken")
        assert queue.requeue() == 1
        assert claimed(lease=0).lapsed is False
        [task] = queue.receive()
        assert task.lapsed is True

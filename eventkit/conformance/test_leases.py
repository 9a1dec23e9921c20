"""Leases, expiries and the delays of retries."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import eventkit
from eventkit import EventKit, Exponential, Fixed, Linear, NewTask, Task, TaskQueue
from eventkit.retry import Delays
from eventkit.testing import advance

from .clauses import both_flavours, proves
from .processes import spawn
from .threads import SOON, asleep, database_ms


def _claim_and_die(url: str, lease: float) -> None:
    kit = eventkit.connect(url)
    [task] = kit.queue("jobs").claim("crashing", lease=lease, wait=SOON)
    kit.queue("claimed").enqueue(task.attempt)
    time.sleep(60)


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
    """It says so until an attempt ends in another way.  A release restores the task as it was before the claim."""
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


@proves("Q8")
def test_an_expired_task_is_never_handed_out(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    past = datetime.now(UTC) - timedelta(seconds=1)
    queue.enqueue("at once", expires=0)
    queue.enqueue("past", expires=past)
    queue.enqueue("soon", expires=10)
    queue.enqueue("before it is due", expires=10, delay=20)
    queue.enqueue_many([NewTask("moment", expires=past), NewTask("urgent", expires=10, priority=9)])
    queue.enqueue("lasting", expires=1000)
    advance(kit, 30)
    assert [info.payload for info in queue.peek(9)] == ["lasting"]
    assert [info.payload for info in queue.tasks("ready")] == ["lasting"]
    assert [task.payload for task in queue.claim("worker", 9)] == ["lasting"]
    assert queue.receive(9) == []
    assert sorted(str(info.payload) for info in queue.dead()) == sorted(
        ["at once", "past", "soon", "before it is due", "moment", "urgent"]
    )


@proves("Q8")
def test_thousands_may_expire_at_once(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue_many([NewTask("expired", expires=0, priority=1)] * 2500)
    queue.enqueue("lasting")
    assert [task.payload for task in queue.claim("worker", 9)] == ["lasting"]
    assert queue.receive(9) == []
    queue.sweep()
    assert queue.stats().dead == 2500


@proves("Q8", "Q11")
def test_an_expired_task_dies_on_a_sweep(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue("waits", delay=100, expires=10)
    queue.enqueue("ready", expires=10)
    queue.enqueue("lasting")
    advance(kit, 11)
    assert queue.sweep() == 2
    assert [info.reason for info in queue.dead()] == ["expired", "expired"]
    assert queue.sweep() == 0
    assert queue.size() == 1


@proves("Q8")
@both_flavours
def test_a_waiting_worker_has_expired_tasks_die_in_time(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue("expires", delay=60, expires=0.3)
    claim = asleep(queue.claim, "worker", wait=60)
    deadline = time.monotonic() + SOON
    while not queue.dead() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [info.reason for info in queue.dead()] == ["expired"]
    queue.enqueue("last")
    assert [task.payload for task in claim.result()] == ["last"]


_EXACT: dict[str, tuple[Any, list[float]]] = {
    "exponential": (Exponential(base=2, jitter=0), [2, 4, 8, 16, 32]),
    "linear": (Linear(base=2, jitter=0), [2, 4, 6, 8, 10]),
    "fixed": (Fixed(base=2, jitter=0), [2, 2, 2, 2, 2]),
    "a list": (Delays((1, 5, 0.5), jitter=0), [1, 5, 0.5, 0.5, 0.5]),
    "capped": (Exponential(base=100, jitter=0), [100, 200, 300, 300, 300]),
    "with a cap of its own": (Linear(base=2, jitter=0, cap=5), [2, 4, 5, 5, 5]),
}

_JITTERED: dict[str, tuple[Any, list[float]]] = {
    "nothing configured": (None, [1, 2, 4]),
    "exponential": ("exponential", [1, 2, 4]),
    "linear": ("linear", [1, 2, 3]),
    "fixed": ("fixed", [1, 1, 1]),
    "a list": ([10, 40, 20], [10, 40, 20]),
}


def _retried(kit: EventKit, name: str, count: int = 1, **keywords: Any) -> list[tuple[float, float]]:
    """Claim and retry *count* tasks of queue *name*; return the bounds of each delay in seconds."""
    queue = kit.queue(name)
    tasks = queue.claim("worker", count)
    assert len(tasks) == count
    before = database_ms(kit)
    for task in tasks:
        assert queue.retry(task, **keywords)
    after = database_ms(kit)
    return [((info.run_ms - after) / 1000, (info.run_ms - before) / 1000) for info in queue.tasks(limit=count)]


@proves("Q6", "Q12")
def test_a_policy_says_how_long_a_task_waits(kit: EventKit) -> None:
    for name, (policy, expected) in _EXACT.items():
        queue = kit.queue(name)
        queue.configure(retry=policy)
        queue.enqueue(1, max_attempts=100)
        for delay in expected:
            [(least, most)] = _retried(kit, name)
            assert least <= delay <= most, name
            advance(kit, delay)


@proves("Q6", "Q12")
def test_delays_are_jittered_by_30_percent(kit: EventKit) -> None:
    for name, (policy, expected) in _JITTERED.items():
        queue = kit.queue(name)
        if policy is not None:
            queue.configure(retry=policy)
        queue.enqueue_many([NewTask(None, max_attempts=10)] * 50)
        for delay in expected:
            delays = _retried(kit, name, 50)
            assert all(delay * 0.7 <= most and least <= delay * 1.3 for least, most in delays), name
            # 50 samples of a uniform jitter leave a third of its range empty at one end once in 10^9 times.
            assert min(least for least, _ in delays) < delay * 0.9, name
            assert max(most for _, most in delays) > delay * 1.1, name
            advance(kit, 1000)


@proves("Q6")
def test_the_cap_is_applied_after_the_jitter(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.configure(retry=Fixed(base=100_000))
    queue.enqueue_many([None] * 20)
    assert all(least <= 300 <= most for least, most in _retried(kit, "jobs", 20))


@proves("Q6")
def test_an_attempt_beyond_counting_still_waits_no_longer_than_the_cap(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue(1, max_attempts=5000)
    for _ in range(1030):
        queue.claim("worker", lease=0)
    [(least, most)] = _retried(kit, "jobs")
    assert least <= 300 <= most


@proves("Q6")
def test_an_explicit_delay_beats_the_policy(kit: EventKit) -> None:
    """Neither jitter nor cap applies to it, and 0 is a valid delay."""
    queue = kit.queue("jobs")
    queue.configure(retry=Fixed(base=77, jitter=0))
    queue.enqueue(1, max_attempts=9)
    for delay, seconds in ((0.25, 0.25), (1000, 1000.0), (timedelta(hours=2), 7200.0), (0, 0.0)):
        [(least, most)] = _retried(kit, "jobs", delay=delay)
        assert least <= seconds <= most
        advance(kit, seconds)
    [task] = queue.claim("worker")
    assert task.attempt == 5


@proves("Q6", "Q12")
def test_a_policy_is_checked_when_it_is_configured(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    bad = ["never", [], [1, -1], Fixed(base=0), Linear(base=-1), Exponential(jitter=2), Delays((1,), cap=0), 5]
    bad += [[float("nan")], [1, float("inf")], ["1"], Exponential(base=float("nan"))]
    for value in bad:
        with pytest.raises((ValueError, TypeError)):
            queue.configure(retry=value)  # type: ignore[arg-type]
    queue.enqueue(1)
    [task] = queue.claim("worker")
    with pytest.raises(ValueError, match="delay"):
        queue.retry(task, delay=-1)
    assert queue.ack(task)

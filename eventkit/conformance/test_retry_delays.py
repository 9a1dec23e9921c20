"""How long a task waits for its next attempt: Q6."""

from datetime import timedelta
from typing import Any

import pytest

from eventkit import Delays, EventKit, Exponential, Fixed, Linear, NewTask
from eventkit.testing import advance

from .clauses import proves
from .races import database_ms

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
    """Claim and retry *count* tasks of queue *name*; between how many seconds the delay of each was."""
    queue = kit.queue(name)
    tasks = queue.claim("worker", count)
    assert len(tasks) == count
    before = database_ms(kit)
    for task in tasks:
        assert queue.retry(task, **keywords)
    after = database_ms(kit)
    return [((info.run_ms - after) / 1000, (info.run_ms - before) / 1000) for info in queue.list(limit=count)]


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
    """Neither jitter nor cap applies to it, and 0 is a delay like any other."""
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
    for value in bad:
        with pytest.raises((ValueError, TypeError)):
            queue.configure(retry=value)  # type: ignore[arg-type]
    queue.enqueue(1)
    [task] = queue.claim("worker")
    with pytest.raises(ValueError, match="delay"):
        queue.retry(task, delay=-1)
    assert queue.ack(task)

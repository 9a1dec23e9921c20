"""What a claim costs does not depend on what waits beside it: Q18.

The bounds are tenfold, so that only another order of growth is told from a busy machine.
"""

from time import perf_counter
from typing import Any

from eventkit import EventKit, NewTask, TaskQueue

from .clauses import proves

_BESIDE = 20_000
_ROUNDS = 60


def _seconds(queue: TaskQueue[Any]) -> float:
    """The least time that a claim and its ack took."""
    queue.enqueue_many(range(_ROUNDS))
    times = []
    for _ in range(_ROUNDS):
        started = perf_counter()
        [task] = queue.claim("worker")
        assert queue.ack(task)
        times.append(perf_counter() - started)
    return sorted(times)[_ROUNDS // 4]


def _idle_seconds(queue: TaskQueue[Any]) -> float:
    """The least time that a claim took that came to nothing."""
    times = []
    for _ in range(_ROUNDS):
        started = perf_counter()
        assert queue.claim("worker") == []
        times.append(perf_counter() - started)
    return sorted(times)[_ROUNDS // 4]


def _in_portions(queue: TaskQueue[Any], payload: Any, **keywords: Any) -> None:
    for _ in range(_BESIDE // 5000):
        queue.enqueue_many([NewTask(payload, **keywords)] * 5000)


@proves("Q18")
def test_claims_cost_the_same_beside_many_tasks_in_other_states(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    alone = _seconds(queue)

    _in_portions(queue, "scheduled", delay=3600)
    assert _seconds(queue) < 10 * alone

    _in_portions(queue, "leased")
    while queue.claim("another", 5000, lease=3600):
        pass
    assert _seconds(queue) < 10 * alone

    _in_portions(queue, "dead", expires=0)
    assert queue.sweep() == _BESIDE
    assert _seconds(queue) < 10 * alone

    queue.configure(keep_done=3600)
    _in_portions(queue, "done")
    while tasks := queue.claim("another", 5000):
        queue.ack_many(tasks)
    stats = queue.stats()
    assert {stats.scheduled, stats.leased, stats.dead, stats.done} == {min(_BESIDE, 10_000)}
    assert _seconds(queue) < 10 * alone


@proves("Q18", "Q12", "Q13")
def test_a_claim_that_may_take_nothing_costs_the_same_beside_many_tasks_that_are_ready(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    alone = _idle_seconds(queue)
    _in_portions(queue, "ready")
    limits: list[dict[str, Any]] = [{"max_running": 1}, {"rate": 0.001, "max_running": None}]
    for settings in limits:
        queue.configure(**settings)
        assert len(queue.claim("worker", lease=3600)) == 1
        assert _idle_seconds(queue) < 10 * alone
    queue.configure(rate=None)
    queue.pause()
    assert _idle_seconds(queue) < 10 * alone


@proves("Q18")
def test_an_idle_claim_costs_the_same_beside_many_tasks_in_other_states(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    alone = _idle_seconds(queue)
    _in_portions(queue, "scheduled", delay=3600, expires=7200)
    _in_portions(queue, "leased", expires=7200)
    while queue.claim("another", 5000, lease=3600):
        pass
    assert _idle_seconds(queue) < 10 * alone

"""Many who handle the same tasks at once: Q2, Q5."""

import random

import pytest

from eventkit import EventKit, NewTask

from .clauses import proves, requires
from .contending import ack_batches, drain_in_threads, work_on
from .processes import spawn


@proves("Q2")
@requires("concurrent_writers")
def test_sixteen_claimers_share_the_tasks(kit: EventKit, url: str) -> None:
    """Nobody gets what another has, and nobody waits for the one who keeps a transaction open."""
    queue = kit.queue("jobs")
    queue.enqueue_many([NewTask(number, priority=number % 3) for number in range(600)])
    with kit.transaction() as tx:
        held = queue.claim("slow", 20, tx=tx)
        processes = [spawn(drain_in_threads, url, 3, 5) for _ in range(3)]
        shares = [share for process in processes for share in process.result()]
        assert len(held) == 20
    assert sorted(payload for share in shares for payload in share) == sorted(
        set(range(600)) - {task.payload for task in held}
    )
    assert queue.ack_many(held) == sorted(task.id for task in held)
    assert queue.size() == 0


@proves("Q5")
def test_batches_are_acked_in_any_order(kit: EventKit, url: str) -> None:
    """By two who hold the same tasks and begin at opposite ends: each task once, and neither blocks the other."""
    queue = kit.queue("jobs")
    queue.enqueue_many([NewTask(n, priority=n % 7, key=None if n % 5 else str(n)) for n in range(300)])
    tasks = queue.claim("worker", 300)
    random.Random(1).shuffle(tasks)
    with spawn(ack_batches, url, 2, tasks, 1) as one, spawn(ack_batches, url, 2, tasks[::-1], 2) as two:
        pass
    assert sorted(one.result() + two.result()) == sorted(task.id for task in tasks)


@proves("Q2", "Q5")
@pytest.mark.parametrize("seconds", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_whoever_handles_many_tasks_is_in_nobodys_way(kit: EventKit, url: str, seconds: float) -> None:
    """Acks, purges, requeues, lapses and claims of the same tasks at once: nothing fails."""
    kit.queue("jobs").enqueue_many(range(200))
    for process in [spawn(work_on, url, 4, seconds, seed) for seed in range(4)]:
        process.join()

"""Handing tasks out: Q2."""

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import eventkit
from eventkit import EventKit, NewTask, Task
from eventkit.testing import advance

from .clauses import proves, requires
from .processes import spawn
from .races import SOON, asleep, line_up
from .rollback import rolled_back


def _drain(url: str, racers: int) -> list[int]:
    """Claim, work a little and ack until there is nothing left; the payloads."""
    done: list[int] = []
    with eventkit.connect(url) as kit:
        queue = kit.queue("jobs")
        line_up(kit, racers)
        while tasks := queue.claim("worker", random.randint(1, 7)):
            done += [task.payload for task in tasks]
            time.sleep(0.001)
            assert queue.ack_many(tasks) == sorted(task.id for task in tasks)
    return done


def _enqueue_late(url: str) -> float:
    """Enqueue a task; the moment after the commit."""
    with eventkit.connect(url) as kit:
        time.sleep(0.1)
        kit.queue("jobs").enqueue("late")
        return time.time()


@proves("Q2")
def test_the_best_come_first(kit: EventKit) -> None:
    """Priority from high to low, then earlier due, then lower id: across claims, and inside each of them."""
    queue = kit.queue("jobs")
    now = datetime.now(UTC)
    chances = random.Random(7)
    tasks = [
        NewTask(None, priority=chances.choice([-2, 0, 0, 5]), run_at=now - timedelta(seconds=chances.randint(0, 3)))
        for _ in range(60)
    ]
    ids = [answer.id for answer in queue.enqueue_many(tasks)]
    best = [
        id for id, task in sorted(zip(ids, tasks, strict=True), key=lambda it: (-it[1].priority, it[1].run_at, it[0]))
    ]
    batches = [queue.claim("worker", limit) for limit in (1, 2, 7, 20, 100)]
    assert [len(batch) for batch in batches] == [1, 2, 7, 20, 30]
    assert [task.id for batch in batches for task in batch] == best


@proves("Q2")
def test_tasks_that_fell_due_sort_among_the_others(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue("second", delay=10)
    queue.enqueue("first", delay=5)
    queue.enqueue("urgent", delay=20, priority=1)
    advance(kit, 30)
    queue.enqueue("last")
    assert [task.payload for task in queue.claim("worker", 9)] == ["urgent", "first", "second", "last"]


@proves("Q2")
def test_thousands_may_fall_due_at_once(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    tasks = [NewTask(number, delay=10, priority=number // 1000) for number in range(2600)]
    queue.enqueue_many(tasks)
    advance(kit, 11)
    urgent = queue.claim("worker", 100)
    assert [task.payload for task in urgent] == list(range(2000, 2100))
    rest = queue.claim("worker", 2500)
    assert [(task.priority, task.id) for task in rest] == sorted(
        ((task.priority, task.id) for task in rest), key=lambda it: (-it[0], it[1])
    )
    assert sorted(task.payload for task in urgent + rest) == list(range(2600))


@proves("Q2")
def test_a_claim_hands_out_at_most_its_limit(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    kit.queue("others").enqueue(0)
    queue.enqueue_many(range(3))
    assert [task.payload for task in queue.claim("worker")] == [0]
    assert [task.payload for task in queue.claim("worker", 9)] == [1, 2]
    assert queue.claim("worker", 9) == []
    for bad in (0, -1, 1.5, True):
        with pytest.raises((ValueError, TypeError)):
            queue.claim("worker", bad)  # type: ignore[arg-type]


@proves("Q2")
def test_every_claim_has_a_token_of_its_own(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue(1)
    tokens = {task.token for _ in range(3) for task in queue.claim("worker", lease=0)}
    assert len(tokens) == 3


@proves("Q2")
def test_claims_of_many_processes_are_disjoint_and_complete(kit: EventKit, url: str) -> None:
    kit.queue("jobs").enqueue_many(range(600))
    with spawn(_drain, url, 3) as one, spawn(_drain, url, 3) as two, spawn(_drain, url, 3) as three:
        pass
    shares = [one.result(), two.result(), three.result()]
    assert sorted(payload for share in shares for payload in share) == list(range(600))
    assert all(shares)
    assert kit.queue("jobs").size() == 0


@proves("Q2")
def test_claimers_do_not_wait_for_each_others_work(kit: EventKit, connect: Any, url: str) -> None:
    kit.queue("jobs").enqueue_many([1, 2])
    [held] = kit.queue("jobs").claim("slow")
    [other] = connect(url).queue("jobs").claim("quick")
    assert [held.payload, other.payload] == [1, 2]


@requires("concurrent_writers")
@proves("Q2")
def test_claimers_do_not_wait_for_each_others_transactions(kit: EventKit, connect: Any, url: str) -> None:
    kit.queue("jobs").enqueue_many([1, 2])
    with kit.transaction() as tx:
        [held] = kit.queue("jobs").claim("slow", tx=tx)
        [other] = connect(url).queue("jobs").claim("quick")
    assert [held.payload, other.payload] == [1, 2]


@proves("Q2", "W1")
def test_a_waiting_claim_wakes_for_an_enqueue_by_another_process(kit: EventKit, url: str) -> None:
    with spawn(_enqueue_late, url) as process:
        tasks = kit.queue("jobs").claim("worker", 9, wait=60)
        woken = time.time()
        assert [task.payload for task in tasks] == ["late"]
        assert woken - process.result() < SOON


@proves("Q2", "W1")
def test_a_waiting_claim_wakes_for_a_moment(kit: EventKit) -> None:
    """A task falls due and a lease lapses without a commit by anyone."""
    queue = kit.queue("jobs")
    started = time.monotonic()
    queue.enqueue("due", delay=0.4)
    [due] = queue.claim("worker", wait=30)
    assert due.payload == "due"
    queue.extend(due, 0.4)
    [again] = queue.claim("worker", wait=30)
    assert (again.id, again.attempt) == (due.id, 2)
    assert 0.7 < time.monotonic() - started < 2 * SOON


@proves("Q2")
def test_a_waiting_claim_takes_the_first_that_comes(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    claim = asleep(queue.claim, "worker", 9, wait=60)
    queue.enqueue("first")
    assert [task.payload for task in claim.result(SOON)] == ["first"]


@proves("Q2")
def test_a_waiting_claim_gives_up(kit: EventKit) -> None:
    kit.queue("jobs").enqueue(1, delay=60)
    started = time.monotonic()
    assert kit.queue("jobs").claim("worker", wait=0.3) == []
    assert time.monotonic() - started >= 0.3


@proves("Q2", "G1")
def test_a_waiting_claim_ends_when_its_kit_is_closed(connect: Any, url: str) -> None:
    closed = connect(url)
    claim = asleep(closed.queue("jobs").claim, "worker", wait=60)
    closed.close()
    assert claim.result(SOON) == []


@proves("G4", "Q2", "Q15")
def test_a_rolled_back_claim_has_not_happened(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue(1)
    hand_outs: list[Callable[[Any], list[Task[Any]]]] = [
        lambda tx: queue.claim("worker", tx=tx),
        lambda tx: queue.receive(tx=tx),
    ]
    for hand_out in hand_outs:
        with rolled_back(kit) as tx:
            assert [task.payload for task in hand_out(tx)] == [1]
    with kit.transaction() as tx:
        [task] = queue.claim("worker", tx=tx)
        assert task.attempt == 1
    assert queue.claim("worker") == []
    assert queue.release(task)
    with kit.transaction() as tx:
        assert [task.payload for task in queue.receive(tx=tx)] == [1]
    assert queue.size() == 0


@proves("Q2")
def test_wait_and_tx_exclude_each_other(kit: EventKit) -> None:
    with kit.transaction() as tx, pytest.raises(ValueError, match="tx="):
        kit.queue("jobs").claim("worker", wait=1, tx=tx)

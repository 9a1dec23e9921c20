"""Claims: order, batches, and cost."""

import os
import random
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

import pytest

import eventkit
from eventkit import EventKit, NewTask, TaskQueue
from eventkit.testing import advance

from .clauses import both_flavours, proves, requires
from .processes import spawn
from .streaming import kit_on
from .threads import PATIENCE, SOON, asleep, eventually, in_thread, line_up


def _drain(url: str, racers: int) -> list[int]:
    """Claim, work briefly and ack until the queue is empty; return the payloads."""
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
    """Enqueue a task and return the time just after the commit."""
    with eventkit.connect(url) as kit:
        time.sleep(0.1)
        kit.queue("jobs").enqueue("late")
        return time.time()


@proves("Q2")
def test_the_best_come_first(kit: EventKit) -> None:
    """Tasks come by priority from high to low, then earlier due, then lower id: across claims and inside each."""
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
    queue.enqueue("first", delay=5, max_attempts=7)
    queue.enqueue("urgent", delay=20, priority=1)
    advance(kit, 30)
    queue.enqueue("last")
    tasks = [(task.payload, task.max_attempts) for task in queue.claim("worker", 9)]
    assert tasks == [("urgent", 3), ("first", 7), ("second", 3), ("last", 3)]


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
def test_claims_of_many_processes_are_disjoint_and_complete(kit: EventKit, url: str) -> None:
    kit.queue("jobs").enqueue_many(range(600))
    with spawn(_drain, url, 3) as one, spawn(_drain, url, 3) as two, spawn(_drain, url, 3) as three:
        pass
    shares = [one.result(), two.result(), three.result()]
    assert sorted(payload for share in shares for payload in share) == list(range(600))
    assert all(shares)
    assert kit.queue("jobs").size() == 0


@requires("concurrent_writers")
@proves("Q2")
def test_claimers_do_not_wait_for_each_others_transactions(kit: EventKit, connect: Any, url: str) -> None:
    kit.queue("jobs").enqueue_many([1, 2])
    with kit.transaction() as tx:
        [held] = kit.queue("jobs").claim("slow", tx=tx)
        [other] = connect(url).queue("jobs").claim("quick")
    assert [held.payload, other.payload] == [1, 2]


@proves("Q2", "W1")
@both_flavours
def test_a_waiting_claim_wakes_for_an_enqueue_by_another_process(kit: EventKit, url: str) -> None:
    with spawn(_enqueue_late, url) as process:
        tasks = kit.queue("jobs").claim("worker", 9, wait=60)
        woken = time.time()
        assert [task.payload for task in tasks] == ["late"]
        assert woken - process.result() < SOON


@proves("Q2", "W1")
@both_flavours
def test_a_waiting_claim_wakes_for_a_moment(kit: EventKit) -> None:
    """The claim wakes when a task falls due and when a lease lapses, although no process commits."""
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
@both_flavours
def test_a_waiting_claim_gives_up(kit: EventKit) -> None:
    kit.queue("jobs").enqueue(1, delay=60)
    started = time.monotonic()
    assert kit.queue("jobs").claim("worker", wait=0.3) == []
    assert time.monotonic() - started >= 0.3


@proves("Q2", "G1")
@both_flavours
def test_a_waiting_claim_ends_when_its_kit_is_closed(connect: Any, url: str) -> None:
    closed = connect(url)
    claim = asleep(closed.queue("jobs").claim, "worker", wait=60)
    closed.close()
    assert claim.result(SOON) == []


_BESIDE = 20_000
_ROUNDS = 60


def _seconds(queue: TaskQueue[Any]) -> float:
    """Return the least time that a claim and its ack took."""
    queue.enqueue_many(range(_ROUNDS))
    times = []
    for _ in range(_ROUNDS):
        started = perf_counter()
        [task] = queue.claim("worker")
        assert queue.ack(task)
        times.append(perf_counter() - started)
    return sorted(times)[_ROUNDS // 4]


def _idle_seconds(queue: TaskQueue[Any]) -> float:
    """Return the least time that an empty claim took."""
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
    alone = kit.queue("alone")

    _in_portions(queue, "scheduled", delay=3600)
    assert _seconds(queue) < 10 * _seconds(alone)

    _in_portions(queue, "running")
    while queue.claim("another", 5000, lease=3600):
        pass
    assert _seconds(queue) < 10 * _seconds(alone)

    _in_portions(queue, "dead", expires=0)
    assert queue.sweep() == _BESIDE
    assert _seconds(queue) < 10 * _seconds(alone)

    queue.configure(keep_done=3600)
    _in_portions(queue, "done")
    while tasks := queue.claim("another", 5000):
        queue.ack_many(tasks)
    stats = queue.stats()
    assert {stats.scheduled, stats.running, stats.dead, stats.done} == {min(_BESIDE, 10_000)}
    assert _seconds(queue) < 10 * _seconds(alone)


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
    _in_portions(queue, "running", expires=7200)
    while queue.claim("another", 5000, lease=3600):
        pass
    assert _idle_seconds(queue) < 10 * alone


@proves("Q22")
@pytest.mark.parametrize(
    ("flavour", "what"),
    # The loops of queues and kits are one class; outboxes use it in a loop of their own in each flavour.
    [
        ("sync", "queue"),
        ("async", "kit"),
        *(pytest.param(flavour, "outbox", marks=proves("O1")) for flavour in ("sync", "async")),
    ],
    indirect=["flavour"],
)
def test_leases_of_a_batch_are_kept_while_its_first_tasks_run(
    kit: EventKit, connect: Callable[..., Any], url: str, what: str
) -> None:
    """The batch takes longer than a lease lasts, and each task runs once although another worker is idle."""
    name = "outbox:b" if what == "outbox" else "b"
    kit.queue(name).configure(lease=1)
    begun: list[tuple[int, int]] = []

    def work(kit: Any, name: str, worker: int) -> None:
        queue = kit.queue(name)
        for task in kit.work(["b"], batch=6) if what == "kit" else queue.work(batch=6):
            with queue.handling(task):
                begun.append((worker, task.payload))
                time.sleep(0.4)

    def run(kit: Any, name: str, worker: int) -> None:
        def deliver(message: Any) -> None:
            begun.append((worker, message.payload))
            time.sleep(0.4)

        kit.outbox("b", deliver=deliver).run(batch=6)

    if what == "outbox":
        with kit.transaction() as tx:
            for number in range(6):
                kit.outbox("b").add(number, tx=tx)
    else:
        kit.queue(name).enqueue_many(range(6))
    kits = [connect(url), connect(url)]
    workers = [in_thread(run if what == "outbox" else work, kits[0], name, 0)]
    eventually(lambda: begun)
    workers.append(in_thread(run if what == "outbox" else work, kits[1], name, 1))
    eventually(lambda: kit.queue(name).size() == 0)
    for each in kits:
        each.close()
    for worker in workers:
        worker.result(PATIENCE)
    assert begun == [(0, number) for number in range(6)]


def _work(url: str, flavour: str, pipe: Connection) -> None:
    with kit_on(url, flavour) as kit:
        queue = kit.queue("b")
        for task in queue.work(batch=4, lease=1):
            with queue.handling(task):
                pipe.send(task.payload)
                if task.payload == 0:
                    time.sleep(0.3)
                if task.payload == "end":
                    return


@proves("Q22")
@pytest.mark.parametrize("taken", [True, False], ids=["taken", "not taken"])
@both_flavours
def test_what_has_lapsed_is_not_begun(kit: EventKit, url: str, flavour: str, taken: bool) -> None:
    """A process that was stopped meanwhile continues with newly claimed tasks."""
    queue = kit.queue("b")
    queue.enqueue_many(range(4))
    receiving, sending = get_context("spawn").Pipe(duplex=False)
    with spawn(_work, url, flavour, sending) as worker:
        assert receiving.poll(PATIENCE)
        assert receiving.recv() == 0
        os.kill(worker.pid, signal.SIGSTOP)
        try:
            time.sleep(1.2)
            if taken:
                tasks = queue.claim("other", 4, wait=PATIENCE)
                assert sorted(task.payload for task in tasks) == [0, 1, 2, 3]
                assert len(queue.ack_many(tasks)) == 4
        finally:
            os.kill(worker.pid, signal.SIGCONT)
        queue.enqueue("end", priority=-1)
        received = []
        while "end" not in received:
            assert receiving.poll(PATIENCE)
            received.append(receiving.recv())
        if taken:
            assert received == ["end"]
    receiving.close()
    sending.close()

"""Bounds that hold across processes: Q13."""

import time
from typing import Any

import pytest

import eventkit
from eventkit import EventKit, NewTask, QueueFull
from eventkit.testing import advance

from .clauses import both_flavours, proves
from .processes import spawn
from .threads import PATIENCE, SOON, asleep, line_up, rolled_back


def _fill(url: str, racers: int, total: int) -> int:
    """Enqueue in every way until the queue is full; return how many tasks were accepted."""
    accepted = 0
    with eventkit.connect(url) as kit:
        queue = kit.queue("jobs")
        line_up(kit, racers)
        for number in range(total):
            try:
                if number % 3 == 0:
                    accepted += len(queue.enqueue_many([number, number]))
                elif number % 3 == 1:
                    accepted += queue.enqueue(number, delay=60).created
                else:
                    accepted += queue.enqueue(number).created
            except QueueFull:
                continue
    return accepted


def _pass_through(url: str, racers: int, total: int) -> int:
    """Enqueue *total* tasks, waiting for room; return how many."""
    with eventkit.connect(url) as kit:
        line_up(kit, racers)
        for number in range(total):
            assert kit.queue("jobs").enqueue(number, wait=60).created
    return total


def _ack_late(url: str) -> float:
    """Finish a task and return the time just after the commit."""
    with eventkit.connect(url) as kit:
        time.sleep(0.1)
        [task] = kit.queue("jobs").claim("worker")
        kit.queue("jobs").ack(task)
        return time.time()


def _hold(url: str) -> None:
    """Claim as many tasks as the queue allows, and block."""
    with eventkit.connect(url) as kit:
        assert len(kit.queue("jobs").claim("worker", 9, lease=1.5)) == 2
        kit.queue("held").enqueue(None)
        time.sleep(PATIENCE)


def _run(url: str, racers: int) -> tuple[int, int]:
    """Run tasks until there are none; return how many, and the most that were running at once."""
    runs = most = 0
    with eventkit.connect(url) as kit:
        queue = kit.queue("jobs")
        line_up(kit, racers)
        while queue.size():
            for task in queue.claim("worker", 5, wait=0.2):
                most = max(most, queue.stats().running)
                runs += 1
                assert queue.ack(task)
    return runs, most


@proves("Q13")
def test_a_full_queue_refuses(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.configure(max_size=3)
    queue.enqueue("running")
    queue.claim("worker")
    queue.enqueue("scheduled", delay=60)
    first = queue.enqueue("ready", key="k")
    for call in (
        lambda: queue.enqueue(4),
        lambda: queue.enqueue(4, delay=5),
        lambda: queue.enqueue(4, key="another"),
        lambda: queue.enqueue_many([4]),
        lambda: queue.enqueue_many([NewTask(4, priority=1)]),
    ):
        with pytest.raises(QueueFull, match="max_size"):
            call()
    assert queue.size() == 3
    # The call writes nothing, so it needs no room.
    assert queue.enqueue("again", key="k") == (first.id, False)
    assert queue.enqueue_many([NewTask("again", key="k")]) == [(first.id, False)]
    kit.queue("others").enqueue(1)


@proves("Q13")
@both_flavours
def test_an_enqueue_can_wait_for_room(kit: EventKit, url: str) -> None:
    queue = kit.queue("jobs")
    queue.configure(max_size=1)
    assert queue.enqueue("first", wait=0).created
    with spawn(_ack_late, url) as process:
        assert queue.enqueue("second", wait=60).created
        woken = time.time()
        assert woken - process.result() < SOON
    enqueue = asleep(queue.enqueue, "third", key="k", wait=60)
    queue.receive()
    assert enqueue.result(SOON).created


@proves("Q13")
@both_flavours
def test_a_batch_can_wait_for_room(kit: EventKit) -> None:
    """It is accepted when all of it fits, and not before; one that never fits is refused at once."""
    queue = kit.queue("jobs")
    queue.configure(max_size=3)
    queue.enqueue_many(["first", "second", "third"], wait=0)
    batch = asleep(queue.enqueue_many, ["a", NewTask("b", headers={"x": "y"})], wait=60)
    queue.receive()
    assert queue.size() == 2
    queue.receive()
    assert [enqueued.created for enqueued in batch.result(SOON)] == [True, True]
    assert [task.payload for task in queue.tasks()] == ["third", "a", "b"]
    with pytest.raises(QueueFull, match="never fit"):
        queue.enqueue_many(range(4), wait=3600)
    started = time.monotonic()
    with pytest.raises(QueueFull):
        queue.enqueue_many([1, 2], wait=0.3)
    assert time.monotonic() - started >= 0.3
    with kit.transaction() as tx, pytest.raises(ValueError, match="tx="):
        queue.enqueue_many([1], tx=tx, wait=1)


@proves("Q13")
@both_flavours
def test_an_enqueue_that_waited_in_vain_is_refused(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.configure(max_size=1)
    queue.enqueue("first")
    started = time.monotonic()
    with pytest.raises(QueueFull):
        queue.enqueue("second", wait=0.3)
    assert time.monotonic() - started >= 0.3
    assert queue.size() == 1


@proves("Q13", "G4")
def test_an_enqueue_holds_the_bound_until_its_transaction_ends(kit: EventKit, connect: Any, url: str) -> None:
    queue, other = kit.queue("jobs"), connect(url).queue("jobs")
    queue.configure(max_size=2)
    with rolled_back(kit) as tx:
        queue.enqueue_many([1, 2], tx=tx)
        with pytest.raises(QueueFull):
            queue.enqueue(3, tx=tx)
        first = asleep(other.enqueue, "after the rollback")
        assert not first.done()
    assert first.result(PATIENCE).created
    with kit.transaction() as tx:
        queue.enqueue(1, tx=tx)
        second = asleep(other.enqueue, "after the commit")
        assert not second.done()
    with pytest.raises(QueueFull):
        second.result(PATIENCE)
    assert [info.payload for info in queue.tasks()] == ["after the rollback", 1]


@proves("Q13")
def test_no_race_exceeds_max_size(kit: EventKit, url: str) -> None:
    queue = kit.queue("jobs")
    queue.configure(max_size=20)
    with spawn(_fill, url, 3, 40) as one, spawn(_fill, url, 3, 40) as two, spawn(_fill, url, 3, 40) as three:
        pass
    assert one.result() + two.result() + three.result() == queue.size() == 20


@proves("Q13")
@both_flavours
def test_producers_that_wait_for_room_never_exceed_max_size(kit: EventKit, url: str) -> None:
    queue = kit.queue("jobs")
    queue.configure(max_size=3)
    sizes: set[int] = set()
    with spawn(_pass_through, url, 2, 60) as one, spawn(_pass_through, url, 2, 60) as two:
        for _ in range(120):
            [task] = queue.claim("worker", wait=30)
            sizes.add(queue.size())
            assert queue.ack(task)
        assert one.result() + two.result() == 120
    assert max(sizes) <= 3
    assert queue.size() == 0


@proves("Q13")
def test_max_running_bounds_all_workers_together(kit: EventKit, connect: Any, url: str) -> None:
    queue, other = kit.queue("jobs"), connect(url).queue("jobs")
    queue.configure(max_running=3)
    queue.enqueue_many(range(9))
    [first] = queue.claim("worker")
    assert len(other.claim("other", 9)) == 2
    assert queue.claim("worker") == other.claim("other", 9) == other.receive(9) == []
    assert queue.retry(first, delay=60)
    [second] = other.claim("other", 9)
    assert queue.claim("worker") == []
    assert other.fail(second, "broken")
    [third] = queue.claim("worker", 9, lease=10)
    advance(kit, 11)
    # A lapsed lease does not count.
    assert [task.id for task in other.claim("other", 9)] == [third.id]


@proves("Q13", "Q4")
def test_the_places_of_a_killed_worker_come_back(kit: EventKit, url: str) -> None:
    """They are free when its leases lapse, also for a waiter that no commit wakes."""
    queue = kit.queue("jobs")
    queue.configure(max_running=2)
    queue.enqueue_many(["first", "second", "third"])
    with spawn(_hold, url) as worker:
        assert kit.queue("held").claim("w", wait=PATIENCE)
        assert queue.claim("other", 9) == []
        worker.kill()
    claimed = queue.claim("other", 9, wait=PATIENCE)
    assert len(claimed) == 2
    assert queue.claim("other", 9) == []


@proves("Q13", "W2")
def test_a_place_that_gets_free_wakes_a_waiting_claim(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.configure(max_running=1)
    queue.enqueue_many(["first", "second"])
    [first] = queue.claim("worker")
    claim = asleep(queue.claim, "worker", wait=60)
    queue.ack(first)
    [second] = claim.result(SOON)
    assert second.payload == "second"


@proves("Q13")
def test_max_running_holds_across_processes(kit: EventKit, url: str) -> None:
    queue = kit.queue("jobs")
    queue.configure(max_running=2)
    queue.enqueue_many(range(60))
    with spawn(_run, url, 3) as one, spawn(_run, url, 3) as two, spawn(_run, url, 3) as three:
        pass
    answers = [one.result(), two.result(), three.result()]
    assert sum(runs for runs, _ in answers) == 60
    assert max(most for _, most in answers) <= 2

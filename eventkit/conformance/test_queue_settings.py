"""Settings, rates and bounds of queues (Q12, Q13)."""

import time
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import pytest

import eventkit
from eventkit import EventKit, NewTask, QueueFull
from eventkit.testing import advance

from .clauses import both_flavours, proves
from .processes import spawn
from .threads import PATIENCE, SOON, asleep, line_up, rolled_back


def _configure(url: str, pause: bool, settings: dict[str, Any]) -> None:
    with eventkit.connect(url) as kit:
        kit.queue("jobs").configure(**settings)
        if pause:
            kit.queue("jobs").pause()


def _max_attempts(kit: EventKit) -> int:
    queue = kit.queue("jobs")
    info = queue.get(queue.enqueue(None).id)
    assert info is not None
    return info.max_attempts


@proves("Q12")
def test_fewer_attempts_apply_to_tasks_that_wait_for_another(kit: EventKit) -> None:
    """Tasks that have used up the attempts are dead at once; others, and those with a limit of their own, run again."""
    queue = kit.queue("jobs")
    queue.configure(dead_letter_to="dead", max_attempts=5)
    for payload in ("later", "now", "once", "fresh"):
        queue.enqueue(payload)
    queue.enqueue("own", max_attempts=5)
    for payload, runs in (("later", 2), ("now", 2), ("once", 1), ("own", 2)):
        for run in range(runs):
            last = payload == "later" and run == runs - 1
            for task in queue.claim("w", 9):
                if task.payload == payload:
                    assert queue.retry(task, delay=3600 if last else 0, error=f"{payload} {run}")
                else:
                    assert queue.release(task)
    queue.configure(max_attempts=4)
    assert queue.dead() == []
    queue.configure(max_attempts=2)
    dead = sorted(queue.dead(), key=attrgetter("id"))
    assert [(task.payload, task.reason, task.error, task.attempt) for task in dead] == [
        ("later", "exhausted", "later 1", 2),
        ("now", "exhausted", "now 1", 2),
    ]
    assert sorted(task.payload for task in kit.queue("dead").claim("w", 9)) == ["later", "now"]
    left = sorted((task.payload, task.attempt) for task in queue.claim("w", 9))
    assert left == [("fresh", 1), ("once", 2), ("own", 3)]


@proves("Q12")
def test_settings_apply_at_once_to_other_processes(kit: EventKit, url: str) -> None:
    queue = kit.queue("jobs")
    assert _max_attempts(kit) == 3
    with spawn(_configure, url, True, {"max_attempts": 8, "max_size": 2}):
        pass
    assert _max_attempts(kit) == 8
    with pytest.raises(eventkit.QueueFull):
        queue.enqueue(1)
    assert queue.claim("worker") == []
    assert queue.stats().paused is True


@proves("Q12")
def test_settings_are_checked_before_anything_is_stored(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    bad: list[dict[str, Any]] = [
        {"max_attempts": 0},
        {"lease": 0},
        {"lease": "long"},
        {"max_size": 0},
        {"max_size": 1.5},
        {"rate": 0},
        {"rate": -1},
        {"rate": float("inf")},
        {"burst": 0.5},
        {"max_running": 0},
        {"keep_done": -1},
        {"key_ttl": -1},
        {"max_attempts": 5, "max_running": 0},
    ]
    for settings in bad:
        with pytest.raises((ValueError, TypeError)):
            queue.configure(**settings)
    assert _max_attempts(kit) == 3


@proves("Q12")
def test_a_paused_queue_accepts_and_does_not_hand_out(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue(1)
    [held] = queue.claim("worker")
    queue.pause()
    queue.enqueue(2)
    queue.enqueue_many([3])
    hand_outs: list[Callable[[], Any]] = [
        lambda: queue.claim("worker", 9),
        lambda: queue.claim("worker", wait=0.1),
        lambda: queue.receive(9),
    ]
    assert [hand_out() for hand_out in hand_outs] == [[], [], []]
    assert queue.stats().paused is True
    # Tasks claimed before can be finished.
    assert queue.extend(held, 60) is True
    assert queue.ack(held) is True
    queue.pause()
    queue.resume()
    assert queue.stats().paused is False
    assert [task.payload for task in queue.claim("worker", 9)] == [2, 3]


@proves("Q12", "W2")
@both_flavours
def test_resume_wakes_waiting_workers(kit: EventKit, connect: Any, url: str) -> None:
    queue = kit.queue("jobs")
    queue.pause()
    queue.enqueue_many([1, 2])
    with queue.work() as tasks:
        task = asleep(tasks.__next__)
        claim = asleep(queue.claim, "worker", wait=60)
        connect(url).queue("jobs").resume()
        payloads = [claim.result(SOON)[0].payload, task.result(SOON).payload]
        assert sorted(payloads) == [1, 2]


@proves("Q12", "W2")
def test_configure_wakes_waiting_workers(kit: EventKit, connect: Any, url: str) -> None:
    queue, other = kit.queue("jobs"), connect(url).queue("jobs")
    queue.configure(max_running=1)
    queue.enqueue_many([1, 2])
    queue.claim("worker")
    claim = asleep(queue.claim, "worker", wait=60)
    other.configure(max_running=2)
    assert [task.payload for task in claim.result(SOON)] == [2]
    queue.configure(max_size=2)
    enqueue = asleep(queue.enqueue, 3, wait=60)
    other.configure(max_size=3)
    assert enqueue.result(SOON).created


def _take(url: str, racers: int, seconds: float) -> list[float]:
    """Take tasks at the allowed rate for a while; return the time of each."""
    taken: list[float] = []
    with eventkit.connect(url) as kit:
        queue = kit.queue("jobs")
        line_up(kit, racers)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            taken += [time.time() for _ in queue.receive(3)]
            time.sleep(0.002)
    return taken


@proves("Q13")
def test_a_bucket_holds_the_burst_and_fills_by_the_rate(kit: EventKit, connect: Any, url: str) -> None:
    queue, other = kit.queue("jobs"), connect(url).queue("jobs")
    queue.configure(rate=0.1, burst=3)
    queue.enqueue_many(range(20))
    assert [len(queue.claim("worker")), len(other.receive(9)), len(other.claim("other", 9))] == [1, 2, 0]
    advance(kit, 19)
    assert [len(other.claim("other", 9)), len(queue.claim("worker"))] == [1, 0]
    advance(kit, 19)
    assert [len(queue.claim("worker", 9)), len(other.receive(9))] == [2, 0]
    advance(kit, 3600)
    assert [len(queue.claim("worker", 9)), len(queue.claim("worker", 9))] == [3, 0]


@proves("Q13")
def test_without_a_burst_the_bucket_holds_a_second(kit: EventKit) -> None:
    for rate, depth in ((0.001, 1), (5, 5)):
        queue = kit.queue(f"{rate}")
        queue.configure(rate=rate)
        queue.enqueue_many(range(20))
        assert len(queue.claim("worker", 20)) == depth


@proves("Q13", "Q2")
@both_flavours
def test_a_waiting_claim_wakes_for_the_next_token(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.configure(rate=4, burst=1)
    queue.enqueue_many(range(4))
    started = time.monotonic()
    taken = [task.payload for _ in range(4) for task in queue.claim("worker", 9, wait=30)]
    assert taken == [0, 1, 2, 3]
    assert 0.7 < time.monotonic() - started < 2 * SOON


@proves("Q13")
def test_a_rate_holds_across_processes(kit: EventKit, url: str) -> None:
    queue = kit.queue("jobs")
    queue.enqueue_many(range(500))
    queue.configure(rate=30, burst=5)
    with spawn(_take, url, 3, 0.8) as one, spawn(_take, url, 3, 0.8) as two, spawn(_take, url, 3, 0.8) as three:
        pass
    taken = sorted(one.result() + two.result() + three.result())
    assert len(taken) > 10
    # The time is taken shortly after the token, so a few more tasks may seem to fit.
    for start in range(len(taken)):
        for end in range(start + 1, len(taken)):
            assert end - start + 1 <= 5 + 30 * (taken[end] - taken[start] + 0.5) + 1


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


def _run(url: str, racers: int, *names: str) -> tuple[int, int]:
    """Run the tasks of queues until there are none; return how many, and the most that were running at once."""
    runs = most = 0
    with eventkit.connect(url) as kit:
        queues = [kit.queue(name) for name in names]
        line_up(kit, racers)
        while any(queue.size() for queue in queues):
            for queue in queues:
                for task in queue.claim("worker", 5, wait=0.1):
                    most = max(most, queue.stats().running if len(names) == 1 else kit.cluster_limits()[0].running)
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
def test_a_large_payload_is_refused(kit: EventKit, url: str) -> None:
    """`max_bytes` counts the payload as JSON in UTF-8, however it is enqueued."""
    queue = kit.queue("jobs")
    queue.configure(max_bytes=6)
    assert queue.enqueue("éé").created
    claimed = kit.queue("others")
    claimed.enqueue(1)
    [task] = claimed.claim("worker")
    calls: list[Callable[[Any], object]] = [
        queue.enqueue,
        lambda large: queue.enqueue(large, key="k"),
        lambda large: queue.enqueue_many([1, large]),
        lambda large: queue.enqueue_many([NewTask(large, delay=5)]),
        lambda large: claimed.ack(task, then=[queue.new(1), queue.new(large)]),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="a payload has 7 bytes as JSON, more than the max_bytes"):
            call("abcde")
    assert [info.payload for info in queue.tasks()] == ["éé"]
    assert claimed.size() == 1


@proves("Q13")
@both_flavours
def test_producers_have_a_rate(kit: EventKit) -> None:
    """A refused call says when to try again; only tasks that are created and committed use tokens."""
    queue = kit.queue("jobs")
    queue.configure(enqueue_rate=0.01, enqueue_burst=2)
    with rolled_back(kit) as tx:
        queue.enqueue_many([1, 2], tx=tx)
    first = queue.enqueue(1, key="k")
    assert queue.enqueue(1, key="k") == (first.id, False)
    assert queue.enqueue(2).created
    calls: list[Callable[[], object]] = [
        lambda: queue.enqueue(3),
        lambda: queue.enqueue(3, key="another"),
        lambda: queue.enqueue_many([3]),
        lambda: queue.enqueue(3, wait=0.1),
    ]
    for call in calls:
        with pytest.raises(QueueFull, match=r"enqueue_rate: try again in .* s") as caught:
            call()
        assert 90 < (caught.value.retry_after or 0) <= 100
    with pytest.raises(QueueFull, match="whose enqueue_burst is 2"):
        queue.enqueue_many([1, 2, 3], wait=60)
    advance(kit, 100)
    assert queue.enqueue(3).created
    assert queue.size() == 3
    advance(kit, -10_000)
    queue.enqueue_many(["after a clock that was ahead"] * 2)
    queue.configure(enqueue_rate=10)
    queue.enqueue_many([4, 5])
    began = time.monotonic()
    for number in range(3):
        assert queue.enqueue(number, wait=60).created
    assert 0.2 < time.monotonic() - began < SOON


@proves("Q13")
@pytest.mark.parametrize("limits", [{"max_size": 20}, {"enqueue_rate": 1e-6, "enqueue_burst": 20}], ids=str)
def test_no_race_exceeds_a_limit_for_producers(kit: EventKit, url: str, limits: dict[str, Any]) -> None:
    queue = kit.queue("jobs")
    queue.configure(**limits)
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


@proves("Q23", "W2")
def test_a_limit_over_several_queues(kit: EventKit) -> None:
    """It counts the running tasks of all of them, and wakes a claim when one ends, in any of them."""
    one, two, free = kit.queue("one"), kit.queue("two"), kit.queue("free")
    kit.cluster_limit("gpu", 2, queues=["two", "one"])
    kit.cluster_limit("narrow", 1, queues=["two"])
    for queue in (one, two, free):
        queue.enqueue_many([queue.name] * 5)
    [task] = two.claim("worker", 3)
    [other] = one.claim("worker", 3, lease=3600)
    assert (one.claim("worker"), two.claim("worker"), len(free.claim("worker", 5))) == ([], [], 5)
    assert [(limit.name, limit.max_running, limit.queues, limit.running) for limit in kit.cluster_limits()] == [
        ("gpu", 2, ["one", "two"], 2),
        ("narrow", 1, ["two"], 1),
    ]
    for end in (two.ack, lambda task: two.release(task)):
        waiting = asleep(one.claim, "worker", wait=60)
        assert not waiting.done()
        assert end(task)
        [claimed] = waiting.result(SOON)
        assert one.ack(claimed)
        [task] = two.claim("worker", 3)
    waiting = asleep(one.claim, "worker", 3, wait=60)
    kit.cluster_limit("gpu", 3, queues=["two", "one"])
    assert len(waiting.result(SOON)) == 1
    kit.cluster_limit("gpu", None)
    assert [limit.name for limit in kit.cluster_limits()] == ["narrow"]
    one.enqueue_many([1, 2])
    assert len(one.claim("worker", 9)) == 3
    assert one.ack(other)
    with pytest.raises(ValueError, match="a limit has a number and queues"):
        kit.cluster_limit("gpu", None, queues=["one"])
    with pytest.raises(ValueError, match="a limit has a number and queues"):
        kit.cluster_limit("gpu", 3)


@proves("Q23", "W2")
def test_a_lease_that_ends_makes_room_in_the_other_queue(kit: EventKit) -> None:
    kit.cluster_limit("gpu", 1, queues=["one", "two"])
    kit.queue("one").enqueue(1)
    kit.queue("two").enqueue(2)
    assert kit.queue("one").claim("worker", lease=0.5)
    assert len(kit.queue("two").claim("worker", wait=60)) == 1


@proves("Q13")
@pytest.mark.parametrize("names", [("jobs",), pytest.param(("one", "two"), marks=proves("Q23"))], ids=str)
def test_limits_of_running_tasks_hold_across_processes(kit: EventKit, url: str, names: tuple[str, ...]) -> None:
    if len(names) == 1:
        kit.queue("jobs").configure(max_running=2)
    else:
        kit.cluster_limit("gpu", 2, queues=names)
    for name in names:
        kit.queue(name).enqueue_many(range(60 // len(names)))
    with spawn(_run, url, 3, *names) as one, spawn(_run, url, 3, *names) as two, spawn(_run, url, 3, *names) as three:
        pass
    answers = [one.result(), two.result(), three.result()]
    assert sum(runs for runs, _ in answers) == 60
    assert max(most for _, most in answers) <= 2

"""Settings and rates of queues."""

import time
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import pytest

import eventkit
from eventkit import EventKit
from eventkit.testing import advance

from .clauses import both_flavours, proves
from .processes import spawn
from .threads import SOON, asleep, line_up


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
def test_settings_apply_at_once_to_other_kits(kit: EventKit, connect: Any, url: str) -> None:
    """They apply to existing handles, tasks and iterators too."""
    queue, other = kit.queue("jobs"), connect(url).queue("jobs")
    other.enqueue_many([1, 2])
    [before] = other.claim("worker")
    queue.configure(max_attempts=1, lease=77)
    [task] = other.claim("worker")
    assert task.max_attempts == 1
    info = queue.get(task.id)
    assert info is not None
    assert info.claimed_ms is not None
    assert task.lease_expires_ms - info.claimed_ms == 77_000
    assert other.retry(before) is True
    assert [dead.id for dead in queue.dead()] == [before.id]


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

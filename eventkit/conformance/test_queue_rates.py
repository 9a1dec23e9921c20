"""How fast a queue hands out, however many workers there are: the rate and burst of Q13."""

import time
from typing import Any

import eventkit
from eventkit import EventKit
from eventkit.testing import advance

from .clauses import proves
from .processes import spawn
from .races import SOON, line_up


def _take(url: str, racers: int, seconds: float) -> list[float]:
    """Take what the rate allows for a while; the moment of each task."""
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


@proves("Q13")
def test_an_empty_queue_spends_no_tokens(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.configure(rate=0.001, burst=3)
    for _ in range(5):
        assert queue.claim("worker", 9) == queue.receive(9) == queue.claim("worker", wait=0.01) == []
    queue.enqueue(1)
    assert len(queue.claim("worker", 9)) == 1
    assert queue.claim("worker", 9) == []
    queue.enqueue_many([2, 3, 4])
    assert len(queue.claim("worker", 9)) == 2
    assert queue.claim("worker", 9) == []


@proves("Q13", "Q2")
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
    # The moment of a task is taken down a little after its token was; that much more may seem to fit.
    for start in range(len(taken)):
        for end in range(start + 1, len(taken)):
            assert end - start + 1 <= 5 + 30 * (taken[end] - taken[start] + 0.5) + 1

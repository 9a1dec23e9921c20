"""Putting a database in order: H1."""

from typing import Any

import pytest

from eventkit import EventKit, Maintained, NewTask
from eventkit.testing import advance

from .clauses import proves

_NOTHING = Maintained(moved=0, done=0, results=0, limits=0, keys=0)


def _leave_traces(kit: EventKit, number: int) -> None:
    """As many as *number* of everything that will have to be cleared, in two queues."""
    for name in ("first", "second"):
        queue: Any = kit.queue(name)
        queue.configure(keep_done=100, key_ttl=100)
        queue.enqueue_many(NewTask(n, key=f"key {n}") for n in range(number))
        queue.ack_many(queue.claim("worker", limit=number))
        queue.enqueue_many(NewTask(n, delay=50) for n in range(number))
    for n in range(number):
        kit.results.save(f"result {n}", n, ttl=100)
        kit.rate_limit(f"window {n}", 1, per=100)
        kit.token_bucket(f"bucket {n}", rate=0.01)


@proves("H1")
def test_maintaining_clears_what_is_over_and_says_how_much(kit: EventKit) -> None:
    _leave_traces(kit, 3)
    advance(kit, 201)
    assert kit.maintain() == Maintained(moved=6, done=6, results=3, limits=6, keys=6)
    assert kit.maintain() == _NOTHING
    assert (kit.queue("first").stats().ready, kit.queue("first").stats().done) == (3, 0)
    assert kit.queue("first").enqueue("again", key="key 0").created


@proves("H1")
def test_maintaining_leaves_what_still_counts(kit: EventKit) -> None:
    """Nothing that anybody can still see, or is still held by, goes."""
    _leave_traces(kit, 1)
    kit.rate_limit("hour", 1, per=10**9)
    assert kit.maintain() == _NOTHING
    queue = kit.queue("first")
    assert (queue.stats().scheduled, queue.stats().done, kit.results.get("result 0")) == (1, 1, 0)
    assert not kit.token_bucket("bucket 0", rate=0.01)
    assert not kit.rate_limit("hour", 1, per=10**9)
    assert not queue.enqueue("again", key="key 0").created


@proves("H1")
def test_expired_tasks_die_where_nobody_claims(kit: EventKit) -> None:
    queue: Any = kit.queue("jobs")
    queue.configure(dead_letter_to="graveyard")
    queue.enqueue("late", expires=10)
    advance(kit, 11)
    assert kit.maintain().moved == 1
    assert [task.reason for task in queue.dead()] == ["expired"]
    assert kit.queue("graveyard").size() == 1


@proves("H1")
@pytest.mark.parametrize("number", [1_000, 2_001])
def test_there_may_be_more_than_goes_into_one_transaction(kit: EventKit, number: int) -> None:
    queue: Any = kit.queue("jobs")
    queue.enqueue_many(NewTask(n, delay=50) for n in range(number))
    advance(kit, 51)
    assert kit.maintain().moved == number
    assert kit.maintain() == _NOTHING

"""Putting a database in order: H1 and H2."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eventkit import Closed, EventKit, Maintained, NewTask
from eventkit.testing import advance

from .clauses import proves
from .processes import PATIENCE, background
from .threads import eventually
from .urls import with_options


def _found(**found: int) -> Maintained:
    return Maintained(**dict.fromkeys(Maintained.__struct_fields__, 0) | found)


_NOTHING = _found()


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
    assert kit.maintain() == _found(moved=6, done=6, results=3, limits=6, keys=6)
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


def _leave_one_done(kit: EventKit) -> None:
    kit.queue("jobs").enqueue("done")
    assert kit.queue("jobs").ack_many(kit.queue("jobs").claim("worker"))
    advance(kit, 2)


@proves("H2", "G1")
def test_one_of_many_keeps_house_once_in_a_while(kit: EventKit, connect: Callable[..., Any], url: str) -> None:
    """Whoever is first does it at once, nobody for as long as was said, and then somebody again; closing ends it."""
    queue: Any = kit.queue("jobs")
    queue.configure(keep_done=1)
    kits = [connect(with_options(url, fallback_poll=86_400)) for _ in range(3)]
    _leave_one_done(kit)
    running = [background(lambda kit=kit: kit.run_maintenance(every=3600)) for kit in kits]
    eventually(lambda: queue.stats().done == 0)
    _leave_one_done(kit)
    time.sleep(0.5)
    assert queue.stats().done == 1
    advance(kit, 3600)
    eventually(lambda: queue.stats().done == 0)
    assert not any(one.done() for one in running)
    for one in kits:
        one.close()
    assert [one.result(PATIENCE) for one in running] == [None, None, None]
    with pytest.raises(Closed):
        kits[0].run_maintenance()


@proves("H2")
def test_maintenance_has_an_interval(kit: EventKit) -> None:
    with pytest.raises(ValueError, match="every"):
        kit.run_maintenance(every=0)


@proves("H1", "K6", "Q4", "K2")
def test_a_clock_that_was_ahead_holds_nothing_up(kit: Any) -> None:
    """Leases, windows, buckets and schedules go on from now, and not from the day that the clock was in."""
    tasks, slow = kit.queue("tasks"), kit.queue("slow")
    slow.configure(rate=20, burst=1)
    tasks.enqueue("lapses")
    slow.enqueue_many([1, 2])
    assert len(tasks.claim("worker", lease=0.3)) == len(slow.claim("worker", 2)) == 1
    assert kit.rate_limit("window", 1, 0.3)
    assert kit.token_bucket("bucket", 20, 1)
    for name, when in [("often", "@every 2s"), ("yearly", "0 0 1 1 *")]:
        kit.schedules.add(name, when, "fires")
    yearly = kit.schedules.get("yearly").next_at
    advance(kit, -86_400)
    assert kit.maintain().moved == 7
    assert kit.schedules.get("yearly").next_at == yearly
    assert kit.schedules.get("often").next_at <= datetime.now(UTC) + timedelta(seconds=2.5)
    [again] = tasks.claim("worker", wait=PATIENCE)
    assert (again.payload, again.attempt, again.lapsed) == ("lapses", 2, True)
    assert [task.payload for task in slow.claim("worker", wait=PATIENCE)] == [2]
    tasks.enqueue("later")
    assert [task.payload for task in tasks.claim("worker")] == ["later"]
    assert kit.rate_limit("window", 1, 0.3)
    assert kit.token_bucket("bucket", 20, 1)
    assert kit.maintain().moved == 0

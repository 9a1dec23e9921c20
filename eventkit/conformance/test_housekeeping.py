"""Housekeeping of a database: H1 and H2."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eventkit import Closed, EventKit, NewTask
from eventkit.testing import advance
from eventkit.values import Maintained

from .clauses import proves
from .processes import PATIENCE, background
from .threads import eventually
from .urls import with_options


def _found(**found: int) -> Maintained:
    return Maintained(**dict.fromkeys(Maintained.__struct_fields__, 0) | found)


_NOTHING = _found()


def _leave_traces(kit: EventKit, number: int) -> None:
    """Leave *number* of each kind of row to clear, in two queues."""
    for name in ("first", "second"):
        queue: Any = kit.queue(name)
        queue.configure(keep_done=100, key_ttl=100)
        queue.enqueue_many(NewTask(n, key=f"key {n}") for n in range(number))
        queue.ack_many(queue.claim("worker", limit=number))
        queue.enqueue_many(NewTask(n, delay=50) for n in range(number))
    for n in range(number):
        kit.results.save(f"result {n}", n, ttl=100)
        kit.limit(f"window {n}", count=1, per=100).acquire()
        kit.limit(f"bucket {n}", rate=0.01).acquire()


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
    """Rows that are still visible or still held remain."""
    _leave_traces(kit, 1)
    kit.limit("hour", count=1, per=10**9).acquire()
    assert kit.maintain() == _NOTHING
    queue = kit.queue("first")
    assert (queue.stats().scheduled, queue.stats().done, kit.results.get("result 0")) == (1, 1, 0)
    assert not kit.limit("bucket 0", rate=0.01).acquire()
    assert not kit.limit("hour", count=1, per=10**9).acquire()
    assert not queue.enqueue("again", key="key 0").created


@proves("H1")
def test_expired_tasks_die_in_a_queue_without_claims(kit: EventKit) -> None:
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
    """The first process does it at once, and one process after each interval; closing ends the loop."""
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


AHEAD = -86_400
"""Seconds to pass so that all stored moments come from a clock that was a day ahead."""


@proves("H1", "Q4")
def test_leases_of_a_clock_that_was_ahead_end(kit: Any) -> None:
    """Housekeeping ends them at most their length from now; tasks enqueued meanwhile are claimed without it."""
    tasks = kit.queue("tasks")
    tasks.enqueue("lapses")
    assert len(tasks.claim("worker", lease=0.3)) == 1
    advance(kit, AHEAD)
    tasks.enqueue("later")
    tasks.enqueue_many([NewTask("soon", delay=0.1)])
    assert [task.payload for task in tasks.claim("worker")] == ["later"]
    assert [task.payload for task in tasks.claim("worker", wait=PATIENCE)] == ["soon"]
    assert kit.maintain().moved == 1
    [again] = tasks.claim("worker", wait=PATIENCE)
    assert (again.payload, again.attempt, again.lapsed) == ("lapses", 2, True)
    assert kit.maintain().moved == 0


@proves("H2", "K1")
def test_housekeeping_goes_on_after_a_clock_was_ahead(kit: Any) -> None:
    """The lock that lets one of several processes do it is bounded as well."""
    tasks = kit.queue("tasks")
    tasks.enqueue("lapses")
    [task] = tasks.claim("worker", lease=0.3)
    running = background(lambda: kit.run_maintenance(every=1))
    eventually(lambda: not kit.lock("eventkit:maintenance", 1).acquire())
    advance(kit, AHEAD)
    [again] = tasks.claim("worker", wait=PATIENCE)
    assert (again.id, again.lapsed) == (task.id, True)
    kit.close()
    running.result(PATIENCE)


@proves("K2", "Q13")
def test_limits_of_a_clock_that_was_ahead_go_on(kit: Any) -> None:
    """Windows, buckets and the rates of queues continue at once, and count from now on."""
    slow = kit.queue("slow")
    slow.configure(rate=20, burst=1)
    slow.enqueue_many([1, 2, 3])
    assert [task.payload for task in slow.claim("worker", 3)] == [1]
    assert [kit.limit("window", count=2, per=3600).acquire() for _ in range(3)] == [True, True, False]
    assert [kit.limit("bucket", rate=0.001, burst=2).acquire() for _ in range(3)] == [True, True, False]
    advance(kit, AHEAD)
    assert [task.payload for task in slow.claim("worker", wait=PATIENCE)] == [2]
    assert [kit.limit("window", count=2, per=3600).acquire() for _ in range(3)] == [True, True, False]
    assert [kit.limit("bucket", rate=0.001, burst=2).acquire() for _ in range(3)] == [True, False, False]
    assert {limit.name: limit.until <= datetime.now(UTC) + timedelta(hours=2) for limit in kit.limits()} == {
        "bucket": True,
        "window": True,
    }


@proves("K6")
def test_schedules_of_a_clock_that_was_ahead_go_on(kit: Any) -> None:
    """A tick moves the next fire back to the first one after now; correct or requested fires stay."""
    for name, when in [("often", "@every 2s"), ("hourly", "@hourly"), ("yearly", "0 0 1 1 *"), ("asleep", "@hourly")]:
        kit.schedules.add(name, when, "fires", paused=name == "asleep")
    hourly, yearly = (kit.schedules.get(name).next_at for name in ("hourly", "yearly"))
    kit.schedules.tick(hourly)
    advanced = kit.schedules.get("hourly").next_at
    assert advanced > hourly
    assert kit.schedules.tick() == []
    assert kit.schedules.get("hourly").next_at == advanced, "a tick at a later moment is no clock that was ahead"
    kit.schedules.remove("hourly")
    advance(kit, AHEAD)
    kit.schedules.add("often", "@every 2s", "fires")
    kit.schedules.update("often", priority=1)
    assert kit.schedules.get("often").next_at > datetime.now(UTC) + timedelta(hours=20)
    running = background(kit.run_scheduler)
    assert [task.headers["eventkit-schedule"] for task in kit.queue("fires").claim("worker", wait=PATIENCE)] == [
        "often"
    ]
    assert kit.schedules.get("often").next_at <= datetime.now(UTC) + timedelta(seconds=2.5)
    assert kit.schedules.get("yearly").next_at == yearly
    assert kit.schedules.get("asleep").next_at is None
    kit.close()
    running.result(PATIENCE)


@proves("K1")
def test_a_lock_of_a_clock_that_was_ahead_is_free_after_its_ttl(kit: Any) -> None:
    """No other holder gets it earlier; its holder may renew and release it."""
    held = {name: kit.lock(name, 1.5) for name in ("waited for", "asked for", "renewed")}
    assert all(lock.acquire() for lock in held.values())
    fence = held["asked for"].fence
    advance(kit, AHEAD)
    assert held["renewed"].renew()
    others = {name: kit.lock(name, 60) for name in held}
    began = time.monotonic()
    assert not any(lock.acquire() for lock in others.values())
    assert held["asked for"].renew()
    assert others["waited for"].acquire(wait=PATIENCE)
    assert 1.2 <= time.monotonic() - began <= 4
    assert others["waited for"].fence == fence + 1
    eventually(others["asked for"].acquire)
    assert held["waited for"].renew() is held["waited for"].release() is False


@proves("K1", "W1")
def test_a_wait_for_a_lock_succeeds_when_the_clock_goes_back(kit: Any) -> None:
    """The wait bounds the lock as an attempt does."""
    assert kit.lock("door", 1).acquire()
    waiting = background(lambda: kit.lock("door", 1).acquire(wait=PATIENCE))
    time.sleep(0.2)
    advance(kit, AHEAD)
    assert waiting.result(PATIENCE)

"""Housekeeping of a database (H1, H2), and its overview in numbers (H3)."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from eventkit import Closed, EventKit, NewTask, TaskQueue
from eventkit.testing import advance
from eventkit.values import Consumer, HeldLock, Maintained, Overview, QueueStats, ScheduleStats, StreamStats

from .clauses import both_flavours, proves, requires
from .processes import PATIENCE, background
from .threads import database_ms, eventually, rolled_back
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
@both_flavours
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
@both_flavours
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
@both_flavours
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
@both_flavours
def test_a_wait_for_a_lock_succeeds_when_the_clock_goes_back(kit: Any) -> None:
    """The wait bounds the lock as an attempt does."""
    assert kit.lock("door", 1).acquire()
    waiting = background(lambda: kit.lock("door", 1).acquire(wait=PATIENCE))
    time.sleep(0.2)
    advance(kit, AHEAD)
    assert waiting.result(PATIENCE)


_ODD = ["Orders", "ORDERS", "orders", "it's", '"quoted"', "back\\slash", "100%", "e\u0301", "\u00e9", "🦊" * 255, " "]


def _without_age(stats: QueueStats) -> QueueStats:
    return msgspec.structs.replace(stats, oldest_ready_age=None)


def _leave_one_of_each(queue: TaskQueue[Any]) -> None:
    """Put tasks into every state, and some that change it by time eleven seconds later."""
    queue.configure(keep_done=3600, max_attempts=2)
    queue.enqueue_many([NewTask("dead", priority=9), NewTask("done", priority=8)])
    dead, done = queue.claim("worker", 2)
    queue.fail(dead, "broken")
    queue.ack(done)
    queue.enqueue_many([NewTask("lapses", priority=9), NewTask("exhausted", priority=9, max_attempts=1)])
    queue.claim("worker", 2, lease=10)
    queue.enqueue_many(["running", "running too"])
    queue.claim("worker", 2, lease=600)
    queue.enqueue_many([NewTask("due", delay=10), NewTask("due and expired", delay=5, expires=10)])
    queue.enqueue_many([NewTask("expires", expires=10), NewTask("stays", priority=1), NewTask("later", delay=60)])


@proves("H3")
def test_the_overview_of_an_empty_kit_is_empty(kit: EventKit) -> None:
    assert kit.overview() == Overview({}, {}, {}, {}, results=0, approximate=False)


@proves("H3")
def test_the_overview_of_a_queue_equals_its_stats(kit: EventKit) -> None:
    """Tasks of all states count, also those due, lapsed or expired since; so do queues with settings only."""
    for name in ("first", "second"):
        _leave_one_of_each(kit.queue(name))
    kit.queue("only scheduled").enqueue(1, delay=600)
    kit.queue("only ready").enqueue(1, priority=-5)
    kit.queue("only dead").enqueue(1, expires=1)
    kit.queue("paused").pause()
    for moved in range(3):
        found = kit.overview()
        assert list(found.queues) == ["first", "only dead", "only ready", "only scheduled", "paused", "second"]
        for name, shown in found.queues.items():
            stats = kit.queue(name).stats()
            assert _without_age(shown) == _without_age(stats)
            assert (shown.oldest_ready_age is None) == (stats.oldest_ready_age is None)
            if shown.oldest_ready_age is not None and stats.oldest_ready_age is not None:
                assert shown.oldest_ready_age <= stats.oldest_ready_age <= shown.oldest_ready_age + 5
        assert found.queues["paused"].paused is True
        states = found.queues["second"]
        expected = (3, 2, 4, 1, 1) if not moved else (1, 3, 2, 4, 1)
        assert (states.scheduled, states.ready, states.running, states.dead, states.done) == expected
        kit.queue("only dead").sweep()
        advance(kit, 11)


@proves("H3")
def test_the_overview_has_topics_with_their_consumers(kit: EventKit) -> None:
    orders = kit.stream("orders")
    offsets = orders.publish_many(range(5))
    kit.stream("others").publish(1)
    orders.save_offset("search", offsets[1])
    orders.save_offset("Mail", offsets[4])
    kit.stream("unpublished").seek("early", 0)
    found = kit.overview().streams
    assert list(found) == ["orders", "others", "unpublished"]
    assert (found["orders"].head, found["orders"].events, found["others"].events) == (offsets[4], 5, 1)
    assert [(one.name, one.offset, one.lag) for one in found["orders"].consumers] == [
        ("Mail", offsets[4], 0),
        ("search", offsets[1], 3),
    ]
    assert found["orders"].consumers == orders.consumers()
    assert found["unpublished"] == StreamStats(0, 0, kit.stream("unpublished").consumers(), approximate=False)
    orders.prune(keep_count=0, keep_unconsumed=False)
    assert (kit.overview().streams["orders"].head, kit.overview().streams["orders"].events) == (offsets[4], 0)


@proves("H3", "S2")
@requires("concurrent_writers")
def test_the_head_in_the_overview_has_settled(kit: EventKit) -> None:
    """A reader that starts at the head skips no event of an open transaction."""
    stream = kit.stream("orders")
    first = stream.publish("settled")
    with kit.transaction() as tx:
        early = stream.publish("early", tx=tx)
        late = stream.publish("late, and committed first")
        assert kit.overview().streams["orders"].head < early
    assert first < early < late
    assert kit.overview().streams["orders"].head == late


@proves("H3")
def test_the_overview_has_schedules_with_their_fires(kit: EventKit) -> None:
    kit.schedules.add("hourly", "@every 3600s", "reports")
    kit.schedules.add("never", "@hourly", "emails", paused=True)
    for past in (0, 3600):
        advance(kit, past)
        kit.schedules.tick()
        found = kit.overview().schedules
        assert list(found) == ["hourly", "never"]
        schedule, shown = kit.schedules.get("hourly"), found["hourly"]
        assert schedule is not None
        assert (shown.queue, shown.next_at, shown.last_at) == ("reports", schedule.next_at, schedule.last_at)
        assert (shown.fired, shown.skipped, shown.paused) == (past // 3600, 0, False)
        assert found["never"] == ScheduleStats("emails", None, None, 0, 0)
        assert (found["never"].paused, found["never"].next_at, found["never"].last_at) == (True, None, None)


@proves("H3")
def test_the_overview_has_locks_while_they_are_held(kit: EventKit) -> None:
    lock, other = kit.lock("one", ttl=30), kit.lock("other", ttl=90)
    before = database_ms(kit)
    for _ in range(2):
        assert lock.acquire()
        assert lock.release()
    assert lock.acquire()
    assert other.acquire()
    after = database_ms(kit)
    held = kit.overview().locks
    assert list(held) == ["one", "other"]
    assert isinstance(held["one"], HeldLock)
    assert (held["one"].fence, held["other"].fence) == (3, 1)
    assert held["one"].holder == held["other"].holder != ""
    assert before <= held["one"].until_ms - 30_000 <= after
    assert before <= held["other"].until.timestamp() * 1000 - 90_000 <= after
    advance(kit, 31)
    assert list(kit.overview().locks) == ["other"]
    other.release()
    assert kit.overview().locks == {}


@proves("H3")
def test_results_are_counted_until_they_expire(kit: EventKit) -> None:
    kit.results.save("short", None, ttl=10)
    kit.results.save("long", None, ttl=100)
    assert kit.overview().results == 2
    advance(kit, 11)
    assert kit.overview().results == 1


@proves("H3")
def test_the_overview_has_nothing_uncommitted(kit: EventKit) -> None:
    with rolled_back(kit) as tx:
        kit.queue("jobs").enqueue(1, tx=tx)
        kit.stream("orders").publish(1, tx=tx)
        assert (kit.overview().queues, kit.overview().streams) == ({}, {})
    assert kit.overview() == Overview({}, {}, {}, {}, results=0, approximate=False)


@proves("H3", "G10")
def test_the_overview_sorts_all_valid_names(kit: EventKit) -> None:
    for number, name in enumerate(_ODD, 1):
        kit.queue(name).enqueue_many(range(number))
        kit.stream(name).publish_many(range(number))
        kit.stream(name).save_offset(name, 0)
        kit.lock(name).acquire()
        kit.schedules.add(name, "@hourly", name)
    found = kit.overview()
    assert list(found.queues) == list(found.streams) == list(found.locks) == list(found.schedules) == sorted(_ODD)
    assert [found.queues[name].ready for name in _ODD] == [*range(1, len(_ODD) + 1)]
    assert [found.streams[name].events for name in _ODD] == [*range(1, len(_ODD) + 1)]
    assert [[one.name for one in found.streams[name].consumers] for name in _ODD] == [[name] for name in _ODD]


@proves("H3")
@pytest.mark.parametrize("number", [10_000, 10_003])
def test_an_overview_stops_counting_and_says_so(kit: EventKit, number: int) -> None:
    """Up to 10,000 the numbers are exact; beyond, the overview names those that are capped."""
    more = number > 10_000
    kit.queue("many").enqueue_many(range(number))
    kit.queue("due").enqueue_many(NewTask(n, delay=60) for n in range(number))
    kit.queue("few").enqueue(1)
    stream = kit.stream("many")
    offsets = stream.publish_many(range(number))
    stream.seek("behind", 0)
    stream.seek("ahead", offsets[-1])
    advance(kit, 61)
    found = kit.overview()
    assert found.approximate is more
    assert (found.queues["many"].ready, found.queues["many"].approximate) == (10_000, more)
    assert (found.queues["due"].scheduled, found.queues["due"].ready) == (0, 10_000)
    assert (found.queues["due"].approximate, found.queues["few"].approximate) == (more, False)
    assert (found.streams["many"].events, found.streams["many"].approximate) == (10_000, more)
    assert isinstance(found.streams["many"].consumers[0], Consumer)
    assert [one.lag for one in found.streams["many"].consumers] == [0, 10_000]


@proves("H3")
def test_results_are_counted_as_far(kit: EventKit) -> None:
    with kit.transaction() as tx:
        for number in range(10_001):
            kit.results.save(number, None, tx=tx)
    assert (kit.overview().results, kit.overview().approximate) == (10_000, True)

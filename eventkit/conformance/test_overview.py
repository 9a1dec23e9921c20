"""The overview in numbers: H3."""

from typing import Any

import msgspec
import pytest

from eventkit import EventKit, NewTask, TaskQueue
from eventkit.testing import advance
from eventkit.values import Consumer, HeldLock, Overview, QueueStats, ScheduleStats, StreamStats

from .clauses import proves, requires
from .threads import database_ms, rolled_back

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
def test_the_overview_has_the_age_of_the_oldest_ready_task(kit: EventKit) -> None:
    """Every priority counts, and tasks that became due count before they are moved."""
    queue = kit.queue("jobs")
    queue.enqueue_many([NewTask("urgent", priority=9), NewTask("due first", delay=-50, priority=3)])
    queue.enqueue("due", delay=10)
    for least in (50, 70, 10):
        age = kit.overview().queues["jobs"].oldest_ready_age
        assert age is not None
        assert least <= age < least + 10
        if least == 50:
            advance(kit, 20)
        else:
            queue.receive(2)


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

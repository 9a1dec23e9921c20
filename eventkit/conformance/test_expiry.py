"""Tasks that are worth nothing after a moment: Q8."""

import time
from datetime import UTC, datetime, timedelta

from eventkit import EventKit, NewTask
from eventkit.testing import advance

from .clauses import proves
from .races import SOON, asleep


@proves("Q8")
def test_an_expired_task_is_never_handed_out(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    past = datetime.now(UTC) - timedelta(seconds=1)
    queue.enqueue("at once", expires=0)
    queue.enqueue("past", expires=past)
    queue.enqueue("soon", expires=10)
    queue.enqueue("before it is due", expires=10, delay=20)
    queue.enqueue_many([NewTask("moment", expires=past), NewTask("urgent", expires=10, priority=9)])
    queue.enqueue("lasting", expires=1000)
    advance(kit, 30)
    assert [info.payload for info in queue.peek(9)] == ["lasting"]
    assert [info.payload for info in queue.list("ready")] == ["lasting"]
    assert [task.payload for task in queue.claim("worker", 9)] == ["lasting"]
    assert queue.receive(9) == []
    assert sorted(str(info.payload) for info in queue.dead()) == sorted(
        ["at once", "past", "soon", "before it is due", "moment", "urgent"]
    )


@proves("Q8")
def test_thousands_may_expire_at_once(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue_many([NewTask("expired", expires=0, priority=1)] * 2500)
    queue.enqueue("lasting")
    assert [task.payload for task in queue.claim("worker", 9)] == ["lasting"]
    assert queue.receive(9) == []
    queue.sweep()
    assert queue.stats().dead == 2500


@proves("Q8")
def test_a_task_is_handed_out_until_it_expires(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue(1, expires=100)
    advance(kit, 97)
    [task] = queue.claim("worker")
    advance(kit, 10)
    # It was handed out in time; what counts now is the lease.
    assert queue.ack(task) is True


@proves("Q8", "Q11")
def test_an_expired_task_dies_on_the_next_claim(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    id = queue.enqueue(1, expires=10).id
    advance(kit, 11)
    assert queue.claim("worker") == []
    [dead] = queue.dead()
    assert (dead.id, dead.reason, dead.attempt) == (id, "expired", 0)


@proves("Q8", "Q10")
def test_a_task_that_has_died_by_the_clock_tells_why_before_it_is_moved(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    late = queue.enqueue("late", expires=10).id
    queue.enqueue("lapsed", priority=1, max_attempts=1)
    [lapsed] = queue.claim("worker", lease=5)
    advance(kit, 11)
    infos = [queue.get(late), queue.get(lapsed.id)]
    assert [(info.state, info.reason) for info in infos if info] == [("dead", "expired"), ("dead", "exhausted")]


@proves("Q8", "Q11")
def test_an_expired_task_dies_on_a_sweep(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue("waits", delay=100, expires=10)
    queue.enqueue("ready", expires=10)
    queue.enqueue("lasting")
    advance(kit, 11)
    assert queue.sweep() == 2
    assert [info.reason for info in queue.dead()] == ["expired", "expired"]
    assert queue.sweep() == 0
    assert queue.size() == 1


@proves("Q8", "Q4", "Q11")
def test_a_task_whose_lease_and_time_have_both_run_out_is_expired(kit: EventKit) -> None:
    for name in ("claimed", "swept"):
        queue = kit.queue(name)
        # With attempts left, without, and with a lease that outlives the expiry.
        queue.enqueue_many([NewTask(1, expires=10), NewTask(2, expires=10, max_attempts=1), NewTask(3, expires=10)])
        queue.claim("worker", 2, lease=5)
        queue.claim("worker", 1, lease=20)
        advance(kit, 11)
        assert queue.claim("another", 9) == [] if name == "claimed" else queue.sweep() == 2
        assert {info.payload: info.reason for info in queue.dead()} == {1: "expired", 2: "expired"}
        assert [info.payload for info in queue.list("leased")] == [3]
        advance(kit, 10)
        assert queue.claim("another", 9) == [] if name == "claimed" else queue.sweep() == 1
        assert [(info.payload, info.reason, info.attempt) for info in queue.dead(1)] == [(3, "expired", 1)]


@proves("Q8")
def test_a_retried_or_released_task_expires_too(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue_many([NewTask("later", expires=50), NewTask("now", expires=50), NewTask("released", expires=50)])
    later, now, released = queue.claim("worker", 3)
    queue.retry(later, delay=100)
    queue.retry(now, delay=0)
    queue.release(released)
    advance(kit, 51)
    assert queue.claim("worker", 9) == []
    assert {info.payload: info.reason for info in queue.dead()} == {
        "later": "expired",
        "now": "expired",
        "released": "expired",
    }


@proves("Q8")
def test_a_waiting_worker_has_expired_tasks_die_in_time(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue("expires", delay=60, expires=0.3)
    claim = asleep(queue.claim, "worker", wait=60)
    deadline = time.monotonic() + SOON
    while not queue.dead() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [info.reason for info in queue.dead()] == ["expired"]
    queue.enqueue("last")
    assert [task.payload for task in claim.result()] == ["last"]

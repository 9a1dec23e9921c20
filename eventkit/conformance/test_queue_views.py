"""Views of a queue: states, counts, and its first tasks."""

from typing import Any, get_args

import pytest

import eventkit
from eventkit import EventKit, NewTask, Task, TaskQueue
from eventkit.testing import advance
from eventkit.values import TaskState

from .clauses import proves
from .processes import spawn
from .threads import database_ms, line_up

_STATES: tuple[TaskState, ...] = get_args(TaskState)


def _take(url: str, racers: int) -> list[int]:
    taken: list[int] = []
    with eventkit.connect(url) as kit:
        line_up(kit, racers)
        while tasks := kit.queue("jobs").receive(3):
            taken += [task.payload for task in tasks]
    return taken


def _one_of_each(queue: TaskQueue[Any]) -> dict[str, int]:
    """Bring a task into every state; return the ids by state."""
    queue.configure(keep_done=3600)
    ids = {}
    for state in ("dead", "done", "running"):
        ids[state] = queue.enqueue(state, priority=9).id
        [task] = queue.claim("worker", lease=600)
        if state == "dead":
            queue.fail(task, "broken")
        elif state == "done":
            queue.ack(task)
    ids["ready"] = queue.enqueue("ready").id
    ids["scheduled"] = queue.enqueue("scheduled", delay=60).id
    return ids


@proves("Q10")
def test_get_returns_a_task_in_any_state(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    for state, id in _one_of_each(queue).items():
        info = queue.get(id)
        assert info is not None
        assert (info.id, info.queue, info.state, info.payload) == (id, "jobs", state, state)
        assert info.worker == (None if state in ("ready", "scheduled") else "worker")
        assert (info.finished_at is not None) == (state in ("dead", "done"))
        assert (info.died_at is not None) == (state == "dead")
        assert (info.lease_expires_at is not None) == (state == "running")
        assert kit.queue("others").get(id) is None
    assert queue.get(10**12) is None


@proves("Q10", "Q4")
def test_a_task_is_shown_in_its_present_state(kit: EventKit) -> None:
    """Due, lapsed and expired tasks count as such before a claim moves them."""
    queue = kit.queue("jobs")
    queue.enqueue_many([NewTask("lapses"), NewTask("exhausted", max_attempts=1)])
    queue.claim("worker", 2, lease=10)
    queue.enqueue("due", delay=10)
    queue.enqueue("expires", expires=10)
    advance(kit, 11)
    states = {info.payload: info.state for info in queue.tasks()}
    assert states == {"lapses": "ready", "exhausted": "dead", "due": "ready", "expires": "dead"}
    assert [info.payload for info in queue.tasks("ready")] == ["lapses", "due"]
    assert [info.payload for info in queue.peek(9)] == ["lapses", "due"]
    stats = queue.stats()
    assert (stats.scheduled, stats.ready, stats.running, stats.dead) == (0, 2, 0, 2)
    assert [task.payload for task in queue.claim("worker", 9)] == ["lapses", "due"]
    assert queue.stats().dead == 2


@proves("Q10")
def test_list_selects_by_id_and_state(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    ids = _one_of_each(queue)
    kit.queue("others").enqueue(1)
    everything = sorted(ids.values())
    assert [info.id for info in queue.tasks()] == everything
    assert [info.id for info in queue.tasks(limit=2)] == everything[:2]
    assert [info.id for info in queue.tasks(limit=2, after=everything[1])] == everything[2:4]
    for state in _STATES:
        assert [info.id for info in queue.tasks(state)] == [ids[state]]
        assert queue.tasks(state, after=ids[state]) == []
    queue.enqueue_many([None] * 120)
    assert len(queue.tasks()) == 100
    bad: list[dict[str, Any]] = [{"state": "lost"}, {"limit": 0}, {"after": -1}]
    for arguments in bad:
        with pytest.raises(ValueError, match=next(iter(arguments))):
            queue.tasks(**arguments)
    with pytest.raises(ValueError, match="state"):
        queue.purge("all")  # type: ignore[arg-type]


@proves("Q15")
def test_racing_receivers_take_each_task_once(kit: EventKit, url: str) -> None:
    kit.queue("jobs").enqueue_many(range(300))
    with spawn(_take, url, 2) as one, spawn(_take, url, 2) as two:
        pass
    assert sorted(one.result() + two.result()) == list(range(300))


@proves("Q16", "Q5")
def test_a_finished_task_is_kept_with_its_result_and_timings(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.configure(keep_done=3600)
    before = database_ms(kit)
    queue.enqueue("payload", headers={"h": "1"})
    [task] = queue.claim("worker")
    advance(kit, 10)
    assert queue.ack(task, result={"sent": [1, None]}) is True
    after = database_ms(kit)
    info = queue.get(task.id)
    assert info is not None
    assert (info.state, info.payload, info.result, info.attempt) == ("done", "payload", {"sent": [1, None]}, 1)
    assert (info.worker, info.error, info.reason) == ("worker", None, None)
    assert info.claimed_ms is not None
    assert info.finished_ms is not None
    assert before - 10_000 <= info.enqueued_ms <= info.claimed_ms <= info.finished_ms - 10_000 <= after - 10_000
    assert (queue.stats().done, queue.size(), queue.ack(task)) == (1, 0, False)
    assert queue.claim("worker") == []


@proves("Q16")
def test_a_finished_task_is_kept_for_that_long(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.configure(keep_done=100)

    def finish() -> Task[Any]:
        queue.enqueue(1)
        [task] = queue.claim("worker")
        assert queue.ack(task)
        return task

    first = finish()
    advance(kit, 95)
    second = finish()
    assert queue.get(first.id) is not None
    advance(kit, 6)
    third = finish()
    assert [info.id for info in queue.tasks("done")] == [second.id, third.id]


@proves("Q10")
def test_stats_stop_counting_and_say_so(kit: EventKit) -> None:
    """Up to 10,000 the numbers are exact; beyond, each state is capped and marked; `size` is exact."""
    queue = kit.queue("jobs")
    queue.enqueue_many(range(10_000))
    assert (queue.stats().ready, queue.stats().approximate) == (10_000, False)
    queue.enqueue_many(range(5))
    assert (queue.stats().ready, queue.stats().approximate, queue.size()) == (10_000, True, 10_005)
    queue.purge()
    queue.enqueue_many(NewTask(number, delay=60) for number in range(10_003))
    assert (queue.stats().scheduled, queue.stats().ready, queue.stats().approximate) == (10_000, 0, True)
    advance(kit, 61)
    due = queue.stats()
    assert (due.scheduled, due.ready, due.approximate) == (0, 10_000, True)
    queue.sweep()
    queue.purge()
    assert (queue.stats().ready, queue.stats().approximate) == (0, False)


@proves("H5")
def test_workers_with_leased_tasks_are_listed(kit: EventKit) -> None:
    """Only workers with leases are listed: by name, with queues, number of tasks, and since when."""
    assert kit.workers() == []
    for name, worker, number in (("emails", "b", 2), ("orders", "a", 1), ("orders", "b", 1)):
        queue = kit.queue(name)
        queue.enqueue_many(range(number))
        assert len(queue.claim(worker, number, lease=60)) == number
    kit.queue("waiting").enqueue(1)
    kit.queue("later").enqueue(1, delay=600)
    one, two = kit.workers()
    assert (one.name, one.queues, one.leased) == ("a", ["orders"], 1)
    assert (two.name, two.queues, two.leased) == ("b", ["emails", "orders"], 3)
    assert (two.slots, two.running, two.seen_at) == (None, None, None)
    assert not two.alive
    held = kit.queue("emails").tasks("running")
    assert two.oldest_claim_at == min(task.claimed_at for task in held if task.claimed_at)
    advance(kit, 61)
    assert kit.workers() == []


@proves("H6")
def test_limits_are_listed_while_they_hold_a_count(kit: EventKit) -> None:
    """Windows have their count and buckets their tokens; they are sorted by name, up to the limit of the call."""
    assert kit.limits() == []
    assert [kit.limit("api", count=2, per=3600).acquire() for _ in range(3)] == [True, True, False]
    assert kit.limit("bucket", rate=1, burst=10).acquire()
    window, bucket = kit.limits()
    assert (window.name, window.per, window.amount) == ("api", 3600, 2)
    assert (bucket.name, bucket.per, bucket.amount) == ("bucket", None, 9)
    assert window.counted_at < window.until
    assert kit.limits(1) == [window]
    advance(kit, 3600)
    assert kit.limits() == []

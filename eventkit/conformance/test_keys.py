"""Keys of tasks, and deleted queues."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

import eventkit
from eventkit import EventKit, KeyConflict, NewTask, TaskQueue
from eventkit.testing import advance
from eventkit.values import DeadTasks, Enqueued, QueueSettings

from .clauses import proves
from .processes import spawn
from .threads import PATIENCE, asleep, line_up

_DAY = 86_400


@proves("Q7")
@pytest.mark.parametrize("end", ["waits", "is done", "is purged", "is received"])
def test_a_strict_queue_refuses_a_key_with_another_payload(kit: EventKit, end: str) -> None:
    """It compares values, also after the task is gone, while its key is reserved; a refused call changes nothing."""
    queue = kit.queue("jobs")
    queue.configure(strict_keys=True, keep_done=3600 if end == "is done" else None)
    first = queue.enqueue({"a": 1, "b": [2.0]}, key="k")
    if end == "is done":
        assert queue.ack(queue.claim("worker")[0])
    elif end == "is purged":
        assert queue.purge() == 1
    elif end == "is received":
        assert queue.receive()
    assert queue.enqueue({"b": [2], "a": 1}, key="k") == (first.id, False)
    kit.queue("others").enqueue(1)
    [task] = kit.queue("others").claim("worker")
    calls: list[Callable[[], object]] = [
        lambda: queue.enqueue({"a": 1}, key="k"),
        lambda: queue.enqueue({"a": True, "b": [2]}, key="k"),
        lambda: queue.enqueue_many(["new", NewTask(None, key="k")]),
        lambda: queue.enqueue_many([NewTask(1, key="twice"), NewTask(2, key="twice")]),
        lambda: kit.queue("others").ack(task, then=[queue.new("new"), queue.new(1, key="k")]),
    ]
    before = queue.tasks()
    for call in calls:
        with pytest.raises(KeyConflict, match=r"key .* of queue 'jobs' belongs to task \d+, which has another payload"):
            call()
    assert queue.tasks() == before
    assert [new.created for new in queue.enqueue_many([NewTask(1, key="twice"), NewTask(1, key="twice")])] == [
        True,
        False,
    ]
    queue.configure(strict_keys=False)
    assert queue.enqueue("another", key="k") == (first.id, False)
    reserved = queue.enqueue(1, key="reserved before")
    assert queue.ack_many(queue.claim("worker", 9))
    queue.configure(strict_keys=True)
    assert queue.enqueue(2, key="reserved before") == (reserved.id, False)


def _produce(url: str, racers: int, threads: int) -> list[Enqueued]:
    """Enqueue the same keys from several threads at once, and return the answers."""
    answers: list[Enqueued] = []
    with eventkit.connect(url) as kit:
        queue = kit.queue("jobs")
        start = threading.Barrier(threads)

        def produce() -> None:
            start.wait()
            answers.append(queue.enqueue("single", key="single"))
            answers.extend(queue.enqueue_many([NewTask("many", key="many"), "plain"])[:1])

        line_up(kit, racers)
        producers = [threading.Thread(target=produce) for _ in range(threads)]
        for producer in producers:
            producer.start()
        for producer in producers:
            producer.join()
    return answers


def _race(kit: EventKit, url: str, processes: int, threads: int) -> None:
    with ExitStack() as stack:
        racers = [stack.enter_context(spawn(_produce, url, processes, threads)) for _ in range(processes)]
    answers = [answer for racer in racers for answer in racer.result()]
    assert len(answers) == 2 * processes * threads
    rows = [info for info in kit.queue("jobs").tasks() if info.key]
    assert sorted(info.payload for info in rows) == ["many", "single"]
    assert sorted(id for id, created in answers if created) == [info.id for info in rows]
    assert {id for id, _ in answers} == {info.id for info in rows}


def _acked(queue: TaskQueue[Any], id: int) -> None:
    [task] = queue.claim("worker")
    assert queue.ack(task)


def _acked_many(queue: TaskQueue[Any], id: int) -> None:
    assert queue.ack_many(queue.claim("worker")) == [id]


def _received(queue: TaskQueue[Any], id: int) -> None:
    assert len(queue.receive()) == 1


def _cancelled(queue: TaskQueue[Any], id: int) -> None:
    assert queue.cancel(id)


def _cancelled_while_running(queue: TaskQueue[Any], id: int) -> None:
    queue.claim("worker")
    assert queue.cancel(id, running=True)


def _purged(queue: TaskQueue[Any], id: int) -> None:
    assert queue.purge() == 1


def _purged_dead(queue: TaskQueue[Any], id: int) -> None:
    [task] = queue.claim("worker")
    queue.fail(task, "broken")
    assert queue.purge_dead() == 1


def _kept(queue: TaskQueue[Any], id: int) -> None:
    queue.configure(keep_done=7 * _DAY)
    _acked(queue, id)


_REMOVALS: dict[str, Callable[[TaskQueue[Any], int], None]] = {
    function.__name__.strip("_"): function
    for function in (
        _acked,
        _acked_many,
        _received,
        _cancelled,
        _cancelled_while_running,
        _purged,
        _purged_dead,
        _kept,
    )
}


@proves("Q7")
def test_a_key_is_unique_while_its_task_is_live_or_dead(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.configure(key_ttl=0)
    first = queue.enqueue("first", key="k", delay=60)
    again = Enqueued(first.id, False)
    assert queue.enqueue("scheduled", key="k") == again
    advance(kit, 61)
    assert queue.enqueue("due", key="k") == again
    [task] = queue.claim("worker")
    assert queue.enqueue("running", key="k") == again
    queue.release(task)
    assert queue.enqueue("ready", key="k") == again
    [task] = queue.claim("worker")
    queue.fail(task, "broken")
    assert queue.enqueue("dead", key="k") == again
    advance(kit, 7 * _DAY)
    assert queue.enqueue_many([NewTask("later", key="k")]) == [again]
    assert [info.payload for info in queue.tasks()] == ["first"]
    queue.configure(key_ttl=14 * _DAY)
    assert queue.purge_dead(older_than=8 * _DAY) == 0
    queue.configure(key_ttl=0)
    assert (queue.purge_dead(), queue.enqueue("after", key="k").created) == (1, True)


@proves("Q7")
def test_a_key_belongs_to_its_queue(kit: EventKit) -> None:
    answers = [kit.queue(name).enqueue(1, key="k") for name in ("jobs", "Jobs", "others")]
    answers.append(kit.queue("jobs").enqueue(1, key="K"))
    assert all(answer.created for answer in answers)
    assert len({answer.id for answer in answers}) == 4


@proves("Q7", "Q9")
def test_a_key_stays_reserved_for_24_hours_after_the_enqueue(kit: EventKit) -> None:
    queues = {name: kit.queue(name) for name in _REMOVALS}
    ids = {name: queue.enqueue("first", key="k").id for name, queue in queues.items()}
    advance(kit, 3600)
    for name, queue in queues.items():
        _REMOVALS[name](queue, ids[name])
        assert queue.claim("worker") == []
        assert queue.enqueue("soon", key="k") == Enqueued(ids[name], False), name
    advance(kit, _DAY - 3600 - 60)
    for name, queue in queues.items():
        assert queue.enqueue("within", key="k") == Enqueued(ids[name], False), name
        assert queue.enqueue_many([NewTask("many", key="k")]) == [Enqueued(ids[name], False)], name
    advance(kit, 61)
    for name, queue in queues.items():
        second = queue.enqueue("after", key="k")
        assert second.created, name
        assert second.id > ids[name], name
        assert queue.enqueue("again", key="k") == Enqueued(second.id, False), name


@proves("Q7")
def test_an_enqueue_at_the_end_of_a_reservation_is_answered(kit: EventKit) -> None:
    """The answer is either the first id or a new one, wherever the clock stands."""
    queue = kit.queue("jobs")
    queue.configure(key_ttl=0.02)
    for number in range(40):
        key = f"{number}"
        first = queue.enqueue(number, key=key)
        queue.purge()
        while not (again := queue.enqueue(number, key=key)).created:
            assert again.id == first.id
        assert again.id > first.id
        queue.purge()


@proves("Q7")
def test_twenty_racing_producers_make_one_row(kit: EventKit, url: str) -> None:
    _race(kit, url, processes=3, threads=7)


@pytest.mark.slow
@proves("Q7")
def test_twenty_racing_processes_make_one_row(kit: EventKit, url: str) -> None:
    _race(kit, url, processes=20, threads=1)


@proves("Q9")
def test_cancel_deletes_a_task_that_waits(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    kinds: list[dict[str, Any]] = [{}, {"delay": 60}, {"key": "k"}]
    for keywords in kinds:
        id = queue.enqueue(1, **keywords).id
        assert kit.queue("others").cancel(id) is False
        assert queue.cancel(id) is True
        assert queue.cancel(id) is False
        assert queue.get(id) is None
    advance(kit, 61)
    assert queue.claim("worker") == []


@proves("Q21")
def test_dead_tasks_are_counted_by_error(kit: EventKit) -> None:
    queue: Any = kit.queue("jobs")
    ids = [made.id for made in queue.enqueue_many([1, 2, 3, 4, NewTask(5, expires=10)])]
    failures = [("no", None), ("other", None), ("no", None), ("no", "NO")]
    for task, (error, code) in zip(queue.claim("worker", 4), failures, strict=True):
        queue.fail(task, error, code=code)
    kit.queue("others").fail(_claimed(kit.queue("others")), "no")
    advance(kit, 11)
    groups = queue.dead_by_error()
    assert all(isinstance(group, DeadTasks) and group.first_at <= group.last_at for group in groups)
    assert [(group.reason, group.code, group.error, group.number, group.last_id) for group in groups] == [
        ("failed", "FAILED", "no", 2, ids[2]),
        ("expired", "EXPIRED", None, 1, ids[4]),
        ("failed", "NO", "no", 1, ids[3]),
        ("failed", "FAILED", "other", 1, ids[1]),
    ]
    assert len(queue.dead_by_error(limit=1)) == 1
    with pytest.raises(ValueError, match="limit"):
        queue.dead_by_error(0)


def _claimed(queue: Any) -> Any:
    queue.enqueue("claimed")
    return queue.claim("worker")[0]


@proves("Q21")
def test_a_queue_that_is_forgotten_has_its_defaults_and_its_keys_are_free(kit: EventKit) -> None:
    queue: Any = kit.queue("jobs")
    queue.configure(max_attempts=9, keep_done=3600)
    queue.pause()
    queue.enqueue("done", key="k")
    queue.resume()
    queue.ack(queue.claim("worker")[0])
    queue.pause()
    assert queue.drop()
    assert (queue.settings(), queue.stats().paused, queue.tasks()) == (QueueSettings(), False, [])
    assert queue.enqueue("again", key="k").created
    assert kit.queue("never seen").drop()


@proves("Q21")
@pytest.mark.parametrize("state", ["scheduled", "ready", "running", "dead"])
def test_a_queue_with_tasks_is_forgotten_only_by_force(kit: EventKit, state: str) -> None:
    queue: Any = kit.queue("jobs")
    queue.configure(max_attempts=9)
    queue.enqueue("task", delay=60 if state == "scheduled" else None, key="k")
    task = None
    if state in ("running", "dead"):
        [task] = queue.claim("worker")
    if state == "dead":
        queue.fail(task, "no")
    kit.queue("others").enqueue("left")
    assert not queue.drop()
    assert (queue.settings().max_attempts, [info.state for info in queue.tasks()]) == (9, [state])
    assert queue.drop(force=True)
    assert (queue.settings(), queue.tasks()) == (QueueSettings(), [])
    if state == "running":
        assert not queue.ack(task)
    assert queue.enqueue("again", key="k").created
    assert [task.payload for task in queue.claim("worker")] == ["again"]
    assert kit.queue("others").size() == 1


@proves("Q21", "W2")
def test_a_wait_for_room_ends_when_the_queue_is_dropped(kit: EventKit) -> None:
    queue: Any = kit.queue("jobs")
    queue.configure(max_size=1)
    queue.enqueue("first")
    waiting = asleep(queue.enqueue, "second", wait=30)
    queue.drop(force=True)
    assert waiting.result(PATIENCE).created

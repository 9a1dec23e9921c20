"""The end of a task: ack, retry, fail, release, and `handling`."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from eventkit import EventKit, Fixed, Permanent, Retry, Snooze, Task, TaskQueue
from eventkit.testing import advance
from eventkit.values import TaskInfo

from .clauses import proves
from .threads import asleep, database_ms, rolled_back

_ENDINGS: dict[str, Callable[[TaskQueue[Any], Task[Any], Any], object]] = {
    "ack": lambda queue, task, tx: queue.ack(task, tx=tx),
    "ack with a result": lambda queue, task, tx: queue.ack(task, result=1, tx=tx),
    "ack and chain": lambda queue, task, tx: queue.ack(task, then=[queue.new("next", key=str(task.id))], tx=tx),
    "ack_many with results": lambda queue, task, tx: queue.ack_many([task], tx=tx, results={task.id: 1}) == [task.id],
    "ack_many": lambda queue, task, tx: queue.ack_many([task], tx=tx) == [task.id],
    "retry": lambda queue, task, tx: queue.retry(task, delay=0, error="again", tx=tx),
    "fail": lambda queue, task, tx: queue.fail(task, "broken", tx=tx),
    "release": lambda queue, task, tx: queue.release(task, tx=tx),
    "snooze": lambda queue, task, tx: queue.snooze(task, 10, tx=tx),
    "extend": lambda queue, task, tx: queue.extend(task, 1000, tx=tx),
    "cancel": lambda queue, task, tx: queue.cancel(task.id, running=True, tx=tx),
}
_FENCED = {name: end for name, end in _ENDINGS.items() if name != "cancel"}


def _claimed(queue: TaskQueue[Any], **keywords: Any) -> Task[Any]:
    queue.enqueue(1, **keywords)
    [task] = queue.claim("worker")
    return task


@proves("Q5")
def test_an_acked_task_is_gone(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    for key in (None, "key"):
        task = _claimed(queue, key=key)
        assert queue.ack(task) is True
        assert queue.get(task.id) is None
        assert queue.ack(task) is False
    advance(kit, 1000)
    assert queue.claim("worker") == []


@proves("Q5")
def test_a_stale_handle_of_the_same_worker_changes_nothing(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue(1, key="key")
    [stale] = queue.claim("worker", lease=0)
    [current] = queue.claim("worker")
    before = queue.get(current.id)
    for name, end in _FENCED.items():
        assert end(queue, stale, None) is False, name
        assert queue.get(current.id) == before, name
    assert queue.ack(current) is True


@proves("Q4", "Q5")
def test_a_lapsed_lease_is_lost_without_another_claim(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    task = _claimed(queue)
    advance(kit, 301)
    before = queue.tasks()
    for name, end in _FENCED.items():
        assert end(queue, task, None) is False, name
        assert queue.tasks() == before, name
    assert [again.attempt for again in queue.claim("worker")] == [2]


@proves("Q5")
def test_a_finished_handle_is_worth_nothing(kit: EventKit) -> None:
    for name, end in _FENCED.items():
        queue = kit.queue(name)
        task = _claimed(queue)
        assert end(queue, task, None) is True, name
        if name == "extend":
            continue
        before = queue.tasks()
        for again, end_again in _FENCED.items():
            assert end_again(queue, task, None) is False, (name, again)
        assert queue.tasks() == before, name


@proves("Q5")
def test_a_handle_with_another_token_is_worth_nothing(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    task = _claimed(queue)
    forged = msgspec.structs.replace(task, token=task.token ^ 1)
    for name, end in _FENCED.items():
        assert end(queue, forged, None) is False, name
    assert queue.ack(task)


@proves("G4", "Q5", "Q9")
def test_an_ending_commits_and_rolls_back_with_its_transaction(kit: EventKit) -> None:
    for name, end in _ENDINGS.items():
        queue = kit.queue(name)
        queue.configure(keep_done=60)
        task = _claimed(queue, key="key")
        before = queue.get(task.id)
        with rolled_back(kit) as tx:
            assert end(queue, task, tx) is True, name
        assert queue.get(task.id) == before, name
        with kit.transaction() as tx:
            assert end(queue, task, tx) is True, name
        assert queue.get(task.id) != before, name


@proves("Q5")
def test_ack_many_returns_which_tasks_were_finished(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue_many(range(6))
    lapsed = queue.claim("worker", 2, lease=0)
    again = queue.claim("worker", 2)
    queue.enqueue("keyed", key="key")
    rest = queue.claim("worker", 9)
    gone = rest.pop(0)
    queue.ack(gone)
    finished = queue.ack_many([*reversed(rest), *lapsed, gone, rest[0]])
    assert finished == sorted(task.id for task in rest)
    assert [info.id for info in queue.tasks("running")] == [task.id for task in again]
    assert queue.ack_many(again) == [task.id for task in again]
    assert queue.ack_many([]) == []
    assert queue.tasks() == []


@proves("Q5", "Q16")
def test_ack_many_keeps_what_the_queue_keeps(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.configure(keep_done=60)
    queue.enqueue_many(range(3))
    tasks = queue.claim("worker", 3)
    assert queue.ack_many(tasks) == [task.id for task in tasks]
    assert [info.state for info in queue.tasks()] == ["done"] * 3
    assert queue.ack_many(tasks) == []


@proves("Q5")
def test_a_released_task_is_as_if_it_had_not_been_claimed(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    first = queue.enqueue("first", max_attempts=2, key="key")
    queue.enqueue("second")
    for _ in range(5):
        [task] = queue.claim("worker")
        assert (task.id, task.attempt) == (first.id, 1)
        assert queue.release(task) is True
    assert [(info.state, info.attempt) for info in queue.tasks()] == [("ready", 0)] * 2


@proves("Q5")
def test_a_snoozed_task_is_due_later_and_has_cost_no_attempt(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    first = queue.enqueue("first", max_attempts=1, key="key")
    for _ in range(3):
        [task] = queue.claim("worker")
        assert (task.id, task.attempt) == (first.id, 1)
        assert queue.snooze(task, 60) is True
        [info] = queue.tasks()
        assert (info.state, info.attempt) == ("scheduled", 0)
        advance(kit, 50)
        assert queue.claim("worker") == []
        advance(kit, 10)
    [task] = queue.claim("worker")
    assert queue.snooze(task, 0) is True
    [task] = queue.claim("worker", wait=10)
    assert queue.ack(task) is True


@proves("Q5")
def test_extend_counts_from_now(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    task = _claimed(queue)
    advance(kit, 200)
    before = database_ms(kit)
    assert queue.extend(task, 250) is True
    after = database_ms(kit)
    info = queue.get(task.id)
    assert info is not None
    assert info.lease_expires_ms is not None
    assert before + 250_000 <= info.lease_expires_ms <= after + 250_000
    advance(kit, 240)
    assert queue.claim("another") == []
    assert queue.extend(task, 5) is True
    advance(kit, 6)
    assert [again.id for again in queue.claim("another")] == [task.id]
    assert queue.extend(task, 5) is False


@proves("Q5", "Q11")
def test_a_failed_task_is_dead_now(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    task = _claimed(queue, max_attempts=10)
    assert queue.fail(task, "no such address \0 \ud800") is True
    [dead] = queue.dead()
    assert (dead.id, dead.state, dead.reason, dead.attempt) == (task.id, "dead", "failed", 1)
    assert dead.error is not None
    assert dead.error.startswith("no such address")
    advance(kit, 1000)
    assert queue.claim("worker") == []


@proves("Q5", "Q6")
def test_a_retried_task_comes_back_with_the_next_attempt(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    task = _claimed(queue, headers={"a": "b"})
    assert queue.retry(task, delay=60, error="not yet") is True
    info = queue.get(task.id)
    assert info is not None
    assert (info.state, info.attempt, info.error) == ("scheduled", 1, "not yet")
    assert queue.claim("worker") == []
    advance(kit, 61)
    [again] = queue.claim("worker")
    assert (again.id, again.attempt, again.payload) == (task.id, 2, 1)
    assert again.headers["a"] == "b"


@proves("Q5", "Q6", "Q11")
def test_a_task_out_of_attempts_dies_with_its_error(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue(1)
    for attempt in (1, 2, 3):
        [task] = queue.claim("worker")
        assert task.attempt == attempt
        assert queue.retry(task, delay=0, error=f"error {attempt}") is True
    assert queue.claim("worker") == []
    [dead] = queue.dead()
    assert (dead.id, dead.reason, dead.error, dead.attempt) == (task.id, "exhausted", "error 3", 3)


class _Shutdown(BaseException):
    """A BaseException that asks the process to end, and is not a failure of the task."""


def _claimed_one(queue: TaskQueue[Any], **keywords: Any) -> Task[Any]:
    queue.enqueue("payload", **keywords)
    [task] = queue.claim("worker")
    return task


def _info(queue: TaskQueue[Any], task: Task[Any]) -> TaskInfo[Any]:
    info = queue.get(task.id)
    assert info is not None
    return info


@proves("Q17")
def test_a_handled_task_is_acked(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    task = _claimed_one(queue)
    with queue.handling(task) as handled:
        assert handled == task
        assert _info(queue, task).state == "running"
    assert queue.get(task.id) is None


@proves("Q17", "Q6")
def test_an_exception_means_another_attempt(kit: EventKit, caplog: pytest.LogCaptureFixture) -> None:
    """The queue's policy sets the delay and the traceback is the error; it is logged and not raised."""
    queue = kit.queue("jobs")
    queue.configure(retry=Fixed(base=60, jitter=0))
    task = _claimed_one(queue)
    with queue.handling(task):
        raise KeyError("no such customer")
    info = _info(queue, task)
    assert (info.state, info.attempt) == ("scheduled", 1)
    assert info.error is not None
    assert "KeyError: 'no such customer'" in info.error
    assert "test_finish.py" in info.error
    assert "failed in attempt 1" in caplog.text
    advance(kit, 58)
    assert queue.claim("worker") == []
    advance(kit, 2)
    [again] = queue.claim("worker")
    assert again.attempt == 2


@proves("Q17", "Q3", "Q11")
def test_the_last_attempt_leaves_a_dead_task(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    task = _claimed_one(queue, max_attempts=1)
    with queue.handling(task):
        raise ValueError("broken")
    [dead] = queue.dead()
    assert (dead.id, dead.reason) == (task.id, "exhausted")
    assert dead.error is not None
    assert "ValueError: broken" in dead.error


@proves("Q17", "Q6")
def test_retry_says_when(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.configure(retry=Fixed(base=60, jitter=0))
    task = _claimed_one(queue, max_attempts=9)
    with queue.handling(task):
        raise Retry(0)
    [task] = queue.claim("worker")
    with queue.handling(task):
        raise Retry(1000, "come back later")
    assert _info(queue, task).error == "come back later"
    advance(kit, 990)
    assert queue.claim("worker") == []
    advance(kit, 11)
    [task] = queue.claim("worker")
    with queue.handling(task):
        raise Retry
    advance(kit, 61)
    [task] = queue.claim("worker")
    assert task.attempt == 4


@proves("Q17", "Q5")
def test_snooze_costs_no_attempt(kit: EventKit, caplog: pytest.LogCaptureFixture) -> None:
    queue = kit.queue("jobs")
    task = _claimed_one(queue, max_attempts=1)
    with queue.handling(task):
        raise Snooze(timedelta(minutes=1))
    info = _info(queue, task)
    assert (info.state, info.attempt, info.error) == ("scheduled", 0, None)
    assert caplog.text == ""
    advance(kit, 60)
    [task] = queue.claim("worker")
    assert task.attempt == 1


@proves("Q17", "Q11")
def test_permanent_means_dead_now(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    task = _claimed_one(queue, max_attempts=9)
    with queue.handling(task):
        raise Permanent("no such address")
    [dead] = queue.dead()
    assert (dead.id, dead.reason, dead.error, dead.attempt) == (task.id, "failed", "no such address", 1)


@proves("Q17")
def test_what_is_no_error_releases_the_task_and_goes_on(kit: EventKit) -> None:
    """A shutdown costs no attempt."""
    queue = kit.queue("jobs")
    task = _claimed_one(queue)
    with pytest.raises(_Shutdown), queue.handling(task):
        raise _Shutdown
    info = _info(queue, task)
    assert (info.state, info.attempt) == ("ready", 0)


@proves("Q17", "Q4")
def test_the_lease_lasts_as_long_as_the_work(kit: EventKit, connect: Any, url: str) -> None:
    """No other worker gets the task meanwhile, however often its lease would have lapsed."""
    queue, other = kit.queue("jobs"), connect(url).queue("jobs")
    queue.enqueue_many(["first", "second"])
    first, second = queue.claim("worker", 2, lease=1.0)
    thief = asleep(other.claim, "thief", 9, wait=2.2)
    with queue.handling(first), queue.handling(second):
        assert thief.result() == []
    assert queue.tasks() == []


@proves("Q17")
def test_the_lease_is_kept_no_longer_than_the_work(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue(1)
    [task] = queue.claim("worker", lease=0.3)
    with pytest.raises(_Shutdown), queue.handling(task):
        raise _Shutdown
    queue.claim("another", lease=0.3)
    assert [again.id for again in queue.claim("third", wait=60)] == [task.id]


@proves("Q17", "Q5")
def test_a_lease_that_was_lost_is_not_taken_back(kit: EventKit, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the heartbeat nor the end takes it back; the loss is logged, and the new holder keeps the task."""
    queue = kit.queue("jobs")
    for error in (None, ValueError("broken"), Permanent("broken")):
        task = _claimed_one(queue)
        current = []
        with queue.handling(task):
            advance(kit, 301)
            current = queue.claim("another")
            if error is not None:
                raise error
        assert "had run out" in caplog.text
        caplog.clear()
        assert (_info(queue, task).state, _info(queue, task).worker) == ("running", "another")
        assert queue.ack(*current) is True


@proves("Q17", "Q9")
def test_a_task_that_is_cancelled_while_it_runs_stays_away(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue(1)
    [task] = queue.claim("worker", lease=0.3)
    with queue.handling(task):
        assert queue.cancel(task.id, running=True)
        time.sleep(0.3)
    assert queue.tasks() == []


@proves("Q17", "Q16")
def test_a_body_may_finish_the_task_itself(kit: EventKit) -> None:
    """A body acks with a result or retries with a delay; the end of the body then changes nothing."""
    queue = kit.queue("jobs")
    queue.configure(keep_done=60)
    task = _claimed_one(queue)
    with queue.handling(task):
        assert queue.ack(task, result="sent")
    info = _info(queue, task)
    assert (info.state, info.result) == ("done", "sent")

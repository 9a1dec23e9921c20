"""The end of a task: ack, retry, fail, release, and `handling`."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

import eventkit
from eventkit import EventKit, Fixed, NewTask, Permanent, Retry, Snooze, Task, TaskQueue
from eventkit.testing import advance
from eventkit.values import TaskInfo

from .clauses import proves
from .processes import spawn
from .threads import asleep

_FENCED: dict[str, Callable[[TaskQueue[Any], Task[Any]], object]] = {
    "ack": lambda queue, task: queue.ack(task),
    "ack with a result": lambda queue, task: queue.ack(task, result=1),
    "ack and chain": lambda queue, task: queue.ack(task, then=[queue.new("next", key=str(task.id))]),
    "ack_many with results": lambda queue, task: queue.ack_many([task], results={task.id: 1}) == [task.id],
    "ack_many": lambda queue, task: queue.ack_many([task]) == [task.id],
    "retry": lambda queue, task: queue.retry(task, delay=0, error="again"),
    "fail": lambda queue, task: queue.fail(task, "broken"),
    "release": lambda queue, task: queue.release(task),
    "snooze": lambda queue, task: queue.snooze(task, 10),
    "extend": lambda queue, task: queue.extend(task, 1000),
}
_FENCED |= {
    "ack by id and token": lambda queue, task: queue.ack((task.id, task.token), result=1),
    "ack_many by id and token": lambda queue, task: queue.ack_many([(task.id, task.token)]) == [task.id],
    "retry by id and token": lambda queue, task: queue.retry((task.id, task.token), delay=0, error="again"),
    "fail by id and token": lambda queue, task: queue.fail((task.id, task.token), "broken"),
    "extend by id and token": lambda queue, task: queue.extend((task.id, task.token), 1000),
}


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


@proves("Q4", "Q5")
def test_a_handle_that_does_not_hold_its_task_changes_nothing(kit: EventKit) -> None:
    """The lease has lapsed, the same worker has claimed the task again, or the token is another one."""
    lapsed = _claimed(kit.queue("lapsed"))
    advance(kit, 301)
    again = kit.queue("claimed again")
    again.enqueue(1, key="key")
    [stale] = again.claim("worker", lease=0)
    [current] = again.claim("worker")
    held = _claimed(kit.queue("forged"))
    forged = msgspec.structs.replace(held, token=held.token ^ 1)
    for task in (lapsed, stale, forged):
        queue = kit.queue(task.queue)
        before = queue.tasks()
        for name, end in _FENCED.items():
            assert end(queue, task) is False, (task.queue, name)
            assert queue.tasks() == before, (task.queue, name)
    assert again.ack(current)
    assert kit.queue("forged").ack(held)


@proves("Q5", "Q11")
def test_a_failure_has_a_code(kit: EventKit) -> None:
    """The caller names it; else it is how the task died.  A requeued task has none."""
    queue = kit.queue("jobs")
    ends: dict[str, Callable[[Task[Any]], object]] = {
        "CARD_DECLINED": lambda task: queue.fail(task, "no", code="CARD_DECLINED"),
        "FAILED": lambda task: queue.fail(task, "no"),
        "BUSY": lambda task: queue.retry(task, code="BUSY"),
        "EXHAUSTED": lambda task: queue.retry(task),
        "LEASE_LOST": lambda task: None,
    }
    for code, end in ends.items():
        task = _claimed(queue, max_attempts=1)
        end(task)
        advance(kit, 301)
        info = queue.get(task.id)
        assert info is not None
        assert (info.state, info.code) == ("dead", code)
    expired = queue.enqueue(1, expires=1).id
    advance(kit, 2)
    assert {info.code for info in queue.dead()} == {"EXPIRED", *ends}
    assert queue.requeue([expired]) == 1
    [again] = queue.claim("worker")
    assert again.id == expired
    assert queue.retry(again, delay=60, error="later", code="RATE_LIMITED")
    waiting = queue.get(again.id)
    assert waiting is not None
    assert (waiting.state, waiting.code) == ("scheduled", "RATE_LIMITED")
    with pytest.raises(ValueError, match="the name of a code has 1 to 100 characters"):
        queue.fail(again, "no", code="")


@proves("Q5")
def test_a_finished_handle_is_worth_nothing(kit: EventKit) -> None:
    for name, end in _FENCED.items():
        queue = kit.queue(name)
        task = _claimed(queue)
        assert end(queue, task) is True, name
        if name.startswith("extend"):
            continue
        before = queue.tasks()
        for again, end_again in _FENCED.items():
            assert end_again(queue, task) is False, (name, again)
        assert queue.tasks() == before, name


def _finish(url: str, *held: tuple[int, int]) -> list[Any]:
    with eventkit.connect(url) as kit:
        queue = kit.queue("jobs")
        first, second, third, fourth = held
        ended = [queue.extend(first, 1000), queue.ack(first, result="sent"), queue.retry(second, delay=60)]
        return [*ended, queue.fail(third, "broken"), queue.ack_many([fourth], results={fourth[0]: "kept"})]


@proves("Q5")
def test_another_process_finishes_tasks_by_id_and_token(kit: EventKit, url: str) -> None:
    queue = kit.queue("jobs")
    queue.enqueue_many([NewTask(number, key=str(number)) for number in range(4)])
    tasks = queue.claim("worker", 4)
    held = [(task.id, task.token) for task in tasks]
    with spawn(_finish, url, *held) as process:
        assert process.result() == [True, True, True, True, [tasks[3].id]]
    assert [(task.id, task.state) for task in queue.tasks()] == [(tasks[1].id, "scheduled"), (tasks[2].id, "dead")]
    assert [kit.results.get(tasks[0].id), kit.results.get(tasks[3].id)] == ["sent", "kept"]
    with pytest.raises(TypeError, match="token is a whole number, not str"):
        queue.ack((tasks[1].id, str(tasks[1].token)))  # type: ignore[arg-type]
    wrong: Any
    for wrong in (tasks[1].id, [tasks[1].id, tasks[1].token], (tasks[1].id,), None):
        for call in (queue.ack, queue.retry, queue.release, lambda task: queue.ack_many([task])):
            with pytest.raises(TypeError, match="pass a claimed task, or its id and its token as a pair, not"):
                call(wrong)


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

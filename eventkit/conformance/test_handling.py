"""Around the work on a task: `handling`, the second half of Q17."""

import time
from datetime import timedelta
from typing import Any

import pytest

from eventkit import EventKit, Fixed, Permanent, Retry, Snooze, Task, TaskInfo, TaskQueue
from eventkit.testing import advance

from .clauses import proves
from .races import asleep


class _Shutdown(BaseException):
    """Not an error of the work: somebody wants the process to end."""


def _claimed(queue: TaskQueue[Any], **keywords: Any) -> Task[Any]:
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
    task = _claimed(queue)
    with queue.handling(task) as handled:
        assert handled == task
        assert _info(queue, task).state == "leased"
    assert queue.get(task.id) is None


@proves("Q17", "Q6")
def test_an_exception_means_another_attempt(kit: EventKit, caplog: pytest.LogCaptureFixture) -> None:
    """By the queue's policy, with the traceback as the error; it is logged and goes no further."""
    queue = kit.queue("jobs")
    queue.configure(retry=Fixed(base=60, jitter=0))
    task = _claimed(queue)
    with queue.handling(task):
        raise KeyError("no such customer")
    info = _info(queue, task)
    assert (info.state, info.attempt) == ("scheduled", 1)
    assert info.error is not None
    assert "KeyError: 'no such customer'" in info.error
    assert "test_handling.py" in info.error
    assert "failed in attempt 1" in caplog.text
    advance(kit, 58)
    assert queue.claim("worker") == []
    advance(kit, 2)
    [again] = queue.claim("worker")
    assert again.attempt == 2


@proves("Q17", "Q3", "Q11")
def test_the_last_attempt_leaves_a_dead_letter(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    task = _claimed(queue, max_attempts=1)
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
    task = _claimed(queue, max_attempts=9)
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
    task = _claimed(queue, max_attempts=1)
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
    task = _claimed(queue, max_attempts=9)
    with queue.handling(task):
        raise Permanent("no such address")
    [dead] = queue.dead()
    assert (dead.id, dead.reason, dead.error, dead.attempt) == (task.id, "failed", "no such address", 1)


@proves("Q17")
def test_what_is_no_error_releases_the_task_and_goes_on(kit: EventKit) -> None:
    """A shutdown costs no attempt."""
    queue = kit.queue("jobs")
    task = _claimed(queue)
    with pytest.raises(_Shutdown), queue.handling(task):
        raise _Shutdown
    info = _info(queue, task)
    assert (info.state, info.attempt) == ("ready", 0)


@proves("Q17", "Q4")
def test_the_lease_lasts_as_long_as_the_work(kit: EventKit, connect: Any, url: str) -> None:
    """Nobody gets the task meanwhile, however often its lease would have run out."""
    queue, other = kit.queue("jobs"), connect(url).queue("jobs")
    queue.enqueue_many(["first", "second"])
    first, second = queue.claim("worker", 2, lease=1.0)
    thief = asleep(other.claim, "thief", 9, wait=2.2)
    with queue.handling(first), queue.handling(second):
        assert thief.result() == []
    assert queue.list() == []


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
    """Neither by the heartbeat nor at the end; it is logged, and the new holder is not disturbed."""
    queue = kit.queue("jobs")
    for error in (None, ValueError("broken"), Permanent("broken")):
        task = _claimed(queue)
        current = []
        with queue.handling(task):
            advance(kit, 301)
            current = queue.claim("another")
            if error is not None:
                raise error
        assert "no longer ours" in caplog.text
        caplog.clear()
        assert (_info(queue, task).state, _info(queue, task).worker) == ("leased", "another")
        assert queue.ack(*current) is True


@proves("Q17", "Q9")
def test_a_task_that_is_cancelled_while_it_runs_stays_away(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue(1)
    [task] = queue.claim("worker", lease=0.3)
    with queue.handling(task):
        assert queue.cancel(task.id, running=True)
        time.sleep(0.3)
    assert queue.list() == []


@proves("Q17", "Q16")
def test_a_body_may_finish_the_task_itself(kit: EventKit) -> None:
    """A result is given by ack, or a delay by retry; the end of the body then changes nothing."""
    queue = kit.queue("jobs")
    queue.configure(keep_done=60)
    task = _claimed(queue)
    with queue.handling(task):
        assert queue.ack(task, result="sent")
    info = _info(queue, task)
    assert (info.state, info.result) == ("done", "sent")

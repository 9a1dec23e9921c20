"""Dead letters by their error, and queues that are forgotten: Q21."""

from typing import Any

import pytest

from eventkit import DeadLetters, EventKit, NewTask, QueueSettings
from eventkit.testing import advance

from .clauses import proves
from .races import asleep
from .threads import PATIENCE


@proves("Q21")
def test_dead_letters_are_counted_by_error(kit: EventKit) -> None:
    queue: Any = kit.queue("jobs")
    ids = [made.id for made in queue.enqueue_many([1, 2, 3, NewTask(4, expires=10)])]
    for task, error in zip(queue.claim("worker", 3), ["no", "other", "no"], strict=True):
        queue.fail(task, error)
    kit.queue("others").fail(_claimed(kit.queue("others")), "no")
    advance(kit, 11)
    groups = queue.dead_by_error()
    assert all(isinstance(group, DeadLetters) and group.first_at <= group.last_at for group in groups)
    assert [(group.reason, group.error, group.number, group.last_id) for group in groups] == [
        ("failed", "no", 2, ids[2]),
        ("expired", None, 1, ids[3]),
        ("failed", "other", 1, ids[1]),
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
    assert (queue.settings(), queue.stats().paused, queue.list()) == (QueueSettings(), False, [])
    assert queue.enqueue("again", key="k").created
    assert kit.queue("never seen").drop()


@proves("Q21")
@pytest.mark.parametrize("state", ["scheduled", "ready", "leased", "dead"])
def test_a_queue_with_tasks_is_forgotten_only_by_force(kit: EventKit, state: str) -> None:
    queue: Any = kit.queue("jobs")
    queue.configure(max_attempts=9)
    queue.enqueue("task", delay=60 if state == "scheduled" else None, key="k")
    task = None
    if state in ("leased", "dead"):
        [task] = queue.claim("worker")
    if state == "dead":
        queue.fail(task, "no")
    kit.queue("others").enqueue("left")
    assert not queue.drop()
    assert (queue.settings().max_attempts, [info.state for info in queue.list()]) == (9, [state])
    assert queue.drop(force=True)
    assert (queue.settings(), queue.list()) == (QueueSettings(), [])
    if state == "leased":
        assert not queue.ack(task)
    assert queue.enqueue("again", key="k").created
    assert [task.payload for task in queue.claim("worker")] == ["again"]
    assert kit.queue("others").size() == 1


@proves("Q21", "W2")
def test_who_waits_for_room_is_let_in_when_the_queue_is_forgotten(kit: EventKit) -> None:
    queue: Any = kit.queue("jobs")
    queue.configure(max_size=1)
    queue.enqueue("first")
    waiting = asleep(queue.enqueue, "second", wait=30)
    queue.drop(force=True)
    assert waiting.result(PATIENCE).created

"""Who runs a task that is cancelled hears of it: Q9."""

from typing import Any

from eventkit import EventKit
from eventkit.testing import advance

from .calling import Caller
from .clauses import proves
from .races import SOON, asleep
from .rollback import rolled_back

CHANNEL = "eventkit:cancelled"


def _told(kit: EventKit) -> list[Any]:
    """What was said on the channel so far."""
    end = kit.channel(CHANNEL).notify("end")
    with kit.channel(CHANNEL).listen(start="earliest") as heard:
        told = []
        while (notification := next(heard)).id < end:
            told.append(notification.payload)
    return [payload for payload in told if payload != "end"]


@proves("Q9", "W1")
def test_who_runs_a_task_hears_that_it_is_cancelled(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    with kit.channel(CHANNEL).listen() as heard:
        for key in (None, "key"):
            id = queue.enqueue(1, key=key).id
            queue.claim("worker")
            waiting = asleep(heard.__next__)
            assert queue.cancel(id, running=True) is True
            assert waiting.result(SOON).payload == {"queue": "jobs", "id": id}


@proves("Q9", "G4")
def test_word_of_it_is_part_of_the_transaction(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    id = queue.enqueue(1).id
    queue.claim("worker")
    with rolled_back(kit) as tx:
        assert queue.cancel(id, running=True, tx=tx) is True
    assert _told(kit) == []
    with kit.transaction() as tx:
        assert queue.cancel(id, running=True, tx=tx) is True
    assert _told(kit) == [{"queue": "jobs", "id": id}]


@proves("Q9")
def test_nobody_is_told_of_a_task_that_nobody_runs(kit: EventKit) -> None:
    """One that waits, whose lease has lapsed, that is dead, or is left because it runs."""
    queue = kit.queue("jobs")
    ready, later, lapsed = queue.enqueue(1).id, queue.enqueue(2, delay=60).id, queue.enqueue(3, priority=1).id
    queue.claim("worker", lease=5)
    advance(kit, 5)
    dead = queue.enqueue(4, priority=2).id
    [task] = queue.claim("worker")
    queue.fail(task, "broken")
    running = queue.enqueue(5, priority=3).id
    queue.claim("worker")
    assert [queue.cancel(id, True) for id in (ready, later, lapsed, dead)] == [True, True, True, False]
    assert queue.cancel(running) is False
    assert _told(kit) == []


@proves("Q9", "P2")
def test_the_function_of_sql_tells_it_too(kit: EventKit, caller: Caller) -> None:
    queue = kit.queue("jobs")
    queue.enqueue_many([1, 2])
    [task] = queue.claim("worker")
    waiting = queue.peek()[0].id
    assert caller.call("cancel", "jobs", waiting, True)
    assert caller.call("cancel", "jobs", task.id, True)
    assert _told(kit) == [{"queue": "jobs", "id": task.id}]

"""Pages of the dashboard's lists, on each of the two databases."""

import json
from typing import Any

import databases
import pytest

from eventkit import EventKit, NewTask, checks
from eventkit.operations.admin import (
    BrowseDead,
    BrowseEvents,
    BrowseTasks,
    CountDeaths,
    Deaths,
    FindDead,
    FindTasksOfKey,
    PurgeDeadTasks,
    ReadHistory,
    RequeueEdited,
)
from eventkit.testing import advance

url, kit = databases.url, databases.kit
pytestmark = databases.on_both


@pytest.fixture
def ask(kit: EventKit) -> Any:
    """Return the answer to an operation."""
    return kit._connection.execute  # type: ignore[attr-defined]


def test_a_page_has_what_is_of_interest_first(kit: EventKit, ask: Any) -> None:
    """Each state has its own order and complete pages, without rows of another state or queue."""
    queue = kit.queue("jobs")
    queue.configure(keep_done=3600)
    kit.queue("other").enqueue_many(range(3))
    queue.enqueue_many([NewTask(number, priority=number % 2) for number in range(10)])
    later = [queue.enqueue("later", delay=delay).id for delay in (300, 100, 200)]
    done, dead, *_ = tasks = queue.claim("worker", 6, lease=60)
    queue.ack(done)
    queue.fail(dead, "broken")
    queue.ack(tasks[2])

    def page(state: str, limit: int = 100, skip: int = 0) -> list[int]:
        looks = ask(BrowseTasks("jobs", checks.state(state), limit, skip))
        assert {look.state for look in looks} <= {state}
        return [look.id for look in looks]

    assert page("ready") == [task.id for task in queue.peek(100)]
    assert page("ready", 2) + page("ready", 2, 2) == page("ready")
    assert page("scheduled") == [later[1], later[2], later[0]]
    assert sorted(page("running")) == sorted(task.id for task in tasks[3:])
    assert page("done") == [tasks[2].id, done.id]
    assert page("dead") == [dead.id]
    [look] = ask(BrowseTasks("jobs", "dead", 1, 0))
    assert (look.error, look.reason, look.worker) == ("broken", "failed", "worker")
    advance(kit, 150)
    assert page("scheduled") == [later[2], later[0]]
    assert set(page("ready")) == {task.id for task in queue.peek(100)} >= {later[1]}


def test_long_texts_are_cut_off(kit: EventKit, ask: Any) -> None:
    long = {"text": "x" * 100_000}
    kit.queue("jobs").enqueue(long)
    kit.stream("topic").publish(long)
    [task] = ask(BrowseTasks("jobs", "ready", 10, 0))
    [event] = ask(BrowseEvents("topic", None, 2**62, 0, 10))
    for look in (task, event):
        assert look.payload == '{"text":"' + "x" * 391
        assert look.payload_length == 100_011


def test_dead_tasks_are_found_by_what_they_died_of(kit: EventKit, ask: Any) -> None:
    """They can be deleted, or edited and requeued; only dead tasks of this queue are affected."""
    queue = kit.queue("jobs")
    for name in ("jobs", "other"):
        kit.queue(name).enqueue_many([NewTask(number, key=f"key {number}") for number in range(5)])
    tasks = queue.claim("worker", 4)
    for task, error in zip(tasks, ("one", "one", "two", None), strict=True):
        assert queue.fail(task, error) if error else queue.retry(task, delay=600)
    ids = [task.id for task in tasks]
    assert ask(FindDead("jobs", "failed", "one", 10)) == ids[:2]
    assert [look.id for look in ask(BrowseDead("jobs", "failed", "one", 10, 0))] == ids[1::-1]
    assert ask(FindDead("jobs", "failed", None, 10)) == []
    assert ask(PurgeDeadTasks("jobs", [*ids, *(task.id for task in kit.queue("other").tasks())])) == 3
    assert (queue.stats().dead, queue.size(), kit.queue("other").size()) == (0, 2, 5)
    assert not queue.enqueue("again", key="key 0").created, "its key stays reserved"
    [last] = queue.claim("worker")
    queue.fail(last, "broken")
    assert not ask(RequeueEdited("jobs", ids[3], '{"edited":true}')), "it is scheduled, and not dead"
    assert not ask(RequeueEdited("other", last.id, '{"edited":true}'))
    assert ask(RequeueEdited("jobs", last.id, '{"edited":true}'))
    [again] = queue.claim("worker")
    assert (again.id, again.payload, again.attempt) == (last.id, {"edited": True}, 1)


def test_tasks_are_found_by_their_key(kit: EventKit, ask: Any) -> None:
    queue = kit.queue("jobs")
    queue.enqueue_many([NewTask(number, key=f"key {number}") for number in range(3)])
    with kit.transaction() as tx:
        for number in range(3):
            kit.outbox("mail", ordered=True).add(number, tx=tx, key="lane")
    assert [look.payload for look in ask(FindTasksOfKey("jobs", "key 1", 10))] == ["1"]
    assert ask(FindTasksOfKey("jobs", "lane", 10)) == []
    assert len(ask(FindTasksOfKey("outbox:mail", "lane", 10))) == 3


def test_events_are_read_backwards(kit: EventKit, ask: Any) -> None:
    """The latest events come first, all of them or those of a key, down to an offset."""
    stream = kit.stream("topic")
    offsets = [stream.publish(number, key="even" if number % 2 == 0 else None) for number in range(10)]
    kit.stream("other").publish(1, key="even")

    def listed(key: str | None, before: int, least: int, limit: int) -> list[int]:
        return [event.offset for event in ask(BrowseEvents("topic", key, before, least, limit))]

    assert listed(None, 2**62, 0, 3) == offsets[:-4:-1]
    assert listed(None, offsets[4], 0, 100) == offsets[3::-1]
    assert listed("even", 2**62, 0, 100) == offsets[8::-2]
    assert listed("even", 2**62, offsets[4], 100) == [offsets[8], offsets[6], offsets[4]]


def test_a_task_has_its_history(kit: EventKit, ask: Any) -> None:
    queue = kit.queue("jobs")
    queue.configure(history=True)
    first, second = queue.enqueue(1), queue.enqueue(2)
    [task] = queue.claim("worker")
    queue.fail(task, "broken")
    steps = ask(ReadHistory("jobs", first.id, 100))
    assert [json.loads(step.payload)["kind"] for step in steps] == ["enqueued", "started", "failed", "dead"]
    assert len(ask(ReadHistory("jobs", second.id, 100))) == 1
    assert ask(ReadHistory("other", first.id, 100)) == []


def test_deaths_are_counted_once(kit: EventKit, ask: Any) -> None:
    """A counter continues from its last position; the most recent deaths are counted next time."""
    moment, deaths = ask(CountDeaths(None, 0))
    assert deaths == []
    queue = kit.queue("jobs")
    queue.enqueue_many([1, 2, NewTask(3, max_attempts=1)])
    one, two, three = queue.claim("worker", 3)
    queue.fail(one, "broken")
    queue.fail(two, "broken")
    queue.retry(three, error="broken")
    assert ask(CountDeaths(moment - 60_000, 30_000)) == (pytest.approx(moment - 30_000, abs=20_000), [])
    counted, deaths = ask(CountDeaths(moment - 60_000, -1))
    assert deaths == [Deaths("jobs", "exhausted", 1), Deaths("jobs", "failed", 2)]
    assert ask(CountDeaths(counted, -1))[1] == []

"""Tasks that an ack enqueues: Q20; and results of many tasks at once: Q5."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eventkit import EventKit, NewTask, QueueFull, Task, TaskQueue

from .clauses import both_flavours, proves
from .threads import SOON, asleep, rolled_back


@dataclass
class Letter:
    to: str


def _claimed(queue: TaskQueue[Any], **keywords: Any) -> Task[Any]:
    queue.enqueue("first", **keywords)
    [task] = queue.claim("worker")
    return task


def _kinds(kit: EventKit) -> dict[str, Callable[[], Task[Any]]]:
    """Return a claimed task of each kind that is finished in its own way."""
    kept = kit.queue("kept")
    kept.configure(keep_done=60)
    return {
        "plain": lambda: _claimed(kit.queue("plain")),
        "keyed": lambda: _claimed(kit.queue("keyed"), key="key"),
        "kept": lambda: _claimed(kept),
    }


@proves("Q20")
def test_an_ack_enqueues_what_follows(kit: EventKit) -> None:
    """The tasks are enqueued in any queues, in order, with all options; the result is saved in the same commit."""
    for name, claimed in _kinds(kit).items():
        queue, other = kit.queue(name), kit.queue(f"after {name}")
        task = claimed()
        moment = datetime.now(UTC) + timedelta(hours=1)
        following = [
            other.new({"n": 1}),
            queue.new("same queue"),
            other.new({"n": 2}, priority=3, max_attempts=7, headers={"a": "b"}, key="k", expires=60),
            other.new({"n": 3}, delay=30),
            other.new({"n": 4}, run_at=moment),
            NewTask({"n": 5}, queue=other.name),
        ]
        assert other.size() == 0
        assert queue.ack(task, result="sent", then=following) is True
        assert kit.results.get(task.id) == "sent"
        assert [info.payload for info in queue.tasks("ready")] == ["same queue"]
        infos = other.tasks()
        assert [info.payload["n"] for info in infos] == [1, 2, 3, 4, 5]
        assert [info.state for info in infos] == ["ready", "ready", "scheduled", "scheduled", "ready"]
        best = infos[1]
        assert (best.priority, best.max_attempts, best.headers, best.key) == (3, 7, {"a": "b"}, "k")
        assert best.expires_at is not None
        assert infos[3].run_at == moment.replace(microsecond=moment.microsecond // 1000 * 1000)


@proves("Q20", "Q13")
def test_what_finds_no_room_leaves_the_task_as_it_was(kit: EventKit) -> None:
    for name, claimed in _kinds(kit).items():
        queue, other, full = kit.queue(name), kit.queue(f"after {name}"), kit.queue(f"full {name}")
        full.configure(max_size=1)
        full.enqueue("in the way")
        task = claimed()
        before = queue.tasks()
        with pytest.raises(QueueFull):
            queue.ack(task, result=1, then=[other.new(1), full.new(2)])
        assert (queue.tasks(), other.tasks(), full.size()) == (before, [], 1)
        assert kit.results.get(task.id) is None
        assert queue.ack(task) is True


@proves("Q20", "Q13")
def test_the_task_makes_room_for_what_follows_it(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.configure(max_size=1)
    task = _claimed(queue)
    for number in range(3):
        assert queue.ack(task, then=[queue.new(number)]) is True
        [task] = queue.claim("worker")
        assert task.payload == number


@proves("Q20", "Q7")
def test_what_has_been_enqueued_already_is_not_enqueued_again(kit: EventKit) -> None:
    queue, other = kit.queue("jobs"), kit.queue("others")
    other.enqueue("there", key="k")
    task = _claimed(queue)
    assert queue.ack(task, then=[other.new("again", key="k"), other.new("new", key="l")]) is True
    assert [info.payload for info in other.tasks()] == ["there", "new"]


@proves("Q20", "W1")
@both_flavours
def test_what_follows_wakes_its_worker(kit: EventKit) -> None:
    queue, other = kit.queue("jobs"), kit.queue("others")
    task = _claimed(queue)
    waiting = asleep(other.claim, "waiter", wait=SOON)
    assert queue.ack(task, then=[other.new("next")])
    assert [task.payload for task in waiting.result(SOON)] == ["next"]


@proves("Q20", "G9", "G8")
def test_a_new_task_is_checked_when_it_is_made(kit: EventKit) -> None:
    """The handle of the target queue checks the task when it is made, and writes nothing."""
    letters = kit.queue("letters", type=Letter)
    wrong: list[Callable[[], Any]] = [
        lambda: letters.new(object()),  # type: ignore[arg-type]
        lambda: kit.queue("jobs").new(float("nan")),
        lambda: kit.queue("jobs").new(1, priority=2**40),
        lambda: kit.queue("jobs").new(1, max_attempts=0),
        lambda: kit.queue("jobs").new(1, run_at=datetime(2026, 1, 1)),
        lambda: kit.queue("jobs").new(1, key=""),
        lambda: kit.queue("jobs").new(1, headers={"a": 1}),  # type: ignore[dict-item]
    ]
    for make in wrong:
        with pytest.raises((TypeError, ValueError)):
            make()
    task = _claimed(kit.queue("jobs"))
    assert kit.queue("jobs").ack(task, then=[letters.new(Letter("ann"))])
    letters.enqueue_many([letters.new(Letter("bob"), priority=-1), Letter("cy")])
    assert sorted(task.payload.to for task in letters.claim("worker", 9)) == ["ann", "bob", "cy"]


@proves("Q20")
def test_what_follows_says_its_queue(kit: EventKit) -> None:
    """A task without a queue is refused before anything is written, as is one enqueued in another queue."""
    queue, other = kit.queue("jobs"), kit.queue("others")
    task = _claimed(queue)
    for following in (NewTask(1), 1, {"payload": 1}):
        with pytest.raises(TypeError, match=r"queue\.new"):
            queue.ack(task, then=[other.new(0), following])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="control"):
        queue.ack(task, then=[NewTask(1, queue="a\n")])
    with pytest.raises(ValueError, match="'others', not for 'jobs'"):
        queue.enqueue_many([1, other.new(2)])
    assert (queue.size(), other.size()) == (1, 0)
    assert queue.ack(task)


@proves("Q5", "K3")
def test_ack_many_saves_the_results_that_are_given(kit: EventKit) -> None:
    """Results are saved for tasks that the caller still held, of any kind and in any queue; the others have none."""
    kinds = _kinds(kit)
    tasks = [kinds[name]() for name in kinds for _ in range(2) if name != "keyed"] + [kinds["keyed"]()]
    kit.queue("jobs").enqueue("lapsed")
    [lapsed] = kit.queue("jobs").claim("worker", lease=0)
    given = [tasks[1], tasks[2], tasks[4], lapsed]
    results = {task.id: {"of": task.id} for task in given}
    finished = kit.queue("jobs").ack_many([*tasks, lapsed], results=results)
    assert finished == sorted(task.id for task in tasks)
    for task in (*tasks, lapsed):
        expected = {"of": task.id} if task in given and task is not lapsed else "none"
        assert kit.results.get(task.id, "none") == expected
    [one, two] = kit.queue("kept").tasks("done")
    assert sorted(str(info.result) for info in (one, two)) == sorted(str(results.get(info.id)) for info in (one, two))


@proves("Q5", "K3", "G4")
def test_many_acks_and_their_results_are_one(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue_many(range(40))
    tasks = queue.claim("worker", 40)
    results = {task.id: task.payload for task in tasks[:35]}
    with rolled_back(kit) as tx:
        assert len(queue.ack_many(tasks, tx=tx, results=results)) == 40
    assert queue.stats().running == 40
    assert kit.results.get(tasks[0].id, "none") == "none"
    for wrong in ({tasks[0].id: float("nan")}, {0: "unknown"}):
        with pytest.raises(ValueError, match=r"nan|\[0\]"):
            queue.ack_many(tasks, results=wrong)
    assert queue.stats().running == 40
    waiting = asleep(kit.results.wait, tasks[34].id, SOON)
    assert len(queue.ack_many(tasks, results=results)) == 40
    assert waiting.result(SOON) == 34
    assert [kit.results.get(task.id, "none") for task in tasks] == [*range(35), *["none"] * 5]

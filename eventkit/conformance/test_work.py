"""`work`, on one queue and on several."""

import asyncio
import itertools
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

import eventkit
from eventkit import Closed, EventKit, TaskQueue

from .clauses import proves
from .processes import spawn
from .threads import PATIENCE, SOON, asleep, in_thread


@proves("Q17", "Q2")
def test_work_hands_out_what_there_is_best_first(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue_many([1, 2, 3])
    queue.enqueue(4, priority=1)
    with queue.work("worker", batch=2, lease=50) as tasks:
        got = []
        for task in tasks:
            info = queue.get(task.id)
            assert info is not None
            assert (task.attempt, task.lease_ms, info.state, info.worker) == (1, 50_000, "running", "worker")
            got.append(task.payload)
            assert queue.ack(task)
            if len(got) == 4:
                break
    assert got == [4, 1, 2, 3]
    assert queue.tasks() == []


@proves("Q17")
def test_a_worker_without_a_name_gets_one(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.enqueue(1)
    with queue.work() as tasks:
        task = next(tasks)
        info = queue.get(task.id)
        assert info is not None
        assert info.worker


@proves("Q17", "Q4", "W1")
def test_work_wakes_on_the_next_due_moment(kit: EventKit) -> None:
    """It wakes when a task falls due and when a lease lapses, although no process commits."""
    queue = kit.queue("jobs")
    queue.enqueue("due", delay=0.4)
    started = time.monotonic()
    with queue.work(lease=0.4) as tasks:
        assert [(task.payload, task.attempt) for task in (next(tasks), next(tasks))] == [("due", 1), ("due", 2)]
    assert 0.7 < time.monotonic() - started < 2 * SOON


@proves("Q17", "W2")
def test_work_wakes_when_a_task_is_put_back(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    with queue.work() as tasks:
        for put_back in ("retry", "release", "requeue"):
            id = queue.enqueue(put_back).id
            [task] = queue.claim("another")
            if put_back == "requeue":
                queue.fail(task, "broken")
            work = asleep(tasks.__next__)
            assert not work.done()
            if put_back == "retry":
                queue.retry(task, delay=0)
            elif put_back == "release":
                queue.release(task)
            else:
                queue.requeue()
            again = work.result(SOON)
            assert again.id == id
            queue.ack(again)


@proves("Q17", "S5", "G1")
def test_work_ends_when_its_kit_is_closed(connect: Any, url: str) -> None:
    kit = connect(url)
    work = asleep(lambda: list(kit.queue("jobs").work()))
    kit.close()
    assert work.result(SOON) == []


@proves("Q17", "S5")
def test_tasks_of_a_batch_that_were_not_handed_out_are_given_back(kit: EventKit, connect: Any, url: str) -> None:
    """They keep their attempt and the one handed out stays leased, however the iteration ends."""
    for ending in ("close", "with", "kit"):
        worked = connect(url)
        queue = worked.queue(ending)
        ids = [answer.id for answer in queue.enqueue_many([1, 2, 3])]
        tasks = queue.work("worker", batch=3)
        handed_out = next(tasks)
        assert [info.state for info in kit.queue(ending).tasks()] == ["running"] * 3
        if ending == "close":
            tasks.close()
        elif ending == "with":
            with tasks:
                pass
        else:
            worked.close()
        infos = kit.queue(ending).tasks()
        assert [(info.state, info.attempt) for info in infos] == [("running", 1), ("ready", 0), ("ready", 0)], ending
        again = kit.queue(ending).claim("another", 9)
        assert [(task.id, task.attempt) for task in again] == [(id, 1) for id in ids[1:]]
        assert kit.queue(ending).ack(handed_out) is True


@proves("Q17", "G1")
def test_a_kit_closed_inside_the_loop_gives_back_the_batch(kit: EventKit, connect: Any, url: str) -> None:
    """This holds also if only the loop refers to the iterator, as in ``for task in queue.work()``."""
    worked = connect(url)
    worked.queue("jobs").enqueue_many([1, 2, 3])
    for task in worked.queue("jobs").work(batch=3):
        assert task.payload == 1
        worked.close()
    assert [(info.state, info.attempt) for info in kit.queue("jobs").tasks()] == [
        ("running", 1),
        ("ready", 0),
        ("ready", 0),
    ]


@proves("Q17", "G1")
def test_an_async_kit_closed_inside_the_loop_gives_back_the_batch(url: str) -> None:
    async def main() -> list[tuple[str, int]]:
        async with eventkit.connect_async(url) as kit:
            worked = await eventkit.connect_async(url)
            await worked.queue("jobs").enqueue_many([1, 2, 3])
            async for task in worked.queue("jobs").work(batch=3):
                assert task.payload == 1
                await worked.close()
            return [(info.state, info.attempt) for info in await kit.queue("jobs").tasks()]

    assert asyncio.run(main()) == [("running", 1), ("ready", 0), ("ready", 0)]


@proves("Q17", "G1")
def test_a_busy_worker_whose_kit_is_closed_keeps_no_more_than_its_task(kit: EventKit, connect: Any, url: str) -> None:
    for name in map(str, range(10)):
        kit.queue(name).enqueue_many([None] * 5000)
        worked = connect(url)
        queue = worked.queue(name)

        def work(queue: TaskQueue[Any] = queue) -> None:
            with suppress(Closed):
                for task in queue.work(batch=4):
                    queue.ack(task)

        worker = in_thread(work)
        while kit.queue(name).size() == 5000:
            time.sleep(0.001)
        worked.close()
        worker.result(PATIENCE)
        assert len(kit.queue(name).tasks("running")) <= 1
        waiting = kit.queue(name).tasks("ready")
        assert waiting
        assert all(info.attempt == 0 for info in waiting)


@proves("Q17", "Q14")
def test_poison_does_not_end_the_loop(kit: EventKit) -> None:
    kit.queue("jobs").enqueue_many(["poison", 1])
    with kit.queue("jobs", type=int).work(batch=2) as tasks:
        assert next(tasks).payload == 1
        work = asleep(tasks.__next__)
        kit.queue("jobs").enqueue_many(["poison", 2])
        assert work.result(SOON).payload == 2
    assert len(kit.queue("jobs").dead()) == 2


def _work(kit: EventKit, count: int, *queues: Any, **options: Any) -> list[Any]:
    """Return the payloads of the next *count* tasks, each acked."""
    got = []
    with kit.work(queues, **options) as tasks:
        for task in itertools.islice(tasks, count):
            assert kit.queue(task.queue).ack(task)
            got.append(task.payload)
    return got


@proves("Q19")
@pytest.mark.parametrize("batch", [1, 3])
def test_weights_share_out_the_turns(kit: EventKit, batch: int) -> None:
    """While all have tasks, a queue of twice the weight has twice as many handed out, and none waits long."""
    for name in ("a", "b", "c"):
        kit.queue(name).enqueue_many([name] * 200)
    got = _work(kit, 140, "a", ("b", 2), ("c", 0.5), batch=batch)
    shares = Counter(got)
    assert abs(shares["a"] - 40) <= 2 * batch
    assert abs(shares["b"] - 80) <= 2 * batch
    assert abs(shares["c"] - 20) <= 2 * batch
    assert all("c" in got[place : place + 7 * batch + 7] for place in range(0, 120, 7))


@proves("Q19")
def test_an_empty_queue_is_not_compensated_later(kit: EventKit) -> None:
    """A queue that was empty for long has its normal share from now on, and no more."""
    kit.queue("busy").enqueue_many(["busy"] * 200)
    with kit.work(["busy", "late"]) as tasks:
        for _ in range(100):
            next(tasks)
        kit.queue("late").enqueue_many(["late"] * 50)
        shares = Counter(next(tasks).payload for _ in range(20))
    assert abs(shares["late"] - 10) <= 1


@proves("Q19")
def test_a_strict_order_is_kept(kit: EventKit) -> None:
    """A later queue has a turn when the earlier ones are empty."""
    kit.queue("last").enqueue_many([5, 6])
    kit.queue("first").enqueue_many([1, 2])
    kit.queue("second").enqueue_many([3, 4])
    assert _work(kit, 6, "first", "second", "last", strict=True) == [1, 2, 3, 4, 5, 6]


@proves("Q19", "Q2")
def test_within_a_queue_the_order_is_its_own(kit: EventKit) -> None:
    for name in ("a", "b"):
        kit.queue(name).enqueue_many([eventkit.NewTask(f"{name}{n}", priority=n % 3) for n in range(6)])
    got = _work(kit, 12, "a", "b")
    for name in ("a", "b"):
        assert [text for text in got if text[0] == name] == [f"{name}{n}" for n in (2, 5, 1, 4, 0, 3)]


def _enqueue_late_to(url: str, name: str, options: dict[str, Any]) -> float:
    """Enqueue a task and return the time just after the commit."""
    with eventkit.connect(url) as kit:
        time.sleep(0.1)
        kit.queue(name).enqueue("late", **options)
        return time.time()


@proves("Q19", "W1", "W2")
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_task_of_any_of_them_wakes(kit: EventKit, url: str, name: str) -> None:
    with kit.work(["a", "b", "c"]) as tasks, spawn(_enqueue_late_to, url, name, {}) as process:
        assert next(tasks).queue == name
        assert time.time() - process.result() < SOON


@proves("Q19", "W1")
def test_the_next_due_moment_of_any_of_them_wakes(kit: EventKit) -> None:
    kit.queue("a").enqueue("later", delay=60)
    kit.queue("b").enqueue("soon", delay=0.3)
    started = time.monotonic()
    with kit.work(["a", "b"]) as tasks:
        assert next(tasks).payload == "soon"
    assert 0.2 < time.monotonic() - started < 2 * SOON


@proves("Q19", "Q12")
def test_a_paused_queue_is_passed_by(kit: EventKit) -> None:
    """It has its turn once it is resumed."""
    kit.queue("a").enqueue_many(["a"] * 3)
    kit.queue("b").enqueue_many(["b"] * 3)
    kit.queue("a").pause()
    with kit.work(["a", "b"], strict=True) as tasks:
        assert [next(tasks).payload for _ in range(3)] == ["b"] * 3
        waiting = asleep(lambda: next(tasks))
        kit.queue("a").resume()
        assert waiting.result(PATIENCE).payload == "a"


@proves("Q19")
def test_what_was_not_handed_out_goes_back(kit: EventKit) -> None:
    kit.queue("a").enqueue_many([1, 2, 3])
    with kit.work(["a", "b"], batch=3) as tasks:
        task = next(tasks)
    assert [(info.payload, info.state, info.attempt) for info in kit.queue("a").tasks()] == [
        (1, "running", 1),
        (2, "ready", 0),
        (3, "ready", 0),
    ]
    assert kit.queue("a").ack(task)


@proves("Q19")
@pytest.mark.parametrize(
    "queues", [[], ["a", "a"], ["a", ("a", 2)], [("a", 0)], [("a", -1)], [("a", float("inf"))], [""]]
)
def test_queues_that_make_no_sense_are_refused(kit: EventKit, queues: list[Any]) -> None:
    with pytest.raises(ValueError, match="queue"):
        kit.work(queues)

"""Groups of tasks: their order, their shares and their limits (Q24, Q25)."""

import random
from collections import Counter
from typing import Any

import pytest

import eventkit
from eventkit import EventKit, NewTask, Task
from eventkit.testing import advance

from .clauses import both_flavours, proves
from .threads import PATIENCE, SOON, asleep, rolled_back


def _add(queue: Any, group: str | None, *payloads: Any, **options: Any) -> list[int]:
    """Enqueue payloads in one group and return their ids."""
    return [made.id for made in queue.enqueue_many([NewTask(one, group=group, **options) for one in payloads])]


def _claimed(queue: Any, limit: int = 99) -> list[Any]:
    return [task.payload for task in queue.claim("w", limit)]


def _ordered(kit: EventKit, **settings: Any) -> Any:
    queue = kit.queue("jobs")
    queue.configure(ordered=True, **settings)
    return queue


@proves("Q24")
@both_flavours
def test_the_tasks_of_a_group_run_one_after_the_other(kit: EventKit) -> None:
    """Other groups, and tasks without a group, are not held up; a batch has one task of a group."""
    queue = _ordered(kit)
    for group in ("ann", "bob", None):
        _add(queue, group, *(f"{group} {n}" for n in range(3)))
    first = queue.claim("w", 9)
    assert [(task.payload, task.group) for task in first] == [
        ("ann 0", "ann"),
        ("bob 0", "bob"),
        *((f"None {n}", None) for n in range(3)),
    ]
    assert _claimed(queue) == []
    assert queue.stats().scheduled == 4
    assert [(task.payload, task.state) for task in queue.tasks(group="bob")] == [
        ("bob 0", "running"),
        ("bob 1", "scheduled"),
        ("bob 2", "scheduled"),
    ]
    assert queue.ack(first[1])
    assert _claimed(queue) == ["bob 1"]
    assert queue.ack_many([first[0], *first[2:]]) == sorted(task.id for task in (first[0], *first[2:]))
    assert _claimed(queue) == ["ann 1"]


@proves("Q24")
def test_a_retry_and_a_delay_hold_their_group(kit: EventKit) -> None:
    """The next task waits until the first one has succeeded or died."""
    queue = _ordered(kit, max_attempts=2)
    _add(queue, "ann", "fails", "second")
    _add(queue, "bob", "late", delay=60)
    _add(queue, "bob", "after the late one")
    [task] = queue.claim("w", 9)
    assert queue.retry(task, delay=30)
    assert _claimed(queue) == []
    advance(kit, 31)
    [task] = queue.claim("w", 9)
    assert (task.payload, task.attempt) == ("fails", 2)
    assert queue.retry(task)
    assert _claimed(queue) == ["second"]
    advance(kit, 30)
    assert _claimed(queue) == ["late"]


@pytest.mark.parametrize(
    "way",
    ["ack", "fail", "cancel", "cancel running", "purge", "lapse", "expire", "delete", "receive", "retry", "result"],
)
@proves("Q24")
def test_however_a_task_ends_the_next_one_is_claimable(kit: EventKit, caller: Any, way: str) -> None:
    """It is ready at once, for a worker that sleeps."""
    queue = _ordered(kit, max_attempts=1)
    ids = _add(queue, "ann", "first", **({"expires": 60} if way == "expire" else {}))
    ids += _add(queue, "ann", "second", "third")
    if way in ("cancel", "expire"):
        _add(queue, "bob", "before")
    [task] = (
        queue.claim("w", 1, lease=5 if way == "lapse" else None)
        if way not in ("receive", "cancel", "expire")
        else [None]
    )
    match way:
        case "ack":
            assert queue.ack(task)
        case "fail":
            assert queue.fail(task, "broken")
        case "cancel":
            assert queue.cancel(ids[0])
        case "cancel running":
            assert _claimed(queue) == []
            assert queue.cancel(ids[0], running=True)
        case "purge":
            assert _claimed(queue) == []
            assert queue.purge("running") == 1
        case "lapse":
            assert _claimed(queue) == []
            advance(kit, 6)
        case "expire":
            advance(kit, 61)
        case "delete":
            assert _claimed(queue) == []
            with kit.transaction() as tx:
                tx.execute(f"DELETE FROM {caller.prefix}eventkit_task WHERE id = {ids[0]}")
        case "receive":
            assert [one.payload for one in queue.receive(5)] == ["first"]
        case "retry":
            assert queue.retry(task, error="the last attempt")
        case "result":
            assert _claimed(queue) == []
            assert queue.ack(task, result={"done": True})
    waiting = {"cancel": ["second", "before"], "expire": ["second", "before"]}.get(way, ["second"])
    assert [one.payload for one in queue.claim("w", 9, wait=SOON)] == waiting
    assert _claimed(queue) == []
    assert queue.cancel(ids[1], running=True)
    assert _claimed(queue) == ["third"]


@proves("Q24")
def test_an_end_that_is_rolled_back_releases_nothing(kit: EventKit) -> None:
    queue = _ordered(kit)
    _add(queue, "ann", "first", "second")
    [task] = queue.claim("w", 9)
    assert _claimed(queue) == []
    with rolled_back(kit) as tx:
        assert queue.ack(task, tx=tx)
    assert _claimed(queue) == []
    assert queue.ack(task)
    assert _claimed(queue) == ["second"]


@proves("Q24", "W2")
@both_flavours
def test_the_end_of_a_task_wakes_the_worker_that_waits_for_its_group(kit: EventKit) -> None:
    queue = _ordered(kit)
    _add(queue, "ann", "first", "second")
    [task] = queue.claim("w", 9)
    waiting = asleep(lambda: queue.claim("v", wait=PATIENCE))
    assert queue.ack(task)
    assert [one.payload for one in waiting.result(SOON)] == ["second"]


@proves("Q24")
def test_a_dead_task_stops_its_group_if_the_queue_says_so(kit: EventKit) -> None:
    """The group goes on when it is requeued, first, or deleted."""
    queue = _ordered(kit, on_dead="stop", max_attempts=1)
    _add(queue, "ann", "first", "second", "third")
    _add(queue, "bob", "other")
    tasks = queue.claim("w", 9)
    assert queue.fail(tasks[0], "broken")
    assert queue.ack(tasks[1])
    assert _claimed(queue) == []
    assert queue.stats().scheduled == 2
    assert queue.requeue() == 1
    [task] = queue.claim("w", 9)
    assert task.payload == "first"
    assert queue.fail(task, "again")
    assert _claimed(queue) == []
    assert queue.purge_dead() == 1
    [task] = queue.claim("w", 9)
    assert task.payload == "second"
    queue.configure(on_dead="continue")
    assert queue.fail(task, "broken")
    assert _claimed(queue) == ["third"]


@proves("Q24", "Q12")
def test_the_order_can_be_switched_on_and_off(kit: EventKit) -> None:
    """It applies at once to tasks that wait."""
    queue = kit.queue("jobs")
    _add(queue, "ann", *range(4))
    [task] = queue.claim("w", 1)
    queue.configure(ordered=True)
    assert _claimed(queue) == []
    assert queue.ack(task)
    assert _claimed(queue) == [1]
    assert queue.stats().scheduled == 2
    queue.configure(ordered=False)
    assert _claimed(queue) == [2, 3]
    assert (queue.settings().ordered, queue.settings().on_dead) == (False, "continue")


@proves("Q24")
def test_an_ordered_queue_refuses_priorities(kit: EventKit) -> None:
    queue = _ordered(kit)
    with pytest.raises(ValueError, match="leave priority= out"):
        queue.enqueue(1, priority=1)
    with pytest.raises(ValueError, match="leave priority= out"):
        queue.enqueue(1, priority=-1, group="ann")
    with pytest.raises(ValueError, match="leave priority= out"):
        queue.enqueue_many([1, NewTask(2, priority=1)])
    assert queue.size() == 0
    queue.configure(ordered=False)
    queue.enqueue(1, priority=1)


@proves("Q24", "Q7")
def test_a_group_is_a_key_that_tasks_share(kit: EventKit) -> None:
    """It is independent of the unique key, and stays with the task."""
    queue = kit.queue("jobs")
    assert queue.enqueue(1, group="ann", key="one").created
    assert not queue.enqueue(2, group="ann", key="one").created
    assert queue.enqueue(3, group="ann").created
    first, second = queue.claim("w", 9)
    assert [(task.group, task.key) for task in (first, second)] == [("ann", "one"), ("ann", None)]
    assert queue.fail(second, "broken")
    assert [task.group for task in queue.dead()] == ["ann"]
    assert queue.ack(first, then=[queue.new(4, group="bob")])
    assert [(task.payload, task.group) for task in queue.claim("w", 9)] == [(4, "bob")]
    for wrong in ("", "a\nb", "g" * 1001):
        with pytest.raises(ValueError, match="characters"):
            queue.enqueue(1, group=wrong)


# Shares.


@proves("Q25")
@both_flavours
def test_the_groups_of_a_fair_queue_take_turns(kit: EventKit) -> None:
    """Tasks without a group are one group of their own; the weight of a group is the number of its tasks in a round."""
    queue = kit.queue("jobs")
    queue.configure(fair=True, weights={"ann": 2})
    for group in ("bob", "ann", None):
        _add(queue, group, *(f"{group} {n}" for n in range(6)))
    first = [info.payload for info in queue.peek(9)]
    order = _claimed(queue, 9) + [one for _ in range(9) for one in _claimed(queue, 1)]
    assert first == order[:9]
    assert sorted(order) == sorted(f"{group} {n}" for group in ("bob", "ann", None) for n in range(6))
    for group in ("bob", "ann", None):
        mine = [one for one in order if one.startswith(str(group))]
        assert mine == sorted(mine)
    for rounds in (1, 2, 3):
        shares = Counter(one.split()[0] for one in order[: 4 * rounds])
        assert abs(shares["ann"] - 2 * rounds) <= 1, order
        assert abs(shares["bob"] - rounds) <= 1, order
    assert queue.settings().weights == {"ann": 2.0}


@proves("Q25")
def test_a_busy_group_does_not_delay_the_others(kit: EventKit) -> None:
    """One that was idle, or whose tasks were cancelled, has neither a credit nor a debt."""
    queue = kit.queue("jobs")
    queue.configure(fair=True)
    busy = _add(queue, "busy", *(f"busy {n}" for n in range(200)))
    assert _claimed(queue, 50)[-1] == "busy 49"
    _add(queue, "idle", "idle 0", "idle 1", "idle 2")
    order = [one for _ in range(6) for one in _claimed(queue, 1)]
    assert sorted(order) == ["busy 50", "busy 51", "busy 52", "idle 0", "idle 1", "idle 2"]
    assert max(order.index(f"idle {n}") - 2 * n for n in range(3)) <= 1
    for id in busy[-100:]:
        assert queue.cancel(id)
    for id in busy[53:-100]:
        assert queue.cancel(id)
    _add(queue, "busy", "again")
    _add(queue, "new", *range(10))
    assert "again" in _claimed(queue, 3)


@proves("Q25")
def test_groups_take_turns_within_a_priority(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.configure(fair=True)
    _add(queue, "ann", *(f"low {n}" for n in range(4)))
    _add(queue, "ann", *(f"high {n}" for n in range(4)), priority=1)
    _add(queue, "bob", "bob high", priority=1)
    _add(queue, "bob", "bob low")
    order = _claimed(queue)
    assert order[:5] == ["high 0", "bob high", "high 1", "high 2", "high 3"]
    assert order[5:] == ["low 0", "bob low", "low 1", "low 2", "low 3"]


@proves("Q25", "Q12")
def test_turns_apply_to_tasks_that_wait(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    for group in ("ann", "bob"):
        _add(queue, group, *(f"{group} {n}" for n in range(4)))
    queue.configure(fair=True)
    assert _claimed(queue, 4) == ["ann 0", "bob 0", "ann 1", "bob 1"]
    queue.configure(fair=False)
    assert _claimed(queue, 4) == ["ann 2", "ann 3", "bob 2", "bob 3"]


# Limits.


@proves("Q25")
def test_a_group_has_so_many_running_tasks(kit: EventKit) -> None:
    """Every end of a run makes room, also one that leads to another attempt; a lapsed lease counts no longer."""
    queue = kit.queue("jobs")
    queue.configure(group_max_running=2)
    for group in ("ann", None):
        _add(queue, group, *(f"{group} {n}" for n in range(6)))
    tasks = queue.claim("w", 9, lease=30)
    assert [task.payload for task in tasks] == ["ann 0", "ann 1", "None 0", "None 1"]
    assert _claimed(queue) == []
    assert queue.ack(tasks[0])
    assert _claimed(queue) == ["ann 2"]
    assert queue.retry(tasks[1], delay=3600)
    assert queue.snooze(tasks[2], 3600)
    assert _claimed(queue) == ["ann 3", "None 2"]
    advance(kit, 31)
    assert _claimed(queue) == ["None 1"]
    queue.configure(group_max_running=3)
    assert sorted(_claimed(queue)) == ["None 3", "ann 4"]
    queue.configure(group_max_running=None)
    assert sorted(_claimed(queue)) == ["None 4", "None 5", "ann 5"]


@proves("Q25")
def test_a_full_group_does_not_delay_the_others(kit: EventKit) -> None:
    """One claim passes over thousands of its tasks, and each of them is passed over once."""
    queue = kit.queue("jobs")
    queue.configure(group_max_running=1)
    _add(queue, "busy", *range(2000))
    _add(queue, "other", "other")
    [task] = queue.claim("w", 1)
    assert [one.payload for one in queue.claim("w", 1, wait=SOON)] == ["other"]
    assert queue.stats().scheduled > 1700
    for n in range(1, 4):
        assert queue.ack(task)
        [task] = queue.claim("w", 5)
        assert task.payload == n
    assert queue.size() == 1998


@proves("Q25")
def test_a_group_has_so_many_starts_a_second(kit: EventKit) -> None:
    """One second's worth starts at once; each later task is put off to its moment, and other groups are not."""
    queue = kit.queue("jobs")
    queue.configure(group_rate=0.01, lease=86_400)
    _add(queue, "ann", *range(8))
    _add(queue, "bob", "other")
    assert _claimed(queue) == [0, "other"]
    assert _claimed(queue) == []
    assert queue.stats().scheduled == 7
    for n in (1, 2, 3):
        advance(kit, 101)
        assert _claimed(queue) == [n]
    advance(kit, 1010)
    assert _claimed(queue) == [4]
    queue.configure(group_rate=None)
    assert _claimed(queue) == [5, 6, 7]
    queue.configure(group_rate=5)
    _add(queue, "cy", *range(20))
    assert len(_claimed(queue)) in (5, 6)
    assert [task.payload for task in queue.claim("w", 5, wait=SOON)] != []


@proves("Q25")
def test_what_waits_for_its_rate_costs_nothing(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    queue.configure(group_rate=0.01, lease=86_400)
    _add(queue, "ann", *range(50))
    assert [queue.ack(task) for task in queue.claim("w", 99)] == [True]
    advance(kit, 6000)
    assert kit.maintain().limits == 1
    assert _claimed(queue) == [1]


@proves("Q24", "Q25")
def test_settings_of_groups_are_checked(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    wrong: Any
    for wrong, error in (
        ({"on_dead": "wait"}, ValueError),
        ({"group_max_running": 0}, ValueError),
        ({"group_rate": 0}, ValueError),
        ({"weights": {"ann": 0.0001}}, ValueError),
        ({"weights": ["ann"]}, TypeError),
        ({"ordered": 1}, TypeError),
    ):
        with pytest.raises(error):
            queue.configure(**wrong)
    assert queue.settings() == eventkit.values.QueueSettings()


# Any history.


class _Model:
    """The tasks of a queue by their ids: the group, the ticks until it is due, and whether it runs or is dead."""

    def __init__(self, ordered: bool, most: int) -> None:
        self.tasks: dict[int, tuple[str, int, str]] = {}
        self._ordered = ordered
        self._most = most

    def claimable(self, group: str) -> int:
        """Return how many tasks of a group a claim of all returns now."""
        mine = [
            (due, state) for id, (one, due, state) in sorted(self.tasks.items()) if one == group and state != "dead"
        ]
        running = [state for _, state in mine].count("running")
        if self._ordered:
            return int(bool(mine) and not running and mine[0][0] <= 0)
        return min(self._most - running, sum(due <= 0 and state == "waiting" for due, state in mine))


@pytest.mark.parametrize("ordered", [True, False])
@proves("Q24", "Q25")
def test_any_history_of_groups(kit: EventKit, ordered: bool) -> None:
    """After any calls, a claim returns what the groups allow, no less and no more."""
    for seed in range(6):
        chance, queue, model = random.Random(seed), kit.queue(f"jobs {seed}"), _Model(ordered, 2)
        settings: dict[str, Any] = {"ordered": True} if ordered else {"group_max_running": 2}
        queue.configure(**settings, max_attempts=2, lease=86_400)
        held: list[Task[Any]] = []
        for _ in range(80):
            match chance.choice(["add", "add", "claim", "claim", "end", "end", "end", "cancel", "wait", "requeue"]):
                case "add":
                    group, delay = chance.choice("abc"), chance.choice([0, 0, 0, 2])
                    made = queue.enqueue_many(
                        [NewTask(1, group=group, delay=60 * delay or None)] * chance.randint(1, 3)
                    )
                    model.tasks |= {one.id: (group, delay, "waiting") for one in made}
                case "claim":
                    wanted = {group: model.claimable(group) for group in "abc"}
                    claimed = queue.claim("w", 99)
                    assert Counter(task.group for task in claimed) == Counter(wanted), seed
                    for task in claimed:
                        group, due, state = model.tasks[task.id]
                        earlier = [
                            id
                            for id, (one, *_, state) in model.tasks.items()
                            if one == group and id < task.id and state != "dead"
                        ]
                        assert (due <= 0, state) == (True, "waiting"), seed
                        assert not (ordered and earlier), seed
                        model.tasks[task.id] = (group, due, "running")
                    held += claimed
                case "end" if held:
                    task = held.pop(chance.randrange(len(held)))
                    match chance.choice(["ack", "ack", "retry", "later", "fail", "release", "snooze", "cancel"]):
                        case "ack":
                            assert queue.ack(task)
                            del model.tasks[task.id]
                        case "cancel":
                            assert queue.cancel(task.id, running=True)
                            del model.tasks[task.id]
                        case "fail":
                            assert queue.fail(task, "broken")
                            model.tasks[task.id] = (str(task.group), 0, "dead")
                        case "release":
                            assert queue.release(task)
                            model.tasks[task.id] = (str(task.group), 0, "waiting")
                        case "snooze":
                            assert queue.snooze(task, 60)
                            model.tasks[task.id] = (str(task.group), 1, "waiting")
                        case way:
                            pause = int(way == "later")
                            assert queue.retry(task, delay=60 * pause)
                            model.tasks[task.id] = (str(task.group), pause, "waiting" if task.attempt < 2 else "dead")
                case "cancel" if waiting := [id for id, (*_, state) in model.tasks.items() if state == "waiting"]:
                    id = chance.choice(waiting)
                    assert queue.cancel(id)
                    del model.tasks[id]
                case "wait":
                    advance(kit, 60)
                    model.tasks = {id: (group, due - 1, state) for id, (group, due, state) in model.tasks.items()}
                case "requeue":
                    queue.requeue()
                    for id, (group, _, state) in list(model.tasks.items()):
                        if state == "dead":
                            model.tasks[id] = (group, 0, "waiting")

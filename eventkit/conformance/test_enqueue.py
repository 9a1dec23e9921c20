"""Putting tasks in: Q1."""

import threading
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

import pytest

from eventkit import Enqueued, EventKit, NewTask, QueueFull
from eventkit.testing import advance

from .clauses import proves
from .races import SOON, asleep, database_ms
from .rollback import rolled_back


@proves("Q1", "Q2")
def test_a_task_carries_what_it_was_enqueued_with(kit: EventKit) -> None:
    queue = kit.queue("emails")
    before = database_ms(kit)
    answer = queue.enqueue(
        {"to": "ann"},
        priority=7,
        max_attempts=5,
        expires=60,
        key="ann",
        headers={"trace": "1"},
    )
    after = database_ms(kit)
    [task] = queue.claim("worker", lease=10)
    assert answer == Enqueued(task.id, True)
    assert (task.queue, task.payload, task.key) == ("emails", {"to": "ann"}, "ann")
    assert task.headers["trace"] == "1"
    assert (task.priority, task.attempt, task.max_attempts) == (7, 1, 5)
    assert before <= task.enqueued_ms <= after
    assert task.run_ms == task.enqueued_ms
    assert task.expires_at == task.enqueued_at + timedelta(seconds=60)
    assert task.run_at.tzinfo is not None
    assert task.lease_expires_at.tzinfo is not None


@proves("Q1")
def test_a_plain_task_has_the_defaults(kit: EventKit) -> None:
    queue = kit.queue("emails")
    queue.enqueue(None)
    queue.enqueue_many([None])
    for task in queue.claim("worker", 2):
        assert (task.payload, task.key, task.headers, task.priority) == (None, None, {}, 0)
        assert (task.expires_at, task.run_at) == (None, task.enqueued_at)


@proves("Q1")
def test_a_delayed_task_is_due_after_the_delay(kit: EventKit) -> None:
    queue = kit.queue("emails")
    first = queue.enqueue(1, delay=60)
    second = queue.enqueue(2, delay=timedelta(minutes=1))
    advance(kit, 58)
    assert queue.claim("worker", 9) == []
    advance(kit, 2)
    tasks = queue.claim("worker", 9)
    assert [task.id for task in tasks] == [first.id, second.id]
    assert all(task.run_ms == task.enqueued_ms + 60_000 for task in tasks)


@proves("Q1")
def test_run_at_is_when_a_task_is_due(kit: EventKit) -> None:
    queue = kit.queue("emails")
    moment = (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=123_000)
    queue.enqueue(1, run_at=moment)
    # The same moment in another zone is the same moment.
    queue.enqueue(2, run_at=moment.astimezone())
    assert [task.run_at for task in queue.list()] == [moment, moment]
    assert queue.claim("worker", 9) == []
    advance(kit, 3601)
    assert [task.payload for task in queue.claim("worker", 9)] == [1, 2]


@proves("Q1")
def test_delay_and_run_at_may_be_in_the_past(kit: EventKit) -> None:
    """Such a task is due at once, and sorts by the moment it was given."""
    queue = kit.queue("emails")
    queue.enqueue("now")
    queue.enqueue("delay", delay=-3600)
    queue.enqueue("run_at", run_at=datetime(2001, 2, 3, tzinfo=UTC))
    tasks = queue.claim("worker", 9)
    assert [task.payload for task in tasks] == ["run_at", "delay", "now"]
    assert tasks[0].run_at == datetime(2001, 2, 3, tzinfo=UTC)
    assert tasks[1].run_ms == tasks[1].enqueued_ms - 3_600_000


@proves("Q1")
def test_delay_and_run_at_exclude_each_other(kit: EventKit) -> None:
    queue = kit.queue("emails")
    both: Any = {"delay": 0, "run_at": datetime.now(UTC) + timedelta(hours=1)}
    calls = (
        lambda: queue.enqueue("x", **both),
        lambda: queue.enqueue_many(["y", NewTask("x", **both)]),
        lambda: queue.new("x", **both),
    )
    for call in calls:
        with pytest.raises(ValueError, match=r"delay= seconds or at run_at=: pass one"):
            call()
    assert queue.list() == []


@proves("Q1", "Q8")
def test_expires_in_the_past_gives_an_expired_task(kit: EventKit) -> None:
    queue = kit.queue("emails")
    hour = timedelta(hours=1)
    queue.enqueue("number", expires=-1)
    queue.enqueue("delta", expires=-hour)
    queue.enqueue_many([NewTask("moment", expires=datetime.now(UTC) - hour), NewTask("delayed", delay=60, expires=-60)])
    assert queue.claim("worker", 9) == []
    assert [(letter.payload, letter.reason) for letter in sorted(queue.dead(), key=attrgetter("id"))] == [
        ("number", "expired"),
        ("delta", "expired"),
        ("moment", "expired"),
        ("delayed", "expired"),
    ]


@proves("Q1", "Q8")
def test_expires_is_seconds_from_the_call_or_a_moment(kit: EventKit) -> None:
    queue = kit.queue("emails")
    moment = (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=0)
    queue.enqueue("number", expires=90)
    queue.enqueue("timedelta", expires=timedelta(seconds=90))
    queue.enqueue("delayed", expires=90, delay=60)
    queue.enqueue("moment", expires=moment)
    number, delta, delayed, at = queue.list()
    for info in (number, delta, delayed):
        assert info.expires_ms == info.enqueued_ms + 90_000
    assert at.expires_at == moment


@proves("Q1")
def test_an_enqueue_with_bad_arguments_writes_nothing(kit: EventKit) -> None:
    queue = kit.queue("emails")
    bad: list[dict[str, Any]] = [
        {"run_at": datetime(2030, 1, 1)},
        {"run_at": 5},
        {"expires": datetime(2030, 1, 1)},
        {"delay": float("nan")},
        {"delay": "soon"},
        {"priority": 1.5},
        {"priority": 2**63},
        {"max_attempts": 0},
        {"key": ""},
        {"headers": {"n": 1}},
        {"payload": float("inf")},
    ]
    for keywords in bad:
        with pytest.raises((ValueError, TypeError)):
            queue.enqueue(**{"payload": 1, **keywords})
        with pytest.raises((ValueError, TypeError)):
            queue.enqueue_many([1, NewTask(**{"payload": 1, **keywords})])
    assert queue.list() == []


@proves("Q1")
def test_ids_are_integers_that_grow_and_are_never_reused(kit: EventKit, connect: Any, url: str) -> None:
    queue = kit.queue("emails")
    ids = [queue.enqueue(1).id]
    assert type(ids[0]) is int
    [task] = queue.claim("worker")
    queue.ack(task)
    ids.append(queue.enqueue(2).id)
    queue.purge()
    ids.append(queue.enqueue(3).id)
    queue.cancel(ids[-1])
    ids += [answer.id for answer in queue.enqueue_many([4, 5])]
    queue.receive(9)
    ids.append(kit.queue("another").enqueue(6).id)
    kit.queue("another").purge()
    kit.close()
    ids.append(connect(url).queue("emails").enqueue(7).id)
    assert ids == sorted(set(ids))


@proves("Q1")
def test_enqueue_many_answers_in_order(kit: EventKit) -> None:
    queue = kit.queue("emails")
    first = queue.enqueue("first", key="k")
    answers = queue.enqueue_many(
        [
            "plain",
            NewTask("taken", key="k"),
            NewTask("new", key="n"),
            NewTask("later", delay=60, priority=3, max_attempts=9, headers={"a": "b"}),
            NewTask("again", key="n"),
            "plain too",
        ]
    )
    assert [answer.created for answer in answers] == [True, False, True, True, False, True]
    assert answers[1].id == first.id
    assert answers[4].id == answers[2].id
    payloads = {info.id: info.payload for info in queue.list()}
    assert [payloads[answer.id] for answer in answers] == ["plain", "first", "new", "later", "new", "plain too"]
    later = queue.get(answers[3].id)
    assert later is not None
    assert (later.state, later.priority, later.max_attempts) == ("scheduled", 3, 9)
    assert later.headers["a"] == "b"


@proves("Q1")
def test_enqueue_many_takes_any_iterable(kit: EventKit) -> None:
    queue = kit.queue("emails")
    assert queue.enqueue_many([]) == []
    answers = queue.enqueue_many(number for number in range(2500))
    payloads = {info.id: info.payload for info in queue.list(limit=3000)}
    assert [payloads[answer.id] for answer in answers] == list(range(2500))


@proves("Q1", "Q13")
def test_enqueue_many_is_all_or_nothing(kit: EventKit) -> None:
    queue = kit.queue("emails")
    queue.configure(max_size=4)
    queue.enqueue_many([1, 2])
    for items in ([3, 4, 5], [NewTask(3), NewTask(4, key="k"), NewTask(5, delay=1)]):
        with pytest.raises(QueueFull):
            queue.enqueue_many(items)
        assert [info.payload for info in queue.list()] == [1, 2]
    assert queue.enqueue(3, key="k").created


@proves("Q1")
def test_enqueue_many_appears_at_once(kit: EventKit, connect: Any, url: str) -> None:
    queue = kit.queue("emails")
    watched = connect(url).queue("emails")
    done = threading.Event()

    def sizes() -> set[int]:
        seen = set()
        while not done.is_set():
            seen.add(watched.size())
        return seen

    seen = asleep(sizes)
    for _ in range(3):
        queue.enqueue_many(range(1000))
        queue.enqueue_many(NewTask(number, key=f"{number}") for number in range(1000))
        queue.purge()
        kit.queue("emails").configure(key_ttl=0)
    done.set()
    assert seen.result() <= {0, 1000, 2000}


@proves("Q1", "G4")
def test_an_enqueue_commits_and_rolls_back_with_its_transaction(kit: EventKit) -> None:
    queue = kit.queue("emails")
    with rolled_back(kit) as tx:
        queue.enqueue(1, tx=tx)
        queue.enqueue(2, delay=1, key="k", tx=tx)
        queue.enqueue_many([3, NewTask(4, key="l")], tx=tx)
    assert queue.list() == []
    with kit.transaction() as tx:
        queue.enqueue(1, tx=tx)
        assert queue.enqueue(2, delay=1, key="k", tx=tx).created
        queue.enqueue_many([3, NewTask(4, key="l")], tx=tx)
    assert [info.payload for info in queue.list()] == [1, 2, 3, 4]


@proves("G4", "Q2")
def test_an_enqueue_wakes_nobody_before_the_commit(kit: EventKit) -> None:
    queue = kit.queue("emails")
    claim = asleep(queue.claim, "worker", wait=60)
    with kit.transaction() as tx:
        queue.enqueue(1, tx=tx)
        with pytest.raises(TimeoutError):
            claim.result(0.3)
    assert [task.payload for task in claim.result(SOON)] == [1]

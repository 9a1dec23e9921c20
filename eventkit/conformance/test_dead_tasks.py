"""Dead tasks: Q11, and poison: Q14."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from eventkit import EventKit, TaskQueue
from eventkit.codec import Undecodable

from .clauses import proves
from .threads import SOON, asleep, database_ms


class _Email(msgspec.Struct):
    to: str


def _failed(queue: TaskQueue[Any]) -> None:
    [task] = queue.claim("worker")
    assert queue.fail(task, "failed")


def _exhausted(queue: TaskQueue[Any]) -> None:
    [task] = queue.claim("worker")
    assert queue.retry(task, error="exhausted")


def _lapsed(queue: TaskQueue[Any]) -> None:
    queue.claim("worker", lease=0)
    assert queue.claim("worker") == []


def _expired(queue: TaskQueue[Any]) -> None:
    queue.sweep()


def _poison(queue: TaskQueue[Any]) -> None:
    assert queue.claim("worker") == []


_DEATHS: dict[str, tuple[Callable[[TaskQueue[Any]], None], str, dict[str, Any]]] = {
    "fail": (_failed, "failed", {}),
    "retry": (_exhausted, "exhausted", {"max_attempts": 1}),
    "lapse": (_lapsed, "exhausted", {"max_attempts": 1}),
    "expiry": (_expired, "expired", {"expires": 0}),
    "poison": (_poison, "poison", {}),
}


def _dead(queue: TaskQueue[Any], *payloads: Any) -> list[int]:
    """Enqueue tasks with these payloads and let them die one after another; return their ids."""
    ids = []
    for payload in payloads:
        ids.append(queue.enqueue(payload).id)
        [task] = queue.claim("worker")
        assert queue.fail(task, f"error {payload}")
    return ids


@proves("Q11", "Q14")
def test_a_dead_task_says_why_and_when_it_died(kit: EventKit) -> None:
    for name, (die, reason, keywords) in _DEATHS.items():
        queue = kit.queue(name, type=_Email if reason == "poison" else Any)
        before = database_ms(kit)
        id = kit.queue(name).enqueue({"a": "payload"}, headers={"h": "1"}, key="k", **keywords).id
        die(queue)
        after = database_ms(kit)
        [dead] = kit.queue(name).dead()
        assert (dead.id, dead.queue, dead.state, dead.reason) == (id, name, "dead", reason)
        assert (dead.payload, dead.headers["h"], dead.key) == ({"a": "payload"}, "1", "k")
        assert dead.attempt == (0 if reason == "expired" else 1)
        assert dead.died_at is not None
        assert dead.finished_ms is not None
        assert before <= dead.finished_ms <= after
        if reason != "expired":
            assert dead.error
        if name in ("fail", "retry"):
            assert dead.error == reason
        assert queue.claim("worker") == []
        assert kit.queue(name).get(id) == dead


@proves("Q11")
def test_requeue_takes_the_ids_it_is_given(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    first, second, third = _dead(queue, 1, 2, 3)
    [other] = _dead(kit.queue("others"), 4)
    waiting = queue.enqueue(5, delay=60).id
    assert queue.requeue([]) == 0
    assert queue.requeue([first, third, other, waiting, 10**9]) == 2
    assert [task.id for task in queue.claim("worker", 9)] == [first, third]
    assert [info.id for info in queue.dead()] == [second]
    assert len(kit.queue("others").dead()) == 1
    assert queue.requeue() == 1


@proves("Q11", "W2")
def test_requeue_wakes_a_waiting_claim(kit: EventKit) -> None:
    queue = kit.queue("jobs")
    [id] = _dead(queue, 1)
    claim = asleep(queue.claim, "worker", wait=60)
    queue.requeue()
    assert [task.id for task in claim.result(SOON)] == [id]


@proves("Q11", "Q12", "Q14")
def test_dead_letter_to_copies_each_dead_task(kit: EventKit) -> None:
    kit.queue("hospital").configure(max_attempts=1)
    for name, (die, reason, keywords) in _DEATHS.items():
        queue = kit.queue(name, type=_Email if reason == "poison" else Any)
        queue.configure(dead_letter_to="hospital")
        kit.queue(name).enqueue([name], headers={"h": name}, priority=3, key="k", **keywords)
        die(queue)
        [copy] = kit.queue("hospital").claim("doctor", 9)
        assert (copy.payload, copy.headers["h"], copy.priority) == ([name], name, 3)
        assert (copy.attempt, copy.max_attempts, copy.expires_at) == (1, 1, None)
        kit.queue("hospital").ack(copy)
        assert len(kit.queue(name).dead()) == 1


@proves("Q11", "Q12")
def test_a_queue_is_not_its_own_dead_letter_to(kit: EventKit) -> None:
    for bad in ("jobs", "", "a\nb"):
        with pytest.raises(ValueError):  # noqa: PT011  # the three say three things
            kit.queue("jobs").configure(dead_letter_to=bad)
    kit.queue("jobs").configure(dead_letter_to="copies")
    kit.queue("jobs").configure(dead_letter_to=None)
    _dead(kit.queue("jobs"), 1)
    assert kit.queue("copies").tasks() == []


@proves("Q14", "G9")
def test_the_others_of_a_poisoned_batch_are_delivered(kit: EventKit) -> None:
    plain, typed = kit.queue("emails"), kit.queue("emails", type=_Email)
    plain.enqueue_many([{"to": "ann"}, {"to": 7}, {"to": "bob"}, "poison", {"to": "cem"}, {"to": "dan"}])
    assert [task.payload for task in typed.claim("worker", 3)] == [_Email("ann"), _Email("bob"), _Email("cem")]
    assert [(info.payload, info.reason) for info in plain.dead()] == [("poison", "poison"), ({"to": 7}, "poison")]
    assert all(info.error and info.attempt == 1 for info in plain.dead())
    assert [task.payload for task in typed.receive(9)] == [_Email("dan")]


@dataclass
class _Picky:
    to: str

    def __post_init__(self) -> None:
        if self.to == "invalid":
            raise KeyError(self.to)


@proves("Q14", "G9")
def test_any_exception_of_a_type_is_poison(kit: EventKit) -> None:
    """A class of the caller's may raise any exception from its constructor; claims and subscribers continue."""
    payloads = [{"to": "invalid"}, {"to": "ann"}]
    kit.queue("emails").enqueue_many(payloads)
    assert [task.payload for task in kit.queue("emails", type=_Picky).claim("worker", 2)] == [_Picky("ann")]
    assert [(info.reason, info.payload) for info in kit.queue("emails").dead()] == [("poison", payloads[0])]
    with kit.channel("c", type=_Picky).listen() as heard:
        for payload in payloads:
            kit.stream("t").publish(payload)
            kit.channel("c").notify(payload)
        notified = [next(heard).payload for _ in range(2)]
    for bad, good in (notified, [event.payload for event in kit.stream("t", type=_Picky).read()]):
        assert isinstance(bad, Undecodable)
        assert good == _Picky("ann")


@proves("Q14", "Q15")
def test_receive_buries_what_does_not_decode(kit: EventKit) -> None:
    plain, typed = kit.queue("emails"), kit.queue("emails", type=_Email)
    plain.enqueue_many(["poison", {"to": "ann"}])
    assert [task.payload for task in typed.receive(2)] == [_Email("ann")]
    assert [info.reason for info in plain.dead()] == ["poison"]


@proves("Q14", "Q10", "Q11")
def test_poison_can_be_looked_at_and_requeued(kit: EventKit) -> None:
    plain, typed = kit.queue("emails"), kit.queue("emails", type=_Email)
    id = plain.enqueue("poison").id
    for info in (typed.get(id), *typed.peek(), *typed.tasks()):
        assert info is not None
        assert isinstance(info.payload, Undecodable)
        assert info.payload.text == '"poison"'
    assert typed.claim("worker") == []
    [dead] = typed.dead()
    assert isinstance(dead.payload, Undecodable)
    assert typed.requeue() == 1
    assert [task.payload for task in plain.claim("worker")] == ["poison"]

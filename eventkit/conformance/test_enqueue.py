"""Enqueueing, and names."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

import pytest

from eventkit import EventKit, NewEvent, NewTask
from eventkit.testing import advance
from eventkit.values import Enqueued

from .clauses import both_flavours, proves
from .threads import asleep, database_ms


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
    # The same moment in another time zone is equal.
    queue.enqueue(2, run_at=moment.astimezone())
    assert [task.run_at for task in queue.tasks()] == [moment, moment]
    assert queue.claim("worker", 9) == []
    advance(kit, 3601)
    assert [task.payload for task in queue.claim("worker", 9)] == [1, 2]


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
    assert queue.tasks() == []


@proves("Q1", "Q8")
def test_expires_in_the_past_gives_an_expired_task(kit: EventKit) -> None:
    queue = kit.queue("emails")
    hour = timedelta(hours=1)
    queue.enqueue("number", expires=-1)
    queue.enqueue("delta", expires=-hour)
    queue.enqueue_many([NewTask("moment", expires=datetime.now(UTC) - hour), NewTask("delayed", delay=60, expires=-60)])
    assert queue.claim("worker", 9) == []
    assert [(task.payload, task.reason) for task in sorted(queue.dead(), key=attrgetter("id"))] == [
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
    number, delta, delayed, at = queue.tasks()
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
    assert queue.tasks() == []


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
def test_enqueue_many_takes_any_iterable(kit: EventKit) -> None:
    queue = kit.queue("emails")
    assert queue.enqueue_many([]) == []
    answers = queue.enqueue_many(number for number in range(2500))
    payloads = {info.id: info.payload for info in queue.tasks(limit=3000)}
    assert [payloads[answer.id] for answer in answers] == list(range(2500))


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


_GOOD = [
    "a",
    "x" * 100,
    "x" * 255,
    "🦊" * 255,
    "orders:eu:west",
    "with spaces in it",
    " leading and trailing ",
    "🦊 färmöte 注文",
    "e\u0301",
    "\u00e9",
    "Orders",
    "orders",
    "ORDERS",
    "it's; DROP TABLE eventkit_task; --",
    '"quoted"',
    "100%",
    "%s %(name)s :name $1 ?1 {0}",
    "back\\slash",
    "*",
    "null",
    "\u00a0",
]

_BAD = ["", "x" * 256, "a\0b", "a\nb", "\t", "\x7f", "a\x85", "\x1b[0m", "\ud800"]

_NO_NAMES: list[Any] = [None, 5, b"bytes", ["a"]]


def _uses(kit: Any) -> list[Callable[[Any], Any]]:
    """Return every call that takes a name."""
    return [
        lambda name: kit.stream(name).publish(1),
        lambda name: kit.queue(name).enqueue(1),
        lambda name: kit.channel(name).notify(1),
        lambda name: kit.listen("good", name),
        lambda name: kit.stream("t").save_offset(name, 1),
        lambda name: kit.stream("t").seek(name, 1),
        lambda name: kit.stream("t").offset(name),
        lambda name: kit.stream("t").remove_consumer(name),
        lambda name: kit.queue("q").claim(name),
        lambda name: kit.queue("q").configure(dead_letter_to=name),
    ]


@proves("G10")
@pytest.mark.parametrize("use", range(10))
def test_a_name_that_is_none_is_refused(kit: EventKit, use: int) -> None:
    """Empty names, names over 255 characters and control characters are refused before anything is written."""
    call = _uses(kit)[use]
    for name in _BAD:
        with pytest.raises(ValueError, match="name of a"):
            call(name)
    for nothing in _NO_NAMES if use not in (8, 9) else _NO_NAMES[1:]:
        with pytest.raises(TypeError, match="name of a"):
            call(nothing)
    assert kit.stream("t").consumers() == []
    assert kit.stream("t").publish(1) == 1


@proves("G10")
def test_optional_names_are_checked_too(kit: EventKit) -> None:
    """A subscribing consumer, a worker and the keys obey the same rule; keys may be longer."""
    stream, queue = kit.stream("t"), kit.queue("q")
    for name in _BAD:
        with pytest.raises(ValueError, match="name of a"):
            stream.subscribe(name)
        with pytest.raises(ValueError, match="name of a"):
            queue.work(name)
    for key in ("", "a\0b", "x" * 1001, "\udc00"):
        calls: list[Callable[[str], Any]] = [
            lambda key: stream.publish(1, key=key),
            lambda key: stream.publish(1, dedup=key),
            lambda key: stream.publish_many([1, NewEvent(1, key=key)]),
            lambda key: queue.enqueue(1, key=key),
            lambda key: queue.enqueue_many([1, NewTask(1, key=key)]),
        ]
        for call in calls:
            with pytest.raises(ValueError, match="key"):
                call(key)
    assert (stream.head(), queue.size()) == (0, 0)


@proves("G10")
def test_similar_names_are_different_names(kit: EventKit) -> None:
    """Names that differ in one character, in case or in accents are different topics, queues, channels or consumers."""
    for number, name in enumerate(_GOOD):
        kit.stream(name).publish(number)
        kit.queue(name).enqueue(number)
        kit.channel(name).notify(number)
        kit.stream("t").save_offset(name, number + 1)
    for number, name in enumerate(_GOOD):
        [event] = kit.stream(name).read()
        assert (event.stream, event.payload) == (name, number)
        [task] = kit.queue(name).claim(name, 10)
        assert (task.queue, task.payload) == (name, number)
        info = kit.queue(name).get(task.id)
        assert info is not None
        assert info.worker == name
        with kit.channel(name).listen(start="earliest") as notifications:
            kit.channel(name).notify("end")
            assert [next(notifications).payload for _ in range(2)] == [number, "end"]
        assert kit.stream("t").offset(name) == number + 1
    assert {consumer.name for consumer in kit.stream("t").consumers()} == set(_GOOD)


@proves("G10", "N3")
@both_flavours
def test_a_listener_receives_from_several_channels_with_odd_names(kit: EventKit) -> None:
    """A listener on several channels hears exactly these, even with odd names."""
    kit.channel("not heard").notify(0)
    with kit.listen(*_GOOD) as notifications:
        for name in _GOOD:
            kit.channel(name).notify(name)
            kit.channel(name + "!" if len(name) < 255 else "!").notify("not heard")
        assert [next(notifications).channel for _ in _GOOD] == _GOOD


@proves("G10", "S1", "Q7")
def test_keys_may_be_anything_printable(kit: EventKit) -> None:
    """Ordering, uniqueness and deduplication keys of up to 1,000 characters are stored unchanged."""
    keys = [*_GOOD, "k" * 1000]
    offsets = [kit.stream("t").publish(1, key=key, dedup=key) for key in keys]
    assert [kit.stream("t").publish(2, dedup=key) for key in keys] == offsets
    assert [event.key for event in kit.stream("t").read()] == keys
    ids = [kit.queue("q").enqueue(1, key=key).id for key in keys]
    assert [kit.queue("q").enqueue(2, key=key) for key in keys] == [(id, False) for id in ids]
    assert [task.key for task in kit.queue("q").claim("w", 100)] == keys

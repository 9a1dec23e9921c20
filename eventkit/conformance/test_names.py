"""Names of queues, topics, channels, consumers and workers (G10)."""

from collections.abc import Callable
from typing import Any

import pytest

from eventkit import EventKit, NewEvent, NewTask

from .clauses import proves

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
    """Every way to give a name."""
    return [
        lambda name: kit.stream(name).publish(1),
        lambda name: kit.queue(name).enqueue(1),
        lambda name: kit.channel(name).notify(1),
        lambda name: kit.listen("good", name),
        lambda name: kit.stream("t").save_offset(name, 1),
        lambda name: kit.stream("t").seek(name, 1),
        lambda name: kit.stream("t").offset(name),
        lambda name: kit.queue("q").claim(name),
        lambda name: kit.queue("q").configure(dead_letter_to=name),
    ]


@proves("G10")
@pytest.mark.parametrize("use", range(9))
def test_a_name_that_is_none_is_refused(kit: EventKit, use: int) -> None:
    """Empty names, names over 255 characters and control characters are refused before anything is written."""
    call = _uses(kit)[use]
    for name in _BAD:
        with pytest.raises(ValueError, match="name of a"):
            call(name)
    for nothing in _NO_NAMES if use not in (7, 8) else _NO_NAMES[1:]:
        with pytest.raises(TypeError, match="name of a"):
            call(nothing)
    assert kit.stream("t").consumers() == []
    assert kit.stream("t").publish(1) == 1


@proves("G10")
def test_optional_names_are_checked_too(kit: EventKit) -> None:
    """A consumer that subscribes, a worker, and the keys obey the same rule; keys may be longer."""
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
def test_names_are_told_apart_exactly(kit: EventKit) -> None:
    """What differs in one character, in case or in accents, is another topic, queue, channel or consumer."""
    for number, name in enumerate(_GOOD):
        kit.stream(name).publish(number)
        kit.queue(name).enqueue(number)
        kit.channel(name).notify(number)
        kit.stream("t").save_offset(name, number + 1)
    for number, name in enumerate(_GOOD):
        [event] = kit.stream(name).read()
        assert (event.topic, event.payload) == (name, number)
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
def test_several_channels_with_odd_names_are_heard_at_once(kit: EventKit) -> None:
    """Listening to several channels hears exactly these, whatever they are called."""
    kit.channel("not heard").notify(0)
    with kit.listen(*_GOOD) as notifications:
        for name in _GOOD:
            kit.channel(name).notify(name)
            kit.channel(name + "!" if len(name) < 255 else "!").notify("not heard")
        assert [next(notifications).channel for _ in _GOOD] == _GOOD


@proves("G10", "S1", "Q7")
def test_keys_may_be_anything_printable(kit: EventKit) -> None:
    """Ordering, uniqueness and deduplication keys come back as they were, up to 1,000 characters."""
    keys = [*_GOOD, "k" * 1000]
    offsets = [kit.stream("t").publish(1, key=key, dedup=key) for key in keys]
    assert [kit.stream("t").publish(2, dedup=key) for key in keys] == offsets
    assert [event.key for event in kit.stream("t").read()] == keys
    ids = [kit.queue("q").enqueue(1, key=key).id for key in keys]
    assert [kit.queue("q").enqueue(2, key=key) for key in keys] == [(id, False) for id in ids]
    assert [task.key for task in kit.queue("q").claim("w", 100)] == keys

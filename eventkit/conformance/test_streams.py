"""S1, S3, S7: publishing and reading."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

import msgspec
import pytest

from eventkit import Event, EventKit, NewEvent, Undecodable
from eventkit.testing import advance

from .clauses import proves
from .rollback import rolled_back
from .threads import in_thread, take


@dataclass
class _Point:
    x: int


class _PointStruct(msgspec.Struct):
    x: int


class _PointDict(TypedDict):
    x: int


@proves("S1", "S3")
def test_an_event_reads_as_it_was_published(kit: EventKit) -> None:
    """`read` gives the offset that `publish` gave, and everything that was said."""
    stream = kit.stream("orders")
    offset = stream.publish({"id": 42}, key="42", headers={"trace": "yes"})
    [event] = stream.read()
    assert isinstance(event, Event)
    assert (event.offset, event.topic, event.key) == (offset, "orders", "42")
    assert (event.payload, event.headers) == ({"id": 42}, {"trace": "yes"})
    assert event.created_at.utcoffset() == timedelta(0)
    assert abs(event.created_at - datetime.now(UTC)) < timedelta(minutes=1)


@proves("S1", "S3")
def test_an_event_without_key_and_headers_has_none(kit: EventKit) -> None:
    """The key is None and the headers are empty."""
    kit.stream("orders").publish(None)
    [event] = kit.stream("orders").read()
    assert (event.key, event.payload, event.headers) == (None, None, {})


@proves("S1")
def test_offsets_are_integers_that_grow(kit: EventKit) -> None:
    """However the events of other topics lie between."""
    orders, others = kit.stream("orders"), kit.stream("others")
    offsets = []
    for n in range(5):
        offsets.append(orders.publish(n))
        others.publish(n)
        offsets += orders.publish_many([n, n])
    assert all(type(offset) is int and offset > 0 for offset in offsets)
    assert offsets == sorted(set(offsets))
    assert [event.offset for event in orders.read()] == offsets


@proves("S1", "S8")
def test_offsets_are_not_reused_when_everything_was_pruned(
    kit: EventKit, connect: Callable[..., Any], url: str
) -> None:
    """Not even by a kit that comes later."""
    stream = kit.stream("orders")
    last = stream.publish_many([1, 2, 3])[-1]
    assert stream.prune(max_keep=0) == 3
    assert stream.read() == []
    again = stream.publish(4)
    assert again > last
    stream.prune(max_keep=0)
    assert connect(url).stream("orders").publish(5) > again


@proves("S1", "S7")
def test_a_rolled_back_publish_leaves_nothing(kit: EventKit) -> None:
    """It is neither read nor counted into the head."""
    stream = kit.stream("orders")
    first = stream.publish("stays")
    with rolled_back(kit) as tx:
        stream.publish("goes", tx=tx)
        stream.publish_many(["goes", "too"], tx=tx)
    assert stream.head() == first
    second = stream.publish("stays too")
    assert [(event.offset, event.payload) for event in stream.read()] == [(first, "stays"), (second, "stays too")]


@proves("S1")
def test_publish_many_keeps_the_order(kit: EventKit) -> None:
    """Of bare payloads as of `NewEvent`s, and of both mixed; the offsets are in that order too."""
    stream = kit.stream("orders")
    items = [
        NewEvent("a", "key a", {"h": "a"}, "id a"),
        {"bare": True},
        NewEvent("c", key="key c"),
        NewEvent("d", dedup="id d"),
        None,
    ]
    offsets = stream.publish_many(items)
    events = stream.read()
    assert [event.offset for event in events] == offsets == sorted(set(offsets))
    assert [event.payload for event in events] == ["a", {"bare": True}, "c", "d", None]
    assert [event.key for event in events] == ["key a", None, "key c", None, None]
    assert [event.headers for event in events] == [{"h": "a"}, {}, {}, {}, {}]
    assert stream.publish("e", dedup="id a") == offsets[0]
    assert stream.publish("e", dedup="id d") == offsets[3]


@proves("S1")
def test_publish_many_takes_any_number(kit: EventKit) -> None:
    """None, and thousands, from any iterable."""
    stream = kit.stream("orders")
    assert stream.publish_many([]) == []
    offsets = stream.publish_many(n for n in range(5000))
    assert len(offsets) == 5000
    assert [(event.offset, event.payload) for event in stream.read(limit=6000)] == list(
        zip(offsets, range(5000), strict=True)
    )


@proves("S1")
def test_publish_many_is_all_or_nothing(kit: EventKit) -> None:
    """What is refused, and what the iterable itself raises, leaves nothing of the batch."""
    stream = kit.stream("orders")

    def failing() -> Iterator[int]:
        yield 1
        raise LookupError

    for items in ([1, 2, float("nan")], [NewEvent(1), NewEvent(2, key="\n")], [1, NewEvent(2, dedup="")]):
        with pytest.raises(ValueError):  # noqa: PT011 - the message is another test's
            stream.publish_many(items)
    with pytest.raises(LookupError):
        stream.publish_many(failing())
    assert stream.read() == []


@proves("S1", "S2")
def test_a_batch_appears_from_its_beginning(kit: EventKit) -> None:
    """Whoever reads while it is being published has the first events and lacks the last, never the other way round."""
    stream = kit.stream("orders")

    def publish() -> None:
        for _ in range(10):
            stream.publish_many(range(300))

    publishing = in_thread(publish)
    while not publishing.done():
        payloads = [event.payload for event in stream.read(limit=5000)]
        assert payloads == (10 * [*range(300)])[: len(payloads)]
    publishing.result()
    assert len(stream.read(limit=5000)) == 3000


@proves("S3")
def test_read_is_exclusive_ascending_and_bounded(kit: EventKit) -> None:
    """It begins behind *after* and gives *limit* events, 1,000 if nothing is said."""
    stream, others = kit.stream("orders"), kit.stream("others")
    offsets = stream.publish_many(range(600))
    others.publish_many(range(10))
    offsets += stream.publish_many(range(600))
    assert [event.offset for event in stream.read()] == offsets[:1000]
    assert [event.offset for event in stream.read(limit=3)] == offsets[:3]
    assert [event.offset for event in stream.read(offsets[2], 4)] == offsets[3:7]
    assert [event.offset for event in stream.read(offsets[598], 3)] == offsets[599:602]
    assert [event.offset for event in stream.read(offsets[599])] == offsets[600:]
    assert stream.read(offsets[-1]) == []
    assert {event.topic for event in stream.read(limit=5000)} == {"orders"}


@proves("S7")
def test_head_is_the_last_offset(kit: EventKit) -> None:
    """0 for a topic that never had an event; that of the topic alone; and it stays when the event is pruned."""
    stream = kit.stream("orders")
    kit.stream("others").publish(1)
    assert stream.head() == 0
    last = stream.publish_many([1, 2, 3])[-1]
    kit.stream("others").publish(2)
    assert stream.head() == last
    stream.prune(max_keep=0)
    assert stream.head() == last


@proves("S7")
def test_offset_at_finds_the_place_of_a_moment(kit: EventKit) -> None:
    """Reading after it yields everything created at or after the moment, and nothing else."""
    stream, others = kit.stream("orders"), kit.stream("others")
    assert stream.offset_at(datetime.now(UTC)) == 0
    for n in range(7):
        stream.publish(n)
        others.publish_many(range(n))
        advance(kit, 10)
    events = stream.read()
    for n, event in enumerate(events):
        for moment in (event.created_at, event.created_at - timedelta(seconds=4)):
            assert [e.payload for e in stream.read(stream.offset_at(moment))] == list(range(n, 7))
    assert stream.read(stream.offset_at(events[-1].created_at + timedelta(seconds=1))) == []
    assert [e.payload for e in stream.read(stream.offset_at(datetime(2001, 1, 1, tzinfo=UTC)))] == list(range(7))
    ahead = stream.offset_at(datetime.now(UTC) + timedelta(days=1))
    stream.publish("later")
    assert [e.payload for e in stream.read(ahead)] == ["later"]


@proves("S7", "S8")
def test_offset_at_goes_on_after_pruning(kit: EventKit) -> None:
    """What it gives for a moment before the first event left is no position that was pruned away."""
    stream = kit.stream("orders")
    stream.publish_many(range(5))
    advance(kit, 100)
    stream.publish_many(range(5, 8))
    stream.prune(older_than=50)
    for moment in (datetime(2001, 1, 1, tzinfo=UTC), datetime.now(UTC) - timedelta(seconds=30)):
        assert [event.payload for event in stream.read(stream.offset_at(moment))] == [5, 6, 7]
    advance(kit, 100)
    stream.prune(older_than=50)
    assert stream.read(stream.offset_at(datetime(2001, 1, 1, tzinfo=UTC))) == []


@proves("S7")
def test_offset_at_wants_a_time_zone(kit: EventKit) -> None:
    """A naive datetime is refused."""
    with pytest.raises(ValueError, match="time zone"):
        kit.stream("orders").offset_at(datetime(2030, 1, 1))


@proves("G9", "S3")
@pytest.mark.parametrize("type", [_Point, _PointStruct, _PointDict], ids=["dataclass", "struct", "typeddict"])
def test_an_event_that_does_not_decode_is_delivered_and_passed(kit: EventKit, type: Any) -> None:
    """Its payload is an `Undecodable` with the text and the error; those around it, and its offset, are as ever."""
    typed, raw = kit.stream("points", type=type), kit.stream("points")
    offsets = [typed.publish(type(x=1)), raw.publish({"x": "word"}, headers={"a": "b"}), typed.publish(type(x=3))]
    events = typed.read()
    assert [event.offset for event in events] == offsets
    assert [events[0].payload, events[2].payload] == [type(x=1), type(x=3)]
    payload = events[1].payload
    assert isinstance(payload, Undecodable)
    assert msgspec.json.decode(payload.text) == {"x": "word"}
    assert "int" in payload.error
    assert events[1].headers == {"a": "b"}


@proves("G9", "S5")
def test_a_subscriber_passes_what_does_not_decode(kit: EventKit) -> None:
    """The loop gets it as an `Undecodable`, goes on, and its position lies behind it."""
    typed, raw = kit.stream("points", type=_Point), kit.stream("points")
    typed.publish(_Point(1))
    bad = raw.publish("no point")
    last = typed.publish(_Point(3))
    with typed.subscribe("consumer", batch=1, save_every_n=1) as events:
        first, second = take(events, 2)
        assert (first.payload, second.offset) == (_Point(1), bad)
        assert isinstance(second.payload, Undecodable)
        assert take(events, 1)[0].payload == _Point(3)
    assert typed.offset("consumer") == bad
    assert [event.offset for event in typed.read(typed.offset("consumer"))] == [last]

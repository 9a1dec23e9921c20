"""Streams: publishing, reading, and dedup ids."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

import msgspec
import pytest

from eventkit import Event, EventKit, NewEvent
from eventkit.codec import Undecodable
from eventkit.testing import advance

from .clauses import both_flavours, proves
from .processes import spawn
from .streaming import go, publish_same_ids, transaction
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
    """`read` returns the offset that `publish` returned, and all arguments."""
    stream = kit.stream("orders")
    offset = stream.publish({"id": 42}, key="42", headers={"trace": "yes"})
    [event] = stream.read()
    assert isinstance(event, Event)
    assert (event.offset, event.stream, event.key) == (offset, "orders", "42")
    assert (event.payload, event.headers) == ({"id": 42}, {"trace": "yes"})
    assert event.created_at.utcoffset() == timedelta(0)
    assert abs(event.created_at - datetime.now(UTC)) < timedelta(minutes=1)


@proves("S1")
def test_offsets_are_integers_that_grow(kit: EventKit) -> None:
    """Offsets grow across events of other topics."""
    orders, others = kit.stream("orders"), kit.stream("others")
    offsets = []
    for n in range(5):
        offsets.append(orders.publish(n))
        others.publish(n)
        offsets += orders.publish_many([n, n])
    assert all(type(offset) is int and offset > 0 for offset in offsets)
    assert offsets == sorted(set(offsets))
    assert [event.offset for event in orders.read()] == offsets


@proves("S1")
def test_publish_many_takes_any_number(kit: EventKit) -> None:
    """It takes none, and thousands, from any iterable."""
    stream = kit.stream("orders")
    assert stream.publish_many([]) == []
    offsets = stream.publish_many(n for n in range(5000))
    assert len(offsets) == 5000
    assert [(event.offset, event.payload) for event in stream.read(limit=6000)] == list(
        zip(offsets, range(5000), strict=True)
    )


@proves("S1")
def test_publish_many_is_all_or_nothing(kit: EventKit) -> None:
    """A refused item, or an exception of the iterable, leaves no event of the batch."""
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
    """A reader during the commit sees a prefix of the batch, and never its end without its beginning."""
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
    """It returns *limit* events after *after*, 1,000 by default."""
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
    assert {event.stream for event in stream.read(limit=5000)} == {"orders"}


@proves("S7")
def test_head_is_the_last_offset(kit: EventKit) -> None:
    """It is 0 for a topic without events, counts that topic alone, and stays when the event is pruned."""
    stream = kit.stream("orders")
    kit.stream("others").publish(1)
    assert stream.head() == 0
    last = stream.publish_many([1, 2, 3])[-1]
    kit.stream("others").publish(2)
    assert stream.head() == last
    stream.prune(keep_count=0)
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


@proves("S7")
def test_offset_at_wants_a_time_zone(kit: EventKit) -> None:
    """A naive datetime is refused."""
    with pytest.raises(ValueError, match="time zone"):
        kit.stream("orders").offset_at(datetime(2030, 1, 1))


@proves("G9", "S3")
@pytest.mark.parametrize("type", [_Point, _PointStruct, _PointDict], ids=["dataclass", "struct", "typeddict"])
def test_an_event_that_does_not_decode_is_delivered_and_passed(kit: EventKit, type: Any) -> None:
    """Its payload is an `Undecodable` with the text and the error; offsets and other events are unaffected."""
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
@both_flavours
def test_a_subscriber_passes_what_does_not_decode(kit: EventKit) -> None:
    """The loop gets it as an `Undecodable` and continues after it."""
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


@proves("S6", "S1")
def test_duplicates_inside_and_before_a_batch(kit: EventKit) -> None:
    """`publish_many` answers for each item, duplicates inside the batch included, and writes each id once."""
    stream = kit.stream("orders")
    old = stream.publish("old", dedup="old")
    offsets = stream.publish_many(
        [
            NewEvent("a", dedup="new"),
            "plain",
            NewEvent("b", dedup="old"),
            NewEvent("c", dedup="new"),
            "plain",
            NewEvent("d", dedup="last"),
        ]
    )
    new, plain, again_old, again_new, plain_too, last = offsets
    assert (again_old, again_new) == (old, new)
    assert old < new < plain < plain_too < last
    assert [event.offset for event in stream.read()] == [old, new, plain, plain_too, last]
    assert [event.payload for event in stream.read()] == ["old", "a", "plain", "plain", "d"]
    assert stream.publish_many([NewEvent("e", dedup="old"), NewEvent("f", dedup="new")]) == [old, new]
    assert len(stream.read()) == 5


@proves("S6")
@pytest.mark.parametrize("commit", [True, False], ids=["committed", "rolled back"])
def test_the_second_waits_for_the_transaction_of_the_first(kit: EventKit, commit: bool) -> None:
    """If that commits, it gets the first one's offset; if it rolls back, it is the first."""
    stream = kit.stream("orders")
    with transaction(kit, commit=commit) as tx:
        first = stream.publish("first", dedup="id", tx=tx)
        second = in_thread(lambda: stream.publish("second", dedup="id"))
        time.sleep(0.2)
        assert not second.done()
    offset = second.result(30)
    [event] = stream.read()
    assert (event.offset, event.payload) == (offset, "first" if commit else "second")
    if commit:
        assert offset == first


@proves("S6")
@pytest.mark.parametrize("rollbacks", [False, True], ids=["committed", "some rolled back"])
def test_racing_processes_agree_on_one_event_for_an_id(kit: EventKit, url: str, flavour: str, rollbacks: bool) -> None:
    """All get the same offset, and the topic holds one event for each id."""
    processes = [spawn(publish_same_ids, url, flavour, writer, 40, rollbacks) for writer in range(3)]
    go(kit)
    answers = [process.result() for process in processes]
    assert answers[0] == answers[1] == answers[2]
    events = kit.stream("deduplicated").read()
    assert {event.payload[1]: event.offset for event in events} == answers[0]
    assert len(events) == 40
    assert all(len(event.payload) == 2 for event in events)

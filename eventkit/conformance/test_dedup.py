"""S6: publishing the same id again writes nothing."""

import time

import pytest

from eventkit import EventKit, NewEvent

from .clauses import proves
from .processes import spawn
from .rollback import rolled_back
from .streaming import go, publish_same_ids, transaction
from .threads import in_thread


@proves("S6")
def test_the_same_id_gives_the_first_offset(kit: EventKit) -> None:
    """Whatever else is said the second time; the first event stays as it was."""
    stream = kit.stream("orders")
    first = stream.publish("first", key="a", dedup="id")
    between = stream.publish("between")
    assert stream.publish("second", key="b", headers={"h": "2"}, dedup="id") == first
    assert [(event.offset, event.payload, event.key) for event in stream.read()] == [
        (first, "first", "a"),
        (between, "between", None),
    ]


@proves("S6")
def test_ids_are_a_topics_own(kit: EventKit) -> None:
    """Another topic, and another id, are no duplicates; nor are events without an id."""
    stream, other = kit.stream("orders"), kit.stream("others")
    stream.publish(1, dedup="id")
    other.publish(2, dedup="id")
    stream.publish(3, dedup="ID")
    stream.publish_many([1, 1])
    assert [event.payload for event in stream.read()] == [1, 3, 1, 1]
    assert [event.payload for event in other.read()] == [2]


@proves("S6", "S1")
def test_duplicates_inside_and_before_a_batch(kit: EventKit) -> None:
    """`publish_many` answers for each item, duplicates of the batch itself included, and writes each id once."""
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
def test_a_rolled_back_first_does_not_count(kit: EventKit) -> None:
    """The next one is the first."""
    stream = kit.stream("orders")
    with rolled_back(kit) as tx:
        stream.publish("undone", dedup="id", tx=tx)
    offset = stream.publish("done", dedup="id")
    assert stream.publish("again", dedup="id") == offset
    assert [(event.offset, event.payload) for event in stream.read()] == [(offset, "done")]


@proves("S6")
def test_a_transaction_knows_its_own_ids(kit: EventKit) -> None:
    """Before they are committed."""
    stream = kit.stream("orders")
    with kit.transaction() as tx:
        first = stream.publish("first", dedup="id", tx=tx)
        assert stream.publish("second", dedup="id", tx=tx) == first
        assert stream.publish_many([NewEvent("third", dedup="id")], tx=tx) == [first]
    assert [event.payload for event in stream.read()] == ["first"]


@proves("S6", "S8")
def test_retention_ends_with_the_event(kit: EventKit) -> None:
    """An id whose event was pruned is free; those of the events that are left are not."""
    stream = kit.stream("orders")
    first = stream.publish("first", dedup="pruned")
    left = stream.publish("left", dedup="left")
    stream.prune(max_keep=1)
    again = stream.publish("again", dedup="pruned")
    assert again > left > first
    assert stream.publish("no", dedup="left") == left
    assert stream.publish("no", dedup="pruned") == again
    assert [event.payload for event in stream.read()] == ["left", "again"]


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

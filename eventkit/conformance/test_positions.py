"""Offsets of consumers (S4, S7)."""

from datetime import UTC, datetime, timedelta

import pytest

from eventkit import EventKit
from eventkit.testing import advance
from eventkit.values import Consumer

from .clauses import both_flavours, proves
from .threads import rolled_back


@proves("S4")
def test_an_unknown_consumer_is_at_0(kit: EventKit) -> None:
    """Reading its offset does not create it."""
    stream = kit.stream("orders")
    stream.publish(1)
    assert stream.offset("consumer") == 0
    assert stream.consumers() == []


@proves("S4")
def test_save_offset_only_moves_forward(kit: EventKit) -> None:
    """The answer says whether the consumer moved."""
    stream = kit.stream("orders")
    assert stream.save_offset("consumer", 5) is True
    assert stream.offset("consumer") == 5
    assert stream.save_offset("consumer", 5) is False
    assert stream.save_offset("consumer", 4) is False
    assert stream.offset("consumer") == 5
    assert stream.save_offset("consumer", 6) is True
    assert stream.offset("consumer") == 6


@proves("S4")
def test_seek_moves_anywhere(kit: EventKit) -> None:
    """A seek goes back, to the beginning or ahead; an unknown consumer is created."""
    stream = kit.stream("orders")
    for offset in (7, 2, 0, 9):
        stream.seek("consumer", offset)
        assert stream.offset("consumer") == offset
    stream.seek("consumer", 3)
    assert stream.save_offset("consumer", 4) is True


@proves("S4")
def test_consumers_do_not_affect_each_other(kit: EventKit) -> None:
    """A consumer of the same name on another topic is not affected either."""
    stream, other = kit.stream("orders"), kit.stream("others")
    stream.save_offset("a", 5)
    assert stream.save_offset("b", 3) is True
    other.save_offset("a", 2)
    stream.seek("b", 1)
    assert (stream.offset("a"), stream.offset("b")) == (5, 1)
    assert (other.offset("a"), other.offset("b")) == (2, 0)


@proves("S4")
@both_flavours
def test_positions_belong_to_their_transaction(kit: EventKit) -> None:
    """`save_offset` and `seek` with ``tx=`` roll back with it, and commit with it."""
    stream = kit.stream("orders")
    stream.save_offset("consumer", 5)
    with rolled_back(kit) as tx:
        assert stream.save_offset("consumer", 8, tx=tx) is True
        assert stream.save_offset("consumer", 7, tx=tx) is False
        stream.seek("new", 3, tx=tx)
    assert (stream.offset("consumer"), stream.offset("new")) == (5, 0)
    with kit.transaction() as tx:
        stream.save_offset("consumer", 8, tx=tx)
        stream.seek("new", 3, tx=tx)
    assert (stream.offset("consumer"), stream.offset("new")) == (8, 3)


@proves("S4")
def test_positions_are_whole_numbers_from_0(kit: EventKit) -> None:
    """Any other offset is refused."""
    stream = kit.stream("orders")
    for move in (stream.save_offset, stream.seek):
        with pytest.raises(ValueError, match="offset"):
            move("consumer", -1)
        with pytest.raises(TypeError, match="offset"):
            move("consumer", 1.5)  # type: ignore[arg-type]
    assert stream.consumers() == []


@proves("S7")
def test_consumers_are_listed_with_their_lag(kit: EventKit) -> None:
    """They are sorted by name; the lag is the number of events of the topic that lie ahead."""
    stream, others = kit.stream("orders"), kit.stream("others")
    offsets = []
    for n in range(6):
        offsets.append(stream.publish(n))
        others.publish(n)
    stream.save_offset("slow", offsets[1])
    stream.save_offset("done", offsets[5])
    stream.seek("back", 0)
    others.save_offset("elsewhere", offsets[2])
    consumers = stream.consumers()
    assert all(isinstance(consumer, Consumer) for consumer in consumers)
    assert [(consumer.name, consumer.offset, consumer.lag) for consumer in consumers] == [
        ("back", 0, 6),
        ("done", offsets[5], 0),
        ("slow", offsets[1], 4),
    ]
    stream.prune(keep_count=2, keep_unconsumed=False)
    assert [consumer.lag for consumer in stream.consumers()] == [2, 0, 2]


@proves("S7")
def test_updated_at_is_when_the_consumer_moved_last(kit: EventKit) -> None:
    """A save that moves nothing does not count; a seek does."""
    stream = kit.stream("orders")

    def age() -> timedelta:
        [consumer] = stream.consumers()
        return datetime.now(UTC) - consumer.updated_at

    stream.save_offset("consumer", 1)
    advance(kit, 1000)
    stream.save_offset("consumer", 1)
    assert age() > timedelta(seconds=900)
    stream.save_offset("consumer", 2)
    assert age() < timedelta(seconds=500)
    advance(kit, 1000)
    stream.seek("consumer", 1)
    assert age() < timedelta(seconds=500)

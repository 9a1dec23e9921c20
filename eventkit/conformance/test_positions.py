"""Offsets of consumers (S4, S7)."""

import pytest

from eventkit import EventKit

from .clauses import proves


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
def test_positions_are_whole_numbers_from_0(kit: EventKit) -> None:
    """Any other offset is refused."""
    stream = kit.stream("orders")
    for move in (stream.save_offset, stream.seek):
        with pytest.raises(ValueError, match="offset"):
            move("consumer", -1)
        with pytest.raises(TypeError, match="offset"):
            move("consumer", 1.5)  # type: ignore[arg-type]
    assert stream.consumers() == []

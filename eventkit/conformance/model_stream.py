"""A model of a stream, and the calls on it."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from eventkit.values import NewEvent

_ALL = 2**62


@dataclass
class ModelEvent:
    """An event."""

    payload: Any
    key: str | None
    headers: dict[str, str]
    dedup: str | None
    created: int


@dataclass
class StreamModel:
    """One topic."""

    now: int = 0
    events: dict[int, ModelEvent] = field(default_factory=dict)
    """The events by offset, ascending."""
    consumers: dict[str, int] = field(default_factory=dict)
    updated: dict[str, int] = field(default_factory=dict)
    pruned_to: int = 0
    newest: int = 0

    def publish(self, event: ModelEvent, offset: int) -> int:
        """Append an event under *offset*, unless it is a duplicate; return its offset, or that of the original."""
        if event.dedup is not None:
            for first, other in self.events.items():
                if other.dedup == event.dedup:
                    return first
        assert offset > self.newest, "an offset is new, and higher than any that was committed"
        self.newest = offset
        self.events[offset] = event
        return offset

    def read(self, after: int, limit: int = _ALL) -> list[int]:
        """Return the offsets of the events after *after*."""
        return [offset for offset in self.events if offset > after][:limit]

    def missing(self, after: int) -> tuple[int, int] | None:
        """Return the first and last pruned offset after *after*; None if no event is missing."""
        return (after + 1, self.pruned_to) if 0 < after < self.pruned_to else None

    def save(self, consumer: str, offset: int) -> bool:
        """Move the consumer forward."""
        if consumer in self.consumers and offset <= self.consumers[consumer]:
            return False
        self.seek(consumer, offset)
        return True

    def seek(self, consumer: str, offset: int) -> None:
        """Move the consumer to any offset."""
        self.consumers[consumer] = offset
        self.updated[consumer] = self.now

    def prune(self, older_than: float | None, keep_count: int | None, keep_unconsumed: bool) -> int:
        """Drop the oldest events and return how many."""
        offsets = list(self.events)
        too_many = set() if keep_count is None else set(offsets[: max(0, len(offsets) - keep_count)])
        too_old = {
            offset
            for offset, event in self.events.items()
            if older_than is not None and event.created < self.now - older_than
        }
        bound = min(self.consumers.values(), default=_ALL) if keep_unconsumed else _ALL
        dropped = [offset for offset in offsets if offset in too_many | too_old and offset <= bound]
        for offset in dropped:
            del self.events[offset]
        self.pruned_to = max([self.pruned_to, *dropped])
        return len(dropped)


Call = tuple[str, dict[str, Any]]

POSITIONS = st.integers(0, 12)
CONSUMERS = st.sampled_from(["ann", "ben"])
EVENTS = st.builds(
    NewEvent,
    payload=st.none(),
    key=st.sampled_from([None, "a"]),
    headers=st.sampled_from([None, {"trace": "1"}]),
    dedup=st.sampled_from([None, None, "x", "y", "z"]),
)

BATCHES = st.lists(EVENTS, max_size=4)


def _calls(**methods: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Call]]:
    """Return a strategy for lists of calls of the methods, with drawn arguments."""
    calls = {name: st.tuples(st.just(name), arguments) for name, arguments in methods.items()}
    return st.lists(st.sampled_from(sorted(calls)).flatmap(calls.__getitem__), max_size=5)


_moves = st.fixed_dictionaries({"consumer": CONSUMERS, "where": POSITIONS})
SCRIPTS = _calls(
    publish=st.fixed_dictionaries({"event": EVENTS}),
    publish_many=st.fixed_dictionaries({"events": BATCHES, "plain": st.booleans()}),
    publish_elsewhere=st.just({}),
    spoil=st.just({}),
    save_offset=_moves,
    seek=_moves,
)

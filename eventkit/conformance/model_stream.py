"""A stream in plain Python, for comparison with a real one.  Offsets are the database's; time is in ticks."""

from dataclasses import dataclass, field
from typing import Any

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
    """By offset, ascending."""
    consumers: dict[str, int] = field(default_factory=dict)
    updated: dict[str, int] = field(default_factory=dict)
    pruned_to: int = 0
    newest: int = 0

    def publish(self, event: ModelEvent, offset: int) -> int:
        """Append an event under *offset*, unless it is a duplicate; its offset, or the first one's."""
        if event.dedup is not None:
            for first, other in self.events.items():
                if other.dedup == event.dedup:
                    return first
        assert offset > self.newest, "an offset is new, and higher than any that was committed"
        self.newest = offset
        self.events[offset] = event
        return offset

    def read(self, after: int, limit: int = _ALL) -> list[int]:
        """The offsets of the events behind *after*."""
        return [offset for offset in self.events if offset > after][:limit]

    def missing(self, after: int) -> tuple[int, int] | None:
        """The first and the last offset that a reader at *after* can no longer read; None if nothing was pruned."""
        return (after + 1, self.pruned_to) if 0 < after < self.pruned_to else None

    def save(self, consumer: str, offset: int) -> bool:
        """Move the consumer forward."""
        if consumer in self.consumers and offset <= self.consumers[consumer]:
            return False
        self.seek(consumer, offset)
        return True

    def seek(self, consumer: str, offset: int) -> None:
        """Move the consumer anywhere."""
        self.consumers[consumer] = offset
        self.updated[consumer] = self.now

    def prune(self, older_than: float | None, max_keep: int | None, keep_unconsumed: bool) -> int:
        """Drop the oldest events; how many."""
        offsets = list(self.events)
        too_many = set() if max_keep is None else set(offsets[: max(0, len(offsets) - max_keep)])
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

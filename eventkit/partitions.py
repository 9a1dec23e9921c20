"""The partitions of a member of a consumer group: what was read, handed out, handled and parked of each.

It does no I/O; `member` reads events into it, and saves what it says.  The row of a parked event is never beyond the
stored position, so that no later owner reads the event again; and until it has a row, the event is not handed out.
"""

from collections import deque
from collections.abc import Iterable, Mapping, MutableSequence
from heapq import heapify, heappop, heappush
from time import monotonic
from typing import Any

from .operations.consumer_group import ParkedRow, partition_of
from .values import Event

_MOST_RETRIED = 100
"""The maximum number of parked events that are handed out before others."""


class Partition:
    """A partition of a member."""

    __slots__ = ("full", "parked", "read", "saved", "stopped")

    def __init__(self, position: int, stopped: bool) -> None:
        self.saved = self.read = position
        """The stored position, and the offset up to which the stream was read."""
        self.parked = 0
        self.full = False
        """True if reading waits until fewer events are parked."""
        self.stopped = stopped


class Parked:
    """An event that waits for its next attempt at *due*; or, if that is None, for the earlier events of its key."""

    __slots__ = ("attempt", "due", "event", "key", "number", "queued")

    def __init__(self, event: int, number: int, key: str | None, attempt: int, due: float | None) -> None:
        self.event = event
        self.number = number
        self.key = key
        self.attempt = attempt
        """The number of attempts that have failed."""
        self.due = due
        self.queued = False

    @property
    def line(self) -> str | int:
        """The events that wait for each other: those of the key, or this one alone."""
        return self.event if self.key is None else self.key


class Partitions:
    """The partitions of a member, and its parked events; *items* are the events to hand out."""

    def __init__(self, items: deque[Event[Any]]) -> None:
        self.items = items
        self.items.clear()
        self.count = 0
        """The number of partitions of the group."""
        self.bound = 0
        """The number of events that may be parked in a partition."""
        self.held: dict[int, Partition] = {}
        self.again: dict[int, Parked] = {}
        """The parked events that are being handed out again."""
        self.retrying = False
        self.done: dict[int, int] = {}
        """The parked events that were handled, whose rows are still stored, with their partitions."""
        self._lines: dict[str | int, deque[Parked]] = {}
        """The parked events, by what they wait for, in order."""
        self._due: list[tuple[float, int, Parked]] = []
        self._began = 0.0
        self.again_at = 0.0
        """The time before which no parked events are handed out: they take half of the time of a busy member."""
        self._unwritten: dict[int, Parked] = {}
        self._rest: list[Event[Any]] = []
        """The events that were read, while parked ones are handed out."""

    def number(self, event: Event[Any]) -> int:
        """Return the number of the partition of an event."""
        return partition_of(event.offset, event.key, self.count)

    @property
    def due(self) -> float:
        """The time at which a parked event can be handed out again."""
        return max(self._due[0][0], self.again_at) if self._due else float("inf")

    def reads(self) -> dict[int, int]:
        """Return the partitions to read, each with the offset after which to read it."""
        for part in self.held.values():
            part.full = part.full and part.parked >= self.bound
        return {number: part.read for number, part in self.held.items() if not (part.full or part.stopped)}

    def add(self, reads: Iterable[int], events: list[Event[Any]], last: int, *, own: bool) -> None:
        """Take a block of events, which has all of these partitions up to *last*, and nothing else if it is *own*."""
        for number in reads:
            part = self.held[number]
            part.read = max(part.read, last)
        self.items.extend(events if own and not self._lines else self._admitted(events))

    def _admitted(self, events: Iterable[Event[Any]]) -> list[Event[Any]]:
        """Return the events that can be handed out, and park those behind a parked event of their key."""
        passed = []
        for event in events:
            number = self.number(event)
            part = self.held[number]
            if event.offset > part.read:
                continue  # It is read again.
            if event.key is None or event.key not in self._lines:
                passed.append(event)
            elif part.parked >= self.bound:
                part.full = True
                self._read_again(number, event.offset - 1)
            else:
                self._unwritten[event.offset] = self.park(event.offset, number, event.key, 0, None)
        return passed

    def park(self, event: int, number: int, key: str | None, attempt: int, due: float | None) -> Parked:
        """Add a parked event behind the earlier ones of its key."""
        parked = Parked(event, number, key, attempt, due)
        self._lines.setdefault(parked.line, deque()).append(parked)
        self.held[number].parked += 1
        return parked

    def defer(self, event: Event[Any], attempt: int, due: float) -> None:
        """Park the event in progress, which has failed, with those of its key that were read."""
        parked = self.again.pop(event.offset, None)
        if parked is None:
            number = self.number(event)
            parked, part = self.park(event.offset, number, event.key, attempt, due), self.held[number]
            if part.parked >= self.bound:
                part.full = True
                self._read_again(number, event.offset)
            if part.full or event.key is not None:
                _keep(self.items, self._admitted(list(self.items)))
        parked.attempt, parked.due = attempt, due
        self._schedule(parked)

    def stop(self, event: Event[Any]) -> None:
        """Hand out nothing more of the partition of the event in progress, which is read again afterwards."""
        number = self.number(event)
        self.held[number].stopped = True
        self.finish(event)
        unread = [one.offset for one in (self._rest if self.retrying else self.items) if self.number(one) == number]
        if event.offset not in self.again:
            unread.append(event.offset)
        if unread:
            self._read_again(number, min(unread) - 1)
        self._forget({number})

    def _read_again(self, number: int, offset: int) -> None:
        """Read a partition again after an offset; forget the events beyond it that were parked."""
        part = self.held[number]
        part.read = offset
        for parked in [one for one in self._unwritten.values() if one.number == number and one.event > offset]:
            del self._unwritten[parked.event]
            part.parked -= 1
            self._lines[parked.line].remove(parked)
            if not self._lines[parked.line]:
                del self._lines[parked.line]

    def schedule(self) -> None:
        """Hand out the first event of each line when it is due."""
        for line in self._lines.values():
            self._schedule(line[0])

    def _schedule(self, parked: Parked) -> None:
        stored = parked.event <= self.held[parked.number].saved
        if stored and parked.event not in self.again and not parked.queued:
            parked.queued = True
            heappush(self._due, (monotonic() if parked.due is None else parked.due, parked.event, parked))

    def take_due(self) -> list[int]:
        """Return the parked events to hand out now."""
        now = monotonic()
        while self.due <= now and len(self.again) < _MOST_RETRIED:
            parked = heappop(self._due)[2]
            parked.queued = False
            if not self.held[parked.number].stopped:
                self.again[parked.event] = parked
        return sorted(self.again)

    def begin_again(self, events: list[Event[Any]]) -> None:
        """Hand out parked events before all others."""
        self.retrying, self._began = True, monotonic()
        self._rest = list(self.items)
        _keep(self.items, events)

    def end_again(self) -> None:
        """Go on with the others.  A parked event that was pruned was not found, and is dropped."""
        self.finish(None)
        _keep(self.items, self._rest)
        self._rest, self.retrying = [], False
        self.again_at = 2 * monotonic() - self._began

    def finish(self, in_progress: Event[Any] | None) -> None:
        """Forget parked events that were handed out and handled; those that follow them are due now."""
        if not self.retrying:
            return
        waiting = {event.offset for event in self.items}
        if in_progress is not None:
            waiting.add(in_progress.offset)
        for parked in [one for one in self.again.values() if one.event not in waiting]:
            del self.again[parked.event]
            self.held[parked.number].parked -= 1
            self.done[parked.event] = parked.number
            line = self._lines[parked.line]
            line.popleft()
            if line:
                self._schedule(line[0])
            else:
                del self._lines[parked.line]

    def release(self, numbers: Iterable[int]) -> None:
        """Forget partitions, with what was read of them and not handed out."""
        gone = set(numbers)
        self._forget(gone)
        for number in gone:
            del self.held[number]
        self._lines = {name: line for name, line in self._lines.items() if line[0].number not in gone}
        self._unwritten = {event: one for event, one in self._unwritten.items() if one.number not in gone}
        self._due = [entry for entry in self._due if entry[2].number not in gone]
        heapify(self._due)

    def _forget(self, gone: set[int]) -> None:
        """Drop what was read of some partitions and not handed out."""
        for waiting in (self.items, self._rest):
            _keep(waiting, [event for event in waiting if self.number(event) not in gone])
        for parked in [one for one in self.again.values() if one.number in gone]:
            del self.again[parked.event]

    def unsaved(
        self, in_progress: Event[Any] | None, needed: Iterable[int] = ()
    ) -> tuple[list[tuple[int, int]], list[ParkedRow]]:
        """Return the positions to save, and the rows of the events that are parked below them."""
        reached = {number: part.read for number, part in self.held.items()}
        if in_progress is not None and in_progress.offset not in self.again:
            reached[self.number(in_progress)] = in_progress.offset - 1
        for event in self._rest if self.retrying else self.items:
            number = self.number(event)
            reached[number] = min(reached[number], event.offset - 1)
        also = {*needed, *self.done.values()}
        saved = {number: part.saved for number, part in self.held.items()}
        moved = {
            number: max(position, saved[number])
            for number, position in reached.items()
            if position > saved[number] or number in also
        }
        return list(moved.items()), self.rows(moved)

    def rows(self, positions: Mapping[int, int]) -> list[ParkedRow]:
        """Return the rows to write before partitions have these positions."""
        return [
            (one.event, one.number, one.key, 0, None)
            for one in self._unwritten.values()
            if one.event <= positions.get(one.number, 0)
        ]

    def saved(self, positions: Mapping[int, int]) -> None:
        """Take note that positions and the rows below them were saved."""
        for event in [row[0] for row in self.rows(positions)]:
            del self._unwritten[event]
        for number, position in positions.items():
            self.held[number].saved = position
        self.schedule()


def _keep(waiting: MutableSequence[Event[Any]], events: list[Event[Any]]) -> None:
    waiting.clear()
    waiting.extend(events)

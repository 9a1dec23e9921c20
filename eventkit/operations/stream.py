"""What is asked of a database about streams."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from ..codec import Codec, DecodeError, decode_headers
from ..errors import Truncated
from ..records import Consumer, Event
from . import Operation, Origin, Outlook, Plan, Probe, Rows
from .position import Position, ReadPosition, VerifyPosition

EventRow = tuple[str, str | None, str | None, str | None]
"""``payload, key, headers, dedup``; payload and headers as JSON text."""


class Publish(Operation[int], frozen=True):
    """Append one event; its offset."""

    topic: str
    key: str | None
    payload: str
    headers: str | None

    def decode(self, rows: Rows) -> int:
        """The offset."""
        offset: int = rows[0][0]
        return offset


class PublishPlain(Operation[list[int]], frozen=True):
    """Append events of which nothing but the payload is said; their offsets, in order."""

    topic: str
    payloads: list[str]

    def decode(self, rows: Rows) -> list[int]:
        """The offsets."""
        return [offset for (offset,) in rows]


class PublishMany(Operation[list[int]], frozen=True):
    """Append events; their offsets, in order.

    A row whose dedup id the topic has already gets the first one's offset and appends nothing.
    """

    topic: str
    events: list[EventRow]

    def plan(self) -> Plan[list[int]]:
        """One statement, and a look for the first offsets of duplicates where there are any."""
        rows = yield self
        if len(rows) == len(self.events):
            return [row[0] for row in rows]
        plain = iter([offset for offset, dedup in rows if dedup is None])
        wanted = list({event[3] for event in self.events if event[3] is not None})
        first: dict[str, int] = dict((yield FindDuplicates(self.topic, wanted)))
        return [next(plain) if event[3] is None else first[event[3]] for event in self.events]


class PublishOne(Operation[int], frozen=True):
    """Append one event that may be a duplicate; its offset, or the first one's."""

    topic: str
    event: EventRow

    def plan(self) -> Plan[int]:
        """`PublishMany` for one."""
        [offset] = yield from PublishMany(self.topic, [self.event]).plan()
        return offset


class FindDuplicates(Operation[None], frozen=True):
    """The offsets of the events that bear one of the dedup ids."""

    writes: ClassVar[bool] = False
    topic: str
    dedups: list[str]


class ReadEvents(Operation[list[Event[Any]]], frozen=True):
    """The events after an offset, in order."""

    writes: ClassVar[bool] = False
    topic: str
    after: int
    limit: int
    codec: Codec
    skip: bool

    def decode(self, rows: Rows) -> list[Event[Any]]:
        """One event a row, with `Undecodable` for a payload that does not decode."""
        decode = self.codec.decode
        topic = self.topic
        try:
            return [
                Event(offset, topic, key, decode(payload), decode_headers(headers) if headers else {}, created)
                for offset, key, payload, headers, created in rows
            ]
        except DecodeError:
            return [
                Event(offset, topic, key, *self.codec.decode_or_wrap(payload, headers), created)
                for offset, key, payload, headers, created in rows
            ]

    def plan(self) -> Plan[list[Event[Any]]]:
        """The rows; and where they begin behind a gap, a look whether the gap was pruned."""
        rows = yield self
        yield from self.check_gap(rows)
        return self.decode(rows)

    def check_gap(self, rows: Rows) -> Plan[None]:
        """Raise `Truncated` if events in front of *rows* were pruned."""
        if self.after and not self.skip and (not rows or rows[0][0] != self.after + 1):
            pruned = yield ReadPrunedTo(self.topic)
            if pruned and pruned[0][0] > self.after:
                raise Truncated(self.topic, self.after + 1, pruned[0][0])


class ResumePosition(Operation[Position], frozen=True):
    """The position of a client that has seen an event, of which only the offset is known."""

    writes: ClassVar[bool] = False
    topic: str
    offset: int

    def plan(self) -> Plan[Position]:
        """An offset beyond the head is one of the database as it was, and no event proves it."""
        position = yield from ReadPosition(self.topic, self.offset).plan()
        [(head,)] = yield ReadHead(self.topic)
        return position if self.offset <= head else Position(position.database, self.offset, self.offset)


class Page(NamedTuple):
    """Events, and the position after them.

    *rewound* is where the consumer was saved, and the events begin, if the database has gone back behind the reader.
    """

    events: list[Event[Any]]
    position: Position
    rewound: Position | None = None


class FollowEvents(Operation[Page], frozen=True):
    """The events behind a position, which is verified in the same step."""

    writes: ClassVar[bool] = False
    topic: str
    consumer: str | None
    position: Position
    limit: int
    codec: Codec
    skip: bool

    def plan(self) -> Plan[Page]:
        """Read the last event once more with the next ones: while it is there, nothing was lost nor pruned."""
        known = self.position
        rewound: Position | None = None
        rows: Rows = []
        if known.created and known.event == known.offset:
            rows = yield ReadEvents(self.topic, known.offset - 1, self.limit + 1, self.codec, self.skip)
        reading = ReadEvents(self.topic, known.offset, self.limit, self.codec, self.skip)
        if rows and known.proved_by(*rows[0]):
            del rows[0]
        else:
            if not (yield from VerifyPosition(self.topic, known).plan()):
                if self.consumer is None:
                    raise known.lost(self.topic, "subscribe again from where you want to be")
                saved = yield ReadOffset(self.topic, self.consumer)
                known = yield from ReadPosition(self.topic, saved[0][0] if saved else 0).plan()
                # An offset beyond all events is one of the database as it was.
                known = rewound = known._replace(offset=known.event)
                reading = ReadEvents(self.topic, known.offset, self.limit, self.codec, self.skip)
            rows = yield reading
            yield from reading.check_gap(rows)
        return Page(reading.decode(rows), known.after(*rows[-1]) if rows else known, rewound)


class ReadPrunedTo(Operation[None], frozen=True):
    """The highest offset ever pruned from the topic."""

    writes: ClassVar[bool] = False
    topic: str


class EventsAhead(Probe, frozen=True):
    """Whether the topic has an event after an offset, or has lost the last *event* that was read, of that moment."""

    topic: str
    after: int
    event: int = 0
    created: int = 0

    @classmethod
    def of(cls, topic: str, position: Position) -> EventsAhead:
        """Return the probe of a reader at *position*."""
        return cls(topic, position.offset, position.event, position.created)

    @property
    def subjects(self) -> tuple[str, ...]:
        """The topic."""
        return (f"event:{self.topic}",)

    def decode(self, rows: Rows) -> Outlook:
        """Ready or not; and when to look for what is committed but has not settled, where that can be."""
        ready, *moments = rows[0]
        return Outlook(bool(ready), *moments)


class ReadHead(Operation[int], frozen=True):
    """The highest settled offset of the topic; 0 when there never was one."""

    writes: ClassVar[bool] = False
    topic: str

    def decode(self, rows: Rows) -> int:
        """The offset."""
        offset: int = rows[0][0]
        return offset


class FindLatest(Operation[Origin], frozen=True):
    """Where what is published from now on begins."""

    writes: ClassVar[bool] = False
    topic: str

    def decode(self, rows: Rows) -> Origin:
        """The first row is the head, and further ones are events above it that are visible already."""
        (head,), *seen = rows
        return Origin(head, frozenset(offset for (offset,) in seen))


class FindOffset(Operation[int], frozen=True):
    """The offset after which everything created at or after a moment lies."""

    writes: ClassVar[bool] = False
    topic: str
    moment: int

    def decode(self, rows: Rows) -> int:
        """The offset."""
        offset: int = rows[0][0]
        return offset


class ReadOffset(Operation[int], frozen=True):
    """Where the consumer is; 0 if it is unknown."""

    writes: ClassVar[bool] = False
    topic: str
    consumer: str

    def decode(self, rows: Rows) -> int:
        """The offset."""
        return rows[0][0] if rows else 0


class SaveOffset(Operation[bool], frozen=True):
    """Move the consumer forward; False if it is there or beyond already."""

    topic: str
    consumer: str
    offset: int

    def decode(self, rows: Rows) -> bool:
        """Whether it moved."""
        return bool(rows)


class SaveHandled(Operation[bool], frozen=True):
    """Move the consumer forward to an event of that moment; False if it is there or beyond, or the event is lost."""

    topic: str
    consumer: str
    offset: int
    created: int

    def decode(self, rows: Rows) -> bool:
        """Whether it moved."""
        return bool(rows)


class Seek(Operation[None], frozen=True):
    """Move the consumer anywhere."""

    topic: str
    consumer: str
    offset: int

    def decode(self, rows: Rows) -> None:
        """Nothing to say."""


class AcquireConsumer(Operation[bool], frozen=True):
    """Take a consumer's name for *ttl* milliseconds, if no one holds it; whether it was free.

    A stream that is read as a whole has partition 0 only.
    """

    topic: str
    consumer: str
    partition: int
    holder: str
    token: int
    ttl: int

    def decode(self, rows: Rows) -> bool:
        """Whether the name is ours."""
        return bool(rows)

    def undo(self, answer: bool) -> Operation[Any] | None:
        """The release, so that a standby gets the name at once."""
        return LeaveConsumer(self.topic, self.consumer, self.partition, self.token, 0, 0) if answer else None


class RenewConsumer(Operation[None], frozen=True):
    """Let the lease of a consumer's name end *ttl* milliseconds from now; no row if another holder has it."""

    topic: str
    consumer: str
    partition: int
    token: int
    ttl: int


class KeepConsumer(Operation[bool], frozen=True):
    """Renew the lease of a consumer's name and save its offset, unless that is 0; False if the lease was lost."""

    topic: str
    consumer: str
    partition: int
    token: int
    ttl: int
    offset: int
    created: int

    def plan(self) -> Plan[bool]:
        """The renewal first: it locks the lease, so that nothing is saved beside another holder."""
        held = yield RenewConsumer(self.topic, self.consumer, self.partition, self.token, self.ttl)
        if held and self.offset:
            yield SaveHandled(self.topic, self.consumer, self.offset, self.created)
        return bool(held)


class ReleaseConsumer(Operation[None], frozen=True):
    """End the lease of a consumer's name; no row if another holder has it."""

    topic: str
    consumer: str
    partition: int
    token: int


class LeaveConsumer(Operation[None], frozen=True):
    """Save a consumer's offset, unless that is 0, and let another holder have the name."""

    topic: str
    consumer: str
    partition: int
    token: int
    offset: int
    created: int

    def plan(self) -> Plan[None]:
        """Nothing is saved where the lease was lost."""
        held = yield ReleaseConsumer(self.topic, self.consumer, self.partition, self.token)
        if held and self.offset:
            yield SaveHandled(self.topic, self.consumer, self.offset, self.created)


class ReadConsumerHolder(Operation[str | None], frozen=True):
    """Read the holder of a consumer's name."""

    writes: ClassVar[bool] = False
    topic: str
    consumer: str
    partition: int

    def decode(self, rows: Rows) -> str | None:
        """The holder; None for a name that is free."""
        return rows[0][0] if rows else None


class ConsumerAhead(Probe, frozen=True):
    """Whether a consumer's name is free, or when its lease will end, which is for *ttl* milliseconds at a time."""

    topic: str
    consumer: str
    partition: int
    ttl: int

    @property
    def subjects(self) -> tuple[str, ...]:
        """The consumer."""
        return (f"consumer:{self.topic}:{self.consumer}",)

    def decode(self, rows: Rows) -> Outlook:
        """Ready if no one holds the name."""
        until, now = rows[0]
        return Outlook(until is None, until, now)


class ListConsumers(Operation[list[Consumer]], frozen=True):
    """The topic's consumers by name."""

    writes: ClassVar[bool] = False
    topic: str

    def decode(self, rows: Rows) -> list[Consumer]:
        """One consumer a row."""
        return [Consumer(*row) for row in rows]


class Prune(Operation[int], frozen=True):
    """Drop the oldest events of the topic: those older than a duration, and those beyond a number."""

    topic: str
    older_than: int | None
    max_keep: int | None
    keep_unconsumed: bool

    def plan(self) -> Plan[int]:
        """Find the last offset to drop, and drop up to it."""
        [(last,)] = yield FindPrunable(self.topic, self.older_than, self.max_keep, self.keep_unconsumed)
        return (yield from drop_events(self.topic, last))


class FindPrunable(Operation[int | None], frozen=True):
    """The last offset of what `Prune` would drop; None for nothing."""

    writes: ClassVar[bool] = False
    topic: str
    older_than: int | None
    max_keep: int | None
    keep_unconsumed: bool

    def decode(self, rows: Rows) -> int | None:
        """The offset."""
        last: int | None = rows[0][0]
        return last


def drop_events(topic: str, last: int | None) -> Plan[int]:
    """Drop the topic's events up to an offset, and remember it for readers behind; how many events."""
    if last is None:
        return 0
    dropped = yield DropEvents(topic, last)
    yield RememberPruned(topic, last)
    return len(dropped)


class DropEvents(Operation[None], frozen=True):
    """Delete the topic's events up to an offset."""

    topic: str
    last: int


class RememberPruned(Operation[None], frozen=True):
    """Note that the topic is pruned up to an offset."""

    topic: str
    last: int

"""Operations on streams: publish, read, consumers."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..codec import Codec, DecodeError, decode_headers
from ..errors import Truncated
from ..values import Consumer, Event
from . import (
    Operation,
    Origin,
    Plan,
    Probe,
    Read,
    Rows,
    column,
    each,
    first,
    first_or_none,
    flag,
    nothing,
    one,
    step,
    until_free,
)
from .position import Position, ReadPosition, VerifyPosition

EventRow = tuple[str, str | None, str | None, str | None]
"""``payload, key, headers, dedup``; payload and headers as JSON text."""


class Publish(Operation[int], frozen=True):
    """Append one event; return its offset."""

    topic: str
    key: str | None
    payload: str
    headers: str | None
    decode = first


class PublishPlain(Operation[list[int]], frozen=True):
    """Append events that have nothing but a payload; return their offsets, in order."""

    topic: str
    payloads: list[str]
    decode = column


class PublishMany(Operation[list[int]], frozen=True):
    """Append events; return their offsets, in order.

    A row whose dedup id is in the topic gets the first event's offset and appends nothing.
    """

    topic: str
    events: list[EventRow]

    def plan(self) -> Plan[list[int]]:
        """Append them, and find the first offsets of duplicates if there are any."""
        rows = yield self
        if len(rows) == len(self.events):
            return [row[0] for row in rows]
        plain = iter([offset for offset, dedup in rows if dedup is None])
        wanted = list({event[3] for event in self.events if event[3] is not None})
        first: dict[str, int] = dict((yield step("FindDuplicates", topic=self.topic, dedups=wanted)))
        return [next(plain) if event[3] is None else first[event[3]] for event in self.events]


class PublishOne(Operation[int], frozen=True):
    """Append one event that may be a duplicate; return its offset, or the first one's."""

    topic: str
    event: EventRow

    def plan(self) -> Plan[int]:
        """Run `PublishMany` for one event."""
        [offset] = yield from PublishMany(self.topic, [self.event]).plan()
        return offset


class ReadEvents(Read[list[Event[Any]]], frozen=True):
    """Read the events after an offset, in order."""

    topic: str
    after: int
    limit: int
    codec: Codec
    skip: bool

    def decode(self, rows: Rows) -> list[Event[Any]]:
        """Return the events, with `Undecodable` for a payload that does not decode."""
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
        """Read the rows; if they begin after a gap, check whether the gap was pruned."""
        rows = yield self
        yield from self.check_gap(rows)
        return self.decode(rows)

    def check_gap(self, rows: Rows) -> Plan[None]:
        """Raise `Truncated` if events before *rows* were pruned."""
        if self.after and not self.skip and (not rows or rows[0][0] != self.after + 1):
            pruned = yield step("ReadPrunedTo", topic=self.topic)
            if pruned and pruned[0][0] > self.after:
                raise Truncated(self.topic, self.after + 1, pruned[0][0])


class ResumePosition(Read[Position], frozen=True):
    """Read the position of a client that has seen an event, given by its offset only."""

    topic: str
    offset: int

    def plan(self) -> Plan[Position]:
        """Read the proof; an offset beyond the head is of an earlier state of the database, and no event proves it."""
        position = yield from ReadPosition(self.topic, self.offset).plan()
        [(head,)] = yield ReadHead(self.topic)
        return position if self.offset <= head else Position(position.database, self.offset, self.offset)


class Page(NamedTuple):
    """Events, and the position after them.

    *rewound* is the consumer's new offset, after which the events begin, if the database has gone back behind the
    reader.
    """

    events: list[Event[Any]]
    position: Position
    rewound: Position | None = None


class FollowEvents(Read[Page], frozen=True):
    """Read the events after a position, which is verified in the same step."""

    topic: str
    consumer: str | None
    position: Position
    limit: int
    codec: Codec
    skip: bool

    def plan(self) -> Plan[Page]:
        """Read the last event again with the next ones: while it is there, none was lost or pruned."""
        known = self.position
        rewound: Position | None = None
        again = int(known.created > 0 and known.event == known.offset)
        reading = ReadEvents(self.topic, known.offset - again, self.limit + again, self.codec, self.skip)
        rows: Rows = (yield reading) if again else []
        if rows and known.proved_by(*rows[0]):
            del rows[0]
        else:
            if not (yield from VerifyPosition(self.topic, known).plan()):
                if self.consumer is None:
                    raise known.lost(self.topic, "subscribe again from where you want to be")
                saved = yield ReadOffset(self.topic, self.consumer)
                known = yield from ReadPosition(self.topic, saved[0][0] if saved else 0).plan()
                # An offset beyond all events is from an earlier state of the database.
                known = rewound = known._replace(offset=known.event)
            reading = ReadEvents(self.topic, known.offset, self.limit, self.codec, self.skip)
            rows = yield reading
            yield from reading.check_gap(rows)
        return Page(reading.decode(rows), known.past(rows), rewound)


class EventsAhead(Probe, frozen=True):
    """A probe that is ready when the topic has an event after an offset, or has lost the last *event* that was read."""

    subject = "event:{0.topic}"
    topic: str
    after: int
    event: int = 0
    created: int = 0

    @classmethod
    def of(cls, topic: str, position: Position) -> EventsAhead:
        """Return the probe of a reader at *position*."""
        return cls(topic, position.offset, position.event, position.created)


class ReadHead(Read[int], frozen=True):
    """Read the highest settled offset of the topic; 0 if there never was one."""

    topic: str
    decode = first


class FindLatest(Read[Origin], frozen=True):
    """Find the start of a reader that wants events committed from now on."""

    topic: str

    def decode(self, rows: Rows) -> Origin:
        """Return the head from the first row; further rows are events above it that are visible already."""
        (head,), *seen = rows
        return Origin(head, frozenset(offset for (offset,) in seen))


class FindOffset(Read[int], frozen=True):
    """Find the offset after which all events created at or after a time lie."""

    topic: str
    moment: int
    decode = first


class ReadOffset(Read[int], frozen=True):
    """Read the consumer's offset; 0 if it has none."""

    topic: str
    consumer: str
    decode = one(lambda offset=0: offset)


class SaveOffset(Operation[bool], frozen=True):
    """Move the consumer forward; return False if it is already at or beyond the offset.

    With *created*, also if the event at the offset, which has that time, is lost.
    """

    topic: str
    consumer: str
    offset: int
    created: int | None = None
    decode = flag


class Seek(Operation[None], frozen=True):
    """Move the consumer to any offset."""

    topic: str
    consumer: str
    offset: int
    decode = nothing


class RemoveConsumer(Operation[bool], frozen=True):
    """Delete a consumer's offset; return whether it had one."""

    topic: str
    consumer: str
    decode = flag


class AcquireConsumer(Operation[bool], frozen=True):
    """Acquire a consumer's name for *ttl* milliseconds, if it is free; return whether it was.

    A stream that is read as a whole has partition 0 only.
    """

    topic: str
    consumer: str
    partition: int
    holder: str
    token: int
    ttl: int
    decode = flag

    def undo(self, answer: bool) -> Operation[Any] | None:
        """Return the release, so that a standby gets the name at once."""
        return LeaveConsumer(self.topic, self.consumer, self.partition, self.token, 0, 0) if answer else None


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
        """Renew first: that locks the lease, so that no other holder saves at the same time."""
        held = yield self
        if held and self.offset:
            yield SaveOffset(self.topic, self.consumer, self.offset, self.created)
        return bool(held)


class LeaveConsumer(Operation[None], frozen=True):
    """Save a consumer's offset, unless that is 0, and release the name."""

    topic: str
    consumer: str
    partition: int
    token: int
    offset: int
    created: int

    def plan(self) -> Plan[None]:
        """Release first: nothing is saved if the lease was lost."""
        held = yield self
        if held and self.offset:
            yield SaveOffset(self.topic, self.consumer, self.offset, self.created)


class ReadConsumerHolder(Read[str | None], frozen=True):
    """Read the holder of a consumer's name."""

    topic: str
    consumer: str
    partition: int
    decode = first_or_none


class ConsumerAhead(Probe, frozen=True):
    """A probe that is ready when a consumer's name is free, and due when its lease of *ttl* milliseconds ends."""

    subject = "consumer:{0.topic}:{0.consumer}"
    topic: str
    consumer: str
    partition: int
    ttl: int
    decode = until_free


class ListConsumers(Read[list[Consumer]], frozen=True):
    """Read the topic's consumers by name."""

    topic: str
    decode = each(Consumer)


class Prune(Operation[int], frozen=True):
    """Delete the oldest events of the topic: those older than a duration, and those beyond a number."""

    topic: str
    older_than: int | None
    keep_count: int | None
    keep_unconsumed: bool

    def plan(self) -> Plan[int]:
        """Find the last offset to delete, and delete up to it."""
        [(last,)] = yield FindPrunable(self.topic, self.older_than, self.keep_count, self.keep_unconsumed)
        return (yield from drop_events(self.topic, last))


class FindPrunable(Read[int | None], frozen=True):
    """Find the last offset that `Prune` would delete; None if there is none."""

    topic: str
    older_than: int | None
    keep_count: int | None
    keep_unconsumed: bool
    decode = first


def drop_events(topic: str, last: int | None) -> Plan[int]:
    """Delete the topic's events up to an offset, and record it for readers behind it; return the number of events."""
    if last is None:
        return 0
    dropped = yield step("DropEvents", topic=topic, last=last)
    yield step("RememberPruned", topic=topic, last=last)
    return len(dropped)

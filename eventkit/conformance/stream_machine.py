"""Random calls on a stream, each compared with the model."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import eventkit
from eventkit.values import Event, NewEvent

from .model_stream import BATCHES, CONSUMERS, EVENTS, POSITIONS, SCRIPTS, Call, ModelEvent, StreamModel
from .queue_calls import TICK, Ground, tick


class StreamMachine(RuleBasedStateMachine):
    """A state machine in which every answer of a stream equals its model's."""

    def __init__(self, ground: Ground) -> None:
        super().__init__()
        self.ground = ground
        ground.runs += 1
        self.topics = (f"model {ground.runs}", f"other {ground.runs}")
        self.payloads = 0
        self.created: dict[int, datetime] = {}
        """The creation time of each event according to the database."""

    @initialize()
    def start(self) -> None:
        """Make a new topic."""
        self.attach()
        self.model = StreamModel()
        self.anchor = self.ground.anchor()
        assert self.stream.head() == 0

    def attach(self) -> None:
        """Make handles of the current kit."""
        self.stream, self.other = (self.ground.kit.stream(topic) for topic in self.topics)

    def teardown(self) -> None:
        """Empty the topic, so that the next run does not carry it along."""
        for topic in self.topics:
            self.ground.kit.stream(topic).prune(keep_count=0, keep_unconsumed=False)

    @invariant()
    def same_events(self) -> None:
        """Check that the topic holds the model's events, in order."""
        events = self.stream.read(limit=1000)
        self.compare(events, self.model.read(0))
        self.created = {event.offset: event.created_at for event in events}
        assert self.stream.head() >= self.model.newest

    @invariant()
    def same_consumers(self) -> None:
        """Check that every consumer has the model's offset and lag."""
        model = self.model
        assert [
            (consumer.name, consumer.offset, consumer.lag, tick(consumer.updated_at, self.anchor, model.now))
            for consumer in self.stream.consumers()
        ] == [
            (name, offset, len(model.read(offset)), model.updated[name])
            for name, offset in sorted(model.consumers.items())
        ]

    # Publishing.

    @rule(event=EVENTS)
    def publish(self, event: NewEvent, tx: Any = None) -> None:
        """Publish one event."""
        event = self.numbered(event)
        offset = self.stream.publish(event.payload, key=event.key, headers=event.headers, dedup=event.dedup, tx=tx)
        assert self.model.publish(self.modelled(event), offset) == offset

    @rule(events=BATCHES, plain=st.booleans())
    def publish_many(self, events: list[NewEvent], plain: bool, tx: Any = None) -> None:
        """Publish a batch; *plain* passes bare payloads."""
        events = [self.numbered(NewEvent(None) if plain else event) for event in events]
        offsets = self.stream.publish_many([event.payload if plain else event for event in events], tx=tx)
        expected = [
            self.model.publish(self.modelled(event), offset) for event, offset in zip(events, offsets, strict=True)
        ]
        assert offsets == expected

    @rule()
    def publish_elsewhere(self, tx: Any = None) -> None:
        """Publish an event to another topic, with an id that this topic may have too."""
        self.other.publish(None, dedup="x", tx=tx)

    @rule()
    def spoil(self, tx: Any = None) -> None:
        """Check that a batch with a value that is not JSON leaves no event."""
        try:
            self.stream.publish_many([1, NewEvent(float("nan"))], tx=tx)
        except ValueError:
            return
        raise AssertionError("NaN was accepted")

    # Reading.

    @rule(where=POSITIONS, limit=st.integers(1, 4), skip=st.booleans())
    def read(self, where: int, limit: int, skip: bool) -> None:
        """Read some events after an offset, or the range that is missing there."""
        after = self.position(where)
        missing = None if skip else self.model.missing(after)
        with self.truncated(missing):
            events = self.stream.read(after, limit, on_truncated="skip" if skip else "raise")
            self.compare(events, self.model.read(after, limit))

    @rule(
        consumer=CONSUMERS,
        start=st.sampled_from(["committed", "committed", "earliest", "offset", "moment"]),
        where=POSITIONS,
        count=st.integers(0, 4),
        batch=st.integers(1, 3),
        every=st.sampled_from([0, 1, 2, 1000]),
        skip=st.booleans(),
    )
    def subscribe(self, consumer: str, start: str, where: int, count: int, batch: int, every: int, skip: bool) -> None:
        """Take some steps of an iterator; it saves the offset of the last event before the latest request."""
        origin: Any = start
        after = 0
        if start == "committed":
            after = self.model.consumers.get(consumer, 0)
        elif start == "offset":
            origin = after = self.position(where)
        elif start == "moment":
            origin = self.moment(where)
            after = self.offset_before(origin)
        missing = None if skip else self.model.missing(after)
        expected = self.model.read(after)
        handled: int | None = None
        with self.stream.subscribe(
            consumer,
            start=origin,
            batch=batch,
            save_every_n=every,
            save_every_s=0,
            on_truncated="skip" if skip else "raise",
        ) as events:
            if missing is not None and count:
                with self.truncated(missing):
                    next(events)
                return
            for step in range(min(count, len(expected))):
                self.compare([next(events)], [expected[step]])
                handled = expected[step - 1] if step else None
        if handled is not None and every:
            self.model.save(consumer, handled)

    # Consumers.

    @rule(consumer=CONSUMERS, where=POSITIONS)
    def save_offset(self, consumer: str, where: int, tx: Any = None) -> None:
        """Save an offset."""
        offset = self.position(where)
        assert self.stream.save_offset(consumer, offset, tx=tx) is self.model.save(consumer, offset)

    @rule(consumer=CONSUMERS, where=POSITIONS)
    def seek(self, consumer: str, where: int, tx: Any = None) -> None:
        """Seek to an offset."""
        offset = self.position(where)
        self.stream.seek(consumer, offset, tx=tx)
        self.model.seek(consumer, offset)

    @rule(consumer=CONSUMERS)
    def offset(self, consumer: str) -> None:
        """Read the offset of a consumer."""
        assert self.stream.offset(consumer) == self.model.consumers.get(consumer, 0)

    # Time and retention.

    @rule(where=POSITIONS)
    def offset_at(self, where: int) -> None:
        """Find the offset before the first event created at or after a moment."""
        moment = self.moment(where)
        assert self.read_offsets(self.stream.offset_at(moment)) == [
            offset for offset, created in self.created.items() if created >= moment
        ]

    @rule(
        age=st.sampled_from([None, 0.5, 1.5, 2.5]),
        keep_count=st.sampled_from([None, 0, 1, 3, 5]),
        keep_unconsumed=st.booleans(),
    )
    def prune(self, age: float | None, keep_count: int | None, keep_unconsumed: bool) -> None:
        """Prune by age or by count."""
        if age is None and keep_count is None:
            return
        dropped = self.stream.prune(
            older_than=None if age is None else age * TICK, keep_count=keep_count, keep_unconsumed=keep_unconsumed
        )
        assert dropped == self.model.prune(age, keep_count, keep_unconsumed)

    @rule(ticks=st.integers(1, 2))
    def let_time_pass(self, ticks: int) -> None:
        """Let several ticks pass."""
        self.ground.pass_time(ticks)
        self.model.now += ticks

    @rule()
    def reopen(self) -> None:
        """Connect a new kit."""
        self.ground.reopen()
        self.attach()

    # Transactions.

    @rule(before=SCRIPTS, inside=SCRIPTS, after=SCRIPTS, keep=st.booleans(), commit=st.booleans())
    def transaction(self, before: list[Call], inside: list[Call], after: list[Call], keep: bool, commit: bool) -> None:
        """Check that work rolled back, whole or to a savepoint, leaves no trace."""
        whole = deepcopy(self.model)
        with self.ground.transaction(commit) as tx:
            self.play(before, tx)
            tx.execute("SAVEPOINT model")
            part = deepcopy(self.model)
            self.play(inside, tx)
            if not keep:
                tx.execute("ROLLBACK TO SAVEPOINT model")
                self.model = part
            tx.execute("RELEASE SAVEPOINT model")
            self.play(after, tx)
        if not commit:
            self.model = whole

    def play(self, script: list[Call], tx: Any) -> None:
        """Make some calls in a transaction."""
        for name, arguments in script:
            getattr(self, name)(**arguments, tx=tx)

    # Helpers.

    @contextmanager
    def truncated(self, missing: tuple[int, int] | None) -> Iterator[None]:
        """Check that the body finds these events missing, or none."""
        found = None
        try:
            yield
        except eventkit.Truncated as error:
            found = (error.first, error.last)
        assert found == missing

    def numbered(self, event: NewEvent) -> NewEvent:
        """Return the event with a payload of its own."""
        self.payloads += 1
        return NewEvent(self.payloads, event.key, event.headers, event.dedup)

    def modelled(self, event: NewEvent) -> ModelEvent:
        """Return the event as the model represents it."""
        return ModelEvent(event.payload, event.key, dict(event.headers or {}), event.dedup, self.model.now)

    def position(self, where: int) -> int:
        """Return an offset: of an event that exists or existed, or beyond."""
        edge = self.model.pruned_to
        places = [0, edge, max(0, edge - 1), self.model.newest + 1, *self.model.events]
        return places[-1 - where % len(places)]

    def moment(self, where: int) -> datetime:
        """Return a moment: that of an event, or one far from all."""
        moments = [self.anchor + timedelta(seconds=TICK * (0.5 - self.model.now)), *self.created.values()]
        return moments[-1 - where % len(moments)]

    def offset_before(self, moment: datetime) -> int:
        """Return the offset of the last event before a moment, 0 if there is none."""
        return max((offset for offset, created in self.created.items() if created < moment), default=0)

    def read_offsets(self, after: int) -> list[int]:
        """Return the offsets that a reader at *after* gets."""
        return [event.offset for event in self.stream.read(after)]

    def compare(self, events: list[Event[Any]], offsets: list[int]) -> None:
        """Check that the events are the model's at *offsets*."""
        assert [event.offset for event in events] == offsets
        for event in events:
            seen = (event.stream, event.payload, event.key, event.headers)
            model = self.model.events[event.offset]
            assert seen == (self.topics[0], model.payload, model.key, model.headers)
            assert tick(event.created_at, self.anchor, self.model.now) == model.created

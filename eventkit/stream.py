"""`EventStream`: one stream of the database, as a handle, and the events that its subscribers receive.

A handle validates its arguments and makes an operation of them.  It passes on the result of executing it, an answer or
an awaitable, so the same class serves both flavours; `protocols` documents its methods.
"""

import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from time import monotonic
from typing import Any

from . import checks, protocols
from .checks import KEEP, Duration, Headers, default_worker
from .codec import Codec, traced_headers
from .errors import PASSING, LeaseLost
from .handling import Lease, logger
from .loops import Feed, located
from .member import MEMBERS, Membership, drained, reset
from .operations import Operation
from .operations import stream as operations
from .operations.claim import fresh_token
from .operations.consumer_group import ListGroups, PauseGroup, RemoveGroup
from .operations.position import Position, ReadPosition
from .operations.queue import ConfigureStream, ReadStreamSettings
from .plans import HAND, Plan, Sleep
from .values import Event, GroupStart, NewEvent, OnTruncated, StreamStart

_LINGER = 0.1
"""Seconds without an event after which the offset is saved."""

_MOST_PARTITIONS = 1024
_MOST_PARKED = 100_000
_LONGEST_LEASE_MS = 600_000
"""A longer lease is taken for one of a clock that was ahead."""


@protocols.documented(protocols.EventStream)
class Stream:
    """The implementation of `protocols.EventStream` and `AsyncEventStream`."""

    def __init__(self, execute: Callable[..., Any], loops: Any, name: str, codec: Codec) -> None:
        self.name = checks.name("stream", name)
        self._execute = execute
        self._loops = loops
        self._codec = codec

    def publish(
        self, payload: Any, *, key: str | None = None, headers: Headers = None, dedup: str | None = None, tx: Any = None
    ) -> Any:
        if dedup is not None:
            row = event_row(self._codec, NewEvent(payload, key, headers, dedup))
            return self._execute(operations.PublishOne(self.name, row), tx)
        if key is not None:
            checks.key(key)
        operation = operations.Publish(self.name, key, self._codec.encode(payload), traced_headers(headers))
        return self._execute(operation, tx)

    def publish_many(self, items: Iterable[Any], *, tx: Any = None) -> Any:
        items = list(items)
        if traced_headers(None) is None and NewEvent not in set(map(type, items)):
            return self._execute(operations.PublishPlain(self.name, self._codec.encode_many(items)), tx)
        rows = [event_row(self._codec, item if isinstance(item, NewEvent) else NewEvent(item)) for item in items]
        return self._execute(operations.PublishMany(self.name, rows), tx)

    def read(self, after: int = 0, limit: int = 1000, *, on_truncated: OnTruncated = "raise") -> Any:
        checks.count("after", after)
        checks.count("limit", limit, least=1)
        skip = checks.choice("on_truncated", on_truncated, OnTruncated) == "skip"
        return self._execute(operations.ReadEvents(self.name, after, limit, self._codec, skip))

    def subscribe(
        self,
        consumer: str | None = None,
        *,
        start: StreamStart | int | datetime = "committed",
        batch: int = 1000,
        save_every_n: int = 1000,
        save_every_s: Duration = 1.0,
        on_truncated: OnTruncated = "raise",
        exclusive: bool = True,
    ) -> Any:
        if consumer is not None:
            checks.name("consumer", consumer)
        checks.count("batch", batch, least=1)
        checks.count("save_every_n", save_every_n)
        every = checks.milliseconds("save_every_s", save_every_s) / 1000
        skip = checks.choice("on_truncated", on_truncated, OnTruncated) == "skip"
        origin = self._origin(consumer, start)
        feed = Events(
            self.name,
            self._codec,
            consumer,
            origin,
            batch=batch,
            every_n=save_every_n,
            every_s=every,
            skip=skip,
            exclusive=checks.flag("exclusive", exclusive),
        )
        return self._loops.iterate(feed)

    def offset(self, consumer: str) -> Any:
        return self._execute(operations.ReadOffset(self.name, checks.name("consumer", consumer)))

    def save_offset(self, consumer: str, offset: int, *, tx: Any = None) -> Any:
        checks.name("consumer", consumer)
        return self._execute(operations.SaveOffset(self.name, consumer, checks.count("offset", offset)), tx)

    def seek(self, consumer: str, offset: int, *, tx: Any = None) -> Any:
        checks.name("consumer", consumer)
        return self._execute(operations.Seek(self.name, consumer, checks.count("offset", offset)), tx)

    def remove_consumer(self, consumer: str, *, tx: Any = None) -> Any:
        return self._execute(operations.RemoveConsumer(self.name, checks.name("consumer", consumer)), tx)

    def head(self) -> Any:
        return self._execute(operations.ReadHead(self.name))

    def offset_at(self, moment: datetime) -> Any:
        return self._execute(operations.FindOffset(self.name, checks.moment("moment", moment)))

    def consumers(self) -> Any:
        return self._execute(operations.ListConsumers(self.name))

    def join(
        self,
        group: str,
        *,
        partitions: int | None = None,
        start: GroupStart | int | datetime = "earliest",
        lease: Duration = 12.0,
        batch: int = 1000,
        save_every_s: Duration = 1.0,
        max_parked: int | None = None,
        on_truncated: OnTruncated = "raise",
    ) -> Any:
        if partitions is not None:
            checks.count("partitions", partitions, least=1, most=_MOST_PARTITIONS)
        if max_parked is not None:
            checks.count("max_parked", max_parked, least=1, most=_MOST_PARKED)
        lease_ms = checks.milliseconds("lease", lease, least=1000)
        if lease_ms > _LONGEST_LEASE_MS:
            raise ValueError(f"lease is at most {_LONGEST_LEASE_MS // 1000} seconds, not {lease!r}")
        origin = self._origin(None, _place("start", start))
        membership = Membership(
            self.name,
            checks.name("group", group),
            self._codec,
            origin,
            partitions=partitions,
            max_parked=max_parked,
            lease_ms=lease_ms,
            batch=checks.count("batch", batch, least=1),
            every_s=max(1, checks.milliseconds("save_every_s", save_every_s)) / 1000,
            skip=checks.choice("on_truncated", on_truncated, OnTruncated) == "skip",
        )
        return self._loops.iterate(membership, MEMBERS)

    def groups(self) -> Any:
        return self._execute(ListGroups(self.name))

    def pause_group(self, group: str) -> Any:
        return self._execute(PauseGroup(self.name, checks.name("group", group), True))

    def resume_group(self, group: str) -> Any:
        return self._execute(PauseGroup(self.name, checks.name("group", group), False))

    def drain_group(self, group: str, *, timeout: Duration | None = None) -> Any:
        seconds = None if timeout is None else checks.milliseconds("timeout", timeout) / 1000
        return self._loops.run(drained(self.name, checks.name("group", group), seconds))

    def reset_group(self, group: str, to: GroupStart | int | datetime) -> Any:
        return self._loops.run(reset(self.name, checks.name("group", group), self._origin(None, _place("to", to))))

    def remove_group(self, group: str) -> Any:
        return self._execute(RemoveGroup(self.name, checks.name("group", group)))

    def prune(
        self, *, older_than: Duration | None = None, keep_count: int | None = None, keep_unconsumed: bool = True
    ) -> Any:
        age, most = checks.retention(older_than, keep_count)
        return self._execute(operations.Prune(self.name, age, most, keep_unconsumed))

    def configure(
        self, *, keep: Duration | None = KEEP, keep_count: int | None = KEEP, keep_unconsumed: bool | None = KEEP
    ) -> Any:
        given = checks.settings(
            keep=(keep, checks.milliseconds),
            keep_count=(keep_count, checks.count),
            keep_unconsumed=(True if keep_unconsumed is None else keep_unconsumed, checks.flag),
        )
        return self._execute(ConfigureStream(self.name, list(given), **given))

    def settings(self) -> Any:
        return self._execute(ReadStreamSettings(self.name))

    def _origin(self, consumer: str | None, start: StreamStart | int | datetime) -> Any:
        """Return the operation that finds the offset after which to start, or that offset if it is known."""
        if isinstance(start, datetime):
            return operations.FindOffset(self.name, checks.moment("start", start))
        if isinstance(start, int):
            return checks.count("start", start)
        choice = checks.choice("start", start, StreamStart)
        if choice == "latest":
            return operations.FindLatest(self.name)
        if choice == "committed" and consumer is not None:
            return operations.ReadOffset(self.name, consumer)
        return 0


def _place(what: str, place: Any) -> Any:
    """Return a place where a group begins; a group has no saved offset of its own."""
    return checks.choice(what, place, GroupStart) if isinstance(place, str) else place


def event_row(codec: Codec, item: NewEvent) -> operations.EventRow:
    """Return *item*, validated, as a row for the database."""
    return (
        codec.encode(item.payload),
        None if item.key is None else checks.key(item.key),
        traced_headers(item.headers),
        None if item.dedup is None else checks.key(item.dedup),
    )


HOLD_MS = 12_000
"""The milliseconds after which a dead holder of a consumer's name is replaced."""


class Events(Feed[Event[Any]]):
    """The events after *origin*, and then the new ones; with *exclusive*, only while the consumer's name is held."""

    def __init__(
        self,
        stream: str,
        codec: Codec,
        consumer: str | None,
        origin: Operation[Any] | int,
        *,
        batch: int,
        every_n: int,
        every_s: float,
        skip: bool,
        exclusive: bool,
    ) -> None:
        super().__init__()
        self._stream = stream
        self._codec = codec
        self._consumer = consumer
        self._origin = origin
        self._batch = batch
        self._automatic = consumer is not None and (every_n > 0 or every_s > 0)
        self._window = every_n if self._automatic and every_n else sys.maxsize
        self._every_s = every_s if self._automatic and every_s else float("inf")
        self._skip = skip
        self._name = (stream, consumer, 0) if consumer is not None and exclusive else None
        """The consumer's name as a lease, if it has one holder at a time."""
        self._holder = default_worker()
        self._token = fresh_token()
        self._lease: Lease | None = None
        self._placed = False
        self._follows = False
        """True if another process may have moved the consumer since the position was read."""
        self._position: Position | None = None
        self._saved = -1
        self._seen: frozenset[int] = frozenset()
        self._save_at = self.look_at = monotonic() + self._every_s

    def attach(self) -> Plan[None]:
        """Find the offset after which to start."""
        if self._position is None:
            after, self._seen = yield from located(self._origin)
            position: Any = yield ReadPosition(self._stream, after)
            self._position, self._saved = position, after

    def steps(self) -> Plan[None]:
        """Acquire the consumer's name; then read, hand out, and save from time to time and when idle."""
        left = self._window
        while True:
            try:
                if not self._placed:
                    yield from self._take_place()
                wanted = min(self._batch, left)
                assert self._position is not None
                page = yield operations.FollowEvents(
                    self._stream, self._consumer, self._position, wanted, self._codec, self._skip
                )
                if page.rewound is not None:
                    self._rewind(page.rewound)
                found = page.events
                self.items.extend([event for event in found if event.offset not in self._seen] if self._seen else found)
                while self.items:
                    yield HAND
                    yield from self._look()
                self._position = position = page.position
                left -= len(found)
                if not left:
                    yield from self._save()
                    left = self._window
                if len(found) < wanted:
                    ahead = operations.EventsAhead.of(self._stream, position)
                    # Wait for events that follow at once: a save for each few events of a busy stream would be costly.
                    if self._unsaved[0] and (yield Sleep(ahead, monotonic() + _LINGER)):
                        continue
                    yield from self._save()
                    yield Sleep(ahead)
            except PASSING:
                continue

    def leave(self) -> Plan[None]:
        """Save the offset of handled events, and release the name; later events are read again."""
        if self._position is not None and self.current is not None and self.current.offset > self._position.offset:
            self._position = self._position.at(self.current.offset, self.current.created_ms)
        self.items.clear()
        lease, self._lease = self._lease, None
        if self._name is None:
            yield from self._save()
        elif lease is not None:
            self.heartbeat.remove(lease)
            self._placed, self._follows = False, True
            unsaved = self._unsaved
            self._saved = max(self._saved, unsaved[0])
            yield operations.LeaveConsumer(*self._name, self._token, *unsaved)

    @property
    def _unsaved(self) -> tuple[int, int]:
        """The offset to save, and the time of its event; 0 and 0 for none."""
        handled = self.handled
        if self._automatic and handled is not None and handled.offset > self._saved:
            return handled.offset, handled.created_ms
        return 0, 0

    def _rewind(self, saved: Position) -> None:
        """Move back to the saved position, after the database has gone back."""
        logger.warning(
            "the database has gone back, to a backup or a standby's state: consumer %r of stream %r continues after "
            "its saved offset %s",
            self._consumer,
            self._stream,
            saved.offset,
        )
        self._position, self._saved = saved, saved.offset
        self._seen = frozenset()
        self.current = self.handled = None

    def _take_place(self) -> Plan[None]:
        yield from self.attach()
        if self._name is not None and self._lease is None:
            yield from self._take_name(self._name)
        if self._name is not None and (self._follows or isinstance(self._origin, operations.ReadOffset)):
            # An earlier holder may have moved it until now.
            saved: Any = yield operations.ReadOffset(*self._name[:2])
            assert self._position is not None
            ours = self._position.offset
            after = (saved or ours) if self.current is None else max(ours, saved)
            if after != ours:
                position: Any = yield ReadPosition(self._stream, after)
                self._position = position
            self._saved = saved if self.current is None else max(self._saved, saved)
        self._placed = True

    def _take_name(self, name: tuple[str, str, int]) -> Plan[None]:
        began, self._token = monotonic(), fresh_token()
        while not (yield operations.AcquireConsumer(*name, self._holder, self._token, HOLD_MS)):
            if not self._follows:
                self._follows = True
                logger.warning(
                    "consumer %r of stream %r is held by %s: this subscriber waits as a standby until it is free",
                    self._consumer,
                    self._stream,
                    (yield operations.ReadConsumerHolder(*name)),
                )
            yield Sleep(operations.ConsumerAhead(*name, HOLD_MS))
            began, self._token = monotonic(), fresh_token()
        seconds = HOLD_MS / 1000
        self._lease = Lease(lambda: self._keep(0, 0), seconds, began + seconds - monotonic(), self._lost)
        self.heartbeat.add(self._lease)
        self._look_later()

    def _keep(self, offset: int, created: int) -> operations.KeepConsumer:
        assert self._name is not None
        return operations.KeepConsumer(*self._name, self._token, HOLD_MS, offset, created)

    def _lost(self) -> None:
        """Fail: another process has or had the name."""
        if self._lease is not None:
            self._lease = None
            self.failure = LeaseLost(
                f"consumer {self._consumer!r} of stream {self._stream!r} was taken over by another process: "
                f"its offset is saved no more; subscribe again to wait until the name is free"
            )
            self.stop.set()
            self.look_at = 0.0

    def _look(self) -> Any:
        """Save if it is time; and hand out no event that may be another holder's by now."""
        if monotonic() >= self._save_at:
            yield from self._save()
        while self._lease is not None and monotonic() >= self._lease.until:
            yield from self._save(renew=True)
        self._look_later()

    def _look_later(self) -> None:
        if self.failure is None:
            self.look_at = self._save_at if self._lease is None else min(self._save_at, self._lease.until)

    def _save(self, renew: bool = False) -> Any:
        self._save_at = monotonic() + self._every_s
        self._look_later()
        (offset, created), lease, began = self._unsaved, self._lease, monotonic()
        if self._consumer is None or not (offset or renew) or (self._name and lease is None):
            return
        try:
            if self._name is None:
                yield operations.SaveOffset(self._stream, self._consumer, offset, created)
            elif lease is not None and not lease.answered(began, (yield self._keep(offset, created))):
                return
            self._saved = max(self._saved, offset)
        except PASSING:
            pass  # The next save includes it; until then, events would only be delivered again.

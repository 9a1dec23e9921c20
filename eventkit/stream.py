"""`EventStream`: one topic of the database, as a handle.

A handle validates its arguments and makes an operation of them.  It passes on the result of executing it, an answer or
an awaitable, so the same class serves both flavours.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from . import checks
from .checks import KEEP, Duration
from .codec import Codec, encode_headers
from .feeds import Events
from .operations import stream as operations
from .operations.queue import ConfigureStream, ReadStreamSettings
from .telemetry import with_trace
from .values import NewEvent


class Stream:
    """The implementation of `protocols.EventStream` and `AsyncEventStream`."""

    def __init__(self, execute: Callable[..., Any], loops: Any, topic: str, codec: Codec) -> None:
        self.topic = checks.name("topic", topic)
        self._execute = execute
        self._loops = loops
        self._codec = codec

    def publish(
        self,
        payload: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        dedup: str | None = None,
        tx: Any = None,
    ) -> Any:
        """Append an event; return its offset."""
        if dedup is not None:
            row = event_row(self._codec, NewEvent(payload, key, headers, dedup))
            return self._execute(operations.PublishOne(self.topic, row), tx)
        if key is not None:
            checks.key(key)
        headers = with_trace(headers)
        text = encode_headers(headers) if headers else None
        return self._execute(operations.Publish(self.topic, key, self._codec.encode(payload), text), tx)

    def publish_many(self, items: Iterable[Any], tx: Any = None) -> Any:
        """Append events, all or none; return their offsets, in order."""
        items = list(items)
        headers = with_trace(None)
        if headers is None and NewEvent not in set(map(type, items)):
            return self._execute(operations.PublishPlain(self.topic, self._codec.encode_many(items)), tx)
        rows = [event_row(self._codec, item if isinstance(item, NewEvent) else NewEvent(item)) for item in items]
        return self._execute(operations.PublishMany(self.topic, rows), tx)

    def read(self, after: int = 0, limit: int = 1000, *, on_truncated: str = "raise") -> Any:
        """Return the events after an offset, in order."""
        checks.count("after", after)
        checks.count("limit", limit, least=1)
        skip = checks.choice("on_truncated", on_truncated, ("raise", "skip")) == "skip"
        return self._execute(operations.ReadEvents(self.topic, after, limit, self._codec, skip))

    def subscribe(
        self,
        consumer: str | None = None,
        *,
        start: str | int | datetime = "committed",
        batch: int = 1000,
        save_every_n: int = 1000,
        save_every_s: Duration = 1.0,
        on_truncated: str = "raise",
        exclusive: bool = True,
    ) -> Any:
        """Iterate over the existing events, and then over the new ones."""
        if consumer is not None:
            checks.name("consumer", consumer)
        checks.count("batch", batch, least=1)
        checks.count("save_every_n", save_every_n)
        every = checks.milliseconds("save_every_s", save_every_s) / 1000
        skip = checks.choice("on_truncated", on_truncated, ("raise", "skip")) == "skip"
        origin = self._origin(consumer, start)
        feed = Events(
            self.topic,
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
        """Return the consumer's offset."""
        return self._execute(operations.ReadOffset(self.topic, checks.name("consumer", consumer)))

    def save_offset(self, consumer: str, offset: int, tx: Any = None) -> Any:
        """Move the consumer forward; return False if it is already at or beyond *offset*."""
        checks.name("consumer", consumer)
        return self._execute(operations.SaveOffset(self.topic, consumer, checks.count("offset", offset)), tx)

    def seek(self, consumer: str, offset: int, tx: Any = None) -> Any:
        """Move the consumer to any offset."""
        checks.name("consumer", consumer)
        return self._execute(operations.Seek(self.topic, consumer, checks.count("offset", offset)), tx)

    def head(self) -> Any:
        """Return the highest settled offset."""
        return self._execute(operations.ReadHead(self.topic))

    def offset_at(self, moment: datetime) -> Any:
        """Return the offset after which everything created at or after the time lies."""
        return self._execute(operations.FindOffset(self.topic, checks.moment("moment", moment)))

    def consumers(self) -> Any:
        """Return the consumers of the topic, by name."""
        return self._execute(operations.ListConsumers(self.topic))

    def prune(
        self,
        *,
        older_than: Duration | None = None,
        max_keep: int | None = None,
        keep_unconsumed: bool = True,
    ) -> Any:
        """Delete the oldest events; return their number."""
        age, keep = checks.retention(older_than, max_keep)
        return self._execute(operations.Prune(self.topic, age, keep, keep_unconsumed))

    def configure(
        self,
        *,
        retain: Duration | None = KEEP,
        max_keep: int | None = KEEP,
        keep_unconsumed: bool | None = KEEP,
    ) -> Any:
        """Store what `EventKit.maintain` prunes; None restores the default, and omitted settings stay as they are."""
        given = checks.settings(
            retain=(retain, checks.milliseconds),
            max_keep=(max_keep, checks.count),
            keep_unconsumed=(True if keep_unconsumed is None else keep_unconsumed, checks.flag),
        )
        return self._execute(ConfigureStream(self.topic, list(given), **given))

    def settings(self) -> Any:
        """Return the stream's settings."""
        return self._execute(ReadStreamSettings(self.topic))

    def _origin(self, consumer: str | None, start: str | int | datetime) -> Any:
        """Return the operation that finds the offset after which to start, or that offset if it is known."""
        if isinstance(start, datetime):
            return operations.FindOffset(self.topic, checks.moment("start", start))
        if isinstance(start, int):
            return checks.count("start", start)
        choice = checks.choice("start", start, ("committed", "earliest", "latest"))
        if choice == "latest":
            return operations.FindLatest(self.topic)
        if choice == "committed" and consumer is not None:
            return operations.ReadOffset(self.topic, consumer)
        return 0


def event_row(codec: Codec, item: NewEvent) -> operations.EventRow:
    """Return *item*, validated, as a row for the database."""
    return (
        codec.encode(item.payload),
        None if item.key is None else checks.key(item.key),
        encode_headers(with_trace(item.headers)),
        None if item.dedup is None else checks.key(item.dedup),
    )

"""`EventStream`: one topic of the database, as a handle.

A handle checks what it is given and turns it into an operation.  What executing one returns, an answer or
an awaitable, it passes on without looking, so the same class serves both flavours.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from . import arguments
from .arguments import KEEP, Duration
from .codec import Codec, encode_headers
from .feeds import Events
from .operations import stream as operations
from .operations.retention import ConfigureStream, ReadStreamSettings
from .records import NewEvent
from .telemetry import with_trace


class Stream:
    """Behaves as `eventkit.protocols.EventStream` and `AsyncEventStream` say."""

    def __init__(self, execute: Callable[..., Any], loops: Any, topic: str, codec: Codec) -> None:
        self.topic = arguments.name("topic", topic)
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
        """Append an event; its offset."""
        if dedup is not None:
            row = event_row(self._codec, NewEvent(payload, key, headers, dedup))
            return self._execute(operations.PublishOne(self.topic, row), tx)
        if key is not None:
            arguments.key(key)
        headers = with_trace(headers)
        text = encode_headers(headers) if headers else None
        return self._execute(operations.Publish(self.topic, key, self._codec.encode(payload), text), tx)

    def publish_many(self, items: Iterable[Any], tx: Any = None) -> Any:
        """Append events, all or none; their offsets, in order."""
        items = list(items)
        headers = with_trace(None)
        if headers is None and NewEvent not in set(map(type, items)):
            return self._execute(operations.PublishPlain(self.topic, self._codec.encode_many(items)), tx)
        rows = [event_row(self._codec, item if isinstance(item, NewEvent) else NewEvent(item)) for item in items]
        return self._execute(operations.PublishMany(self.topic, rows), tx)

    def read(self, after: int = 0, limit: int = 1000, *, on_truncated: str = "raise") -> Any:
        """The events after an offset, in order."""
        arguments.count("after", after)
        arguments.count("limit", limit, least=1)
        skip = arguments.choice("on_truncated", on_truncated, ("raise", "skip")) == "skip"
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
        """Iterate over the events there are, and then over those to come."""
        if consumer is not None:
            arguments.name("consumer", consumer)
        arguments.count("batch", batch, least=1)
        arguments.count("save_every_n", save_every_n)
        every = arguments.milliseconds("save_every_s", save_every_s) / 1000
        skip = arguments.choice("on_truncated", on_truncated, ("raise", "skip")) == "skip"
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
            exclusive=arguments.flag("exclusive", exclusive),
        )
        return self._loops.iterate(feed)

    def offset(self, consumer: str) -> Any:
        """Where the consumer is."""
        return self._execute(operations.ReadOffset(self.topic, arguments.name("consumer", consumer)))

    def save_offset(self, consumer: str, offset: int, tx: Any = None) -> Any:
        """Move the consumer forward; False if it is there or beyond."""
        arguments.name("consumer", consumer)
        return self._execute(operations.SaveOffset(self.topic, consumer, arguments.count("offset", offset)), tx)

    def seek(self, consumer: str, offset: int, tx: Any = None) -> Any:
        """Move the consumer anywhere."""
        arguments.name("consumer", consumer)
        return self._execute(operations.Seek(self.topic, consumer, arguments.count("offset", offset)), tx)

    def head(self) -> Any:
        """The highest offset that is settled."""
        return self._execute(operations.ReadHead(self.topic))

    def offset_at(self, moment: datetime) -> Any:
        """The offset after which everything created at or after the moment lies."""
        return self._execute(operations.FindOffset(self.topic, arguments.moment("moment", moment)))

    def consumers(self) -> Any:
        """The consumers of the topic, by name."""
        return self._execute(operations.ListConsumers(self.topic))

    def prune(
        self,
        *,
        older_than: Duration | None = None,
        max_keep: int | None = None,
        keep_unconsumed: bool = True,
    ) -> Any:
        """Drop the oldest events; how many."""
        age, keep = arguments.retention(older_than, max_keep)
        return self._execute(operations.Prune(self.topic, age, keep, keep_unconsumed))

    def configure(
        self,
        *,
        retain: Duration | None = KEEP,
        max_keep: int | None = KEEP,
        keep_unconsumed: bool | None = KEEP,
    ) -> Any:
        """Store what `EventKit.maintain` is to prune; None is the default again, what is left out stays."""
        given = arguments.settings(
            retain=(retain, arguments.milliseconds),
            max_keep=(max_keep, arguments.count),
            keep_unconsumed=(True if keep_unconsumed is None else keep_unconsumed, arguments.flag),
        )
        return self._execute(ConfigureStream(self.topic, list(given), **given))

    def settings(self) -> Any:
        """What the stream is configured to."""
        return self._execute(ReadStreamSettings(self.topic))

    def _origin(self, consumer: str | None, start: str | int | datetime) -> Any:
        """The operation that answers the offset to start after; or that offset, where it is known."""
        if isinstance(start, datetime):
            return operations.FindOffset(self.topic, arguments.moment("start", start))
        if isinstance(start, int):
            return arguments.count("start", start)
        choice = arguments.choice("start", start, ("committed", "earliest", "latest"))
        if choice == "latest":
            return operations.FindLatest(self.topic)
        if choice == "committed" and consumer is not None:
            return operations.ReadOffset(self.topic, consumer)
        return 0


def event_row(codec: Codec, item: NewEvent) -> operations.EventRow:
    """*item*, checked, as the database gets it."""
    return (
        codec.encode(item.payload),
        None if item.key is None else arguments.key(item.key),
        encode_headers(with_trace(item.headers)),
        None if item.dedup is None else arguments.key(item.dedup),
    )

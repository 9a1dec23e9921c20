"""Replay: archived events published or enqueued again, once."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from hashlib import sha256
from time import monotonic, sleep
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from .. import checks
from ..arrow import compute
from ..codec import encode_headers
from ..errors import EventkitError
from ..kit import backend_of
from ..operations import Operation
from ..operations.bulk import Archive, ArchiveFile, MoveMark, ReadArchive, ReadMark, WriteOnward
from ..operations.enqueue import PLAIN, EnqueueMany
from ..operations.stream import EventRow, PublishMany
from ..rollup import reported
from .files import Progress, Store, merged

_ROWS = 1_000
_BYTES = 2**20
"""The maximum size in bytes of one transaction."""

_PAUSE = 0.1
"""With a rate, the seconds between two transactions; each then has as many events as the rate allows in that time."""


class Filter(msgspec.Struct, frozen=True):
    """A filter of events: after an offset, up to one, within a time span in milliseconds, of some keys."""

    after: int = 0
    last: int = checks.MOST
    since: int | None = None
    before: int | None = None
    keys: tuple[str, ...] | None = None

    def touches(self, file: ArchiveFile) -> bool:
        """Return whether the file may have matching events."""
        return (
            file.last > self.after
            and file.first <= self.last
            and (self.since is None or file.newest >= self.since)
            and (self.before is None or file.oldest < self.before)
        )

    def of(self, events: Any) -> Any:
        """Return the matching events of a table."""
        chosen = compute.and_(
            compute.greater(events["offset"], self.after), compute.less_equal(events["offset"], self.last)
        )
        moments = compute.cast(events["created_at"], pa.int64())
        if self.since is not None:
            chosen = compute.and_(chosen, compute.greater_equal(moments, self.since * 1000))
        if self.before is not None:
            chosen = compute.and_(chosen, compute.less(moments, self.before * 1000))
        if self.keys is not None:
            chosen = compute.and_(chosen, compute.is_in(events["key"], pa.array(self.keys, pa.string())))
        return events.filter(chosen)


class Replayed(NamedTuple):
    """The outcome of a replay.

    *events* were written; the other fields say where an earlier call was interrupted, if it was, and whether a replay
    with this id had ended before, so that there was nothing to do.
    """

    events: int
    resumed_after: int | None
    ended_before: bool = False


def replay(
    url: str,
    stream: str,
    *,
    to_stream: str | None = None,
    to_queue: str | None = None,
    after: int = 0,
    last: int | None = None,
    since: datetime | None = None,
    before: datetime | None = None,
    keys: Sequence[str] | None = None,
    rate: float | None = None,
    dedup: bool = False,
    id: str | None = None,
    progress: Progress | None = None,
) -> Replayed:
    """Publish to a stream, or enqueue as tasks, archived events of *stream*, in the order of offsets.

    They are those after *after*, up to *last*, created from *since* on and *before* a time, with one of the *keys*; at
    most *rate* events a second.  Payloads, keys and headers are unchanged; a task does not get the event's key.  With
    *dedup*, events that another replay has written there are not written again, for as long as the stream, or the
    queue, remembers them (S6, Q7).

    The same call continues after an interruption, and writes nothing twice.  After the end it is another replay, unless
    it has an *id*: a replay with an id, from a stream to a target, ends once, however often it is called.
    """
    if (to_stream is None) == (to_queue is None):
        raise ValueError("pass a target: to_stream='orders-again' or to_queue='orders'")
    filter = Filter(
        checks.count("after", after),
        checks.MOST if last is None else checks.count("last", last),
        None if since is None else checks.moment("since", since),
        None if before is None else checks.moment("before", before),
        None if keys is None else tuple(checks.key(key) for key in keys),
    )
    if rate is not None:
        checks.positive("rate", rate)
    target = _Target(
        checks.name("stream", stream),
        None if to_stream is None else checks.name("stream", to_stream),
        None if to_queue is None else checks.name("queue", to_queue),
        dedup,
    )
    asked = (target, filter) if id is None else (target, checks.name("replay", id))
    with closing(backend_of(url).connect(url, create=False)) as connection:
        archive = connection.execute(ReadArchive(stream))
        if archive is None:
            raise ValueError(f"stream {stream!r} has no archive: eventkit archive makes one")
        writer = f"replay:{sha256(msgspec.json.encode(asked)).hexdigest()[:32]}"
        begun = at = connection.execute(ReadMark(writer))
        with reported(connection, f"replay:{stream}", archive.location, target.name) as report:
            if at == checks.MOST:
                return Replayed(0, None, ended_before=True)
            written, started = 0, monotonic()
            remaining = msgspec.structs.replace(filter, after=max(at, filter.after))
            for events in _chunks(archive, remaining, rate, progress):
                to = events[-1]["offset"]
                if not connection.execute(WriteOnward(writer, at, to, target.write(events))):
                    raise EventkitError("another process runs the same replay: stop one of the two")
                at, written = to, written + len(events)
                report(len(events), at)
                if rate is not None:
                    sleep(max(0.0, started + written / rate - monotonic()))
            # From here on, the same call is another replay, or, with an id, does nothing.
            connection.execute(MoveMark(writer, at, 0 if id is None else checks.MOST))
    return Replayed(written, begun or None)


class _Target(NamedTuple):
    source: str
    stream: str | None
    queue: str | None
    dedup: bool

    @property
    def name(self) -> str:
        return f"stream {self.stream}" if self.queue is None else f"queue {self.queue}"

    def write(self, events: list[dict[str, Any]]) -> Operation[Any]:
        rows: list[EventRow] = [
            (event["payload"], event["key"], _headers(event), self._once(event)) for event in events
        ]
        if self.queue is None:
            return PublishMany(self.stream or "", rows)
        return EnqueueMany(
            self.queue, [(payload, headers, *PLAIN[1:3], once, *PLAIN[4:]) for payload, _, headers, once in rows]
        )

    def _once(self, event: dict[str, Any]) -> str | None:
        if not self.dedup:
            return None
        source = self.source if len(self.source) <= 900 else sha256(self.source.encode()).hexdigest()
        return f"replay:{source}:{event['offset']}"


def _chunks(
    archive: Archive, filter: Filter, rate: float | None, progress: Progress | None
) -> Iterator[list[dict[str, Any]]]:
    """Yield the matching events, as many at a time as fit into one transaction."""
    most = _ROWS if rate is None else max(1, min(_ROWS, int(rate * _PAUSE)))
    files = [file for file in archive.files if filter.touches(file)]
    total, seen = sum(file.rows for file in files), 0
    chunk: list[dict[str, Any]] = []
    size = 0
    for table in merged(Store(archive.location), files):
        seen += table.num_rows
        for batch in filter.of(table).to_batches(_ROWS):
            for event in batch.to_pylist():
                chunk.append(event)
                size += len(event["payload"])
                if len(chunk) >= most or size >= _BYTES:
                    yield chunk
                    chunk, size = [], 0
        if progress is not None:
            progress(seen, total)
    if chunk:
        yield chunk


def _headers(event: dict[str, Any]) -> str | None:
    return encode_headers(dict(event["headers"])) if event["headers"] else None

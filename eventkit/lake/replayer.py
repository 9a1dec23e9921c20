"""Replay: archived events published or enqueued again, once."""

from collections.abc import Callable, Iterator, Sequence
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
from ..operations.bulk import Lake, LakeFile, MoveMark, ReadLake, ReadMark, WriteOnward
from ..operations.enqueue import PLAIN, EnqueueMany
from ..operations.stream import EventRow, PublishMany
from ..protocols import Connection
from ..rollup import Note, noted
from .store import Store, merged

_ROWS = 1_000
_BYTES = 2**20
"""The maximum size in bytes of one transaction."""

_PAUSE = 0.1
"""With a rate, the seconds between two transactions; each then has as many events as the rate allows in that time."""

Progress = Callable[[int, int], object]
"""Called with the number of archived events that were read, and the total."""


class Filter(msgspec.Struct, frozen=True):
    """A filter of events: after an offset, up to one, within a time span in milliseconds, of some keys."""

    after: int = 0
    last: int = checks.MOST
    since: int | None = None
    before: int | None = None
    keys: tuple[str, ...] | None = None

    def touches(self, file: LakeFile) -> bool:
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
    topic: str,
    *,
    to_topic: str | None = None,
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
    """Publish to a topic, or enqueue as tasks, archived events of *topic*, in the order of offsets.

    They are those after *after*, up to *last*, created from *since* on and *before* a time, with one of the *keys*; at
    most *rate* events a second.  Payloads, keys and headers are unchanged; a task does not get the event's key.  With
    *dedup*, events that another replay has written there are not written again, for as long as the topic, or the queue,
    remembers them (S6, Q7).

    The same call continues after an interruption, and writes nothing twice.  After the end it is another replay, unless
    it has an *id*: a replay with an id, from a topic to a target, ends once, however often it is called.
    """
    if (to_topic is None) == (to_queue is None):
        raise ValueError("pass a target: to_topic='orders-again' or to_queue='orders'")
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
        topic,
        None if to_topic is None else checks.name("topic", to_topic),
        None if to_queue is None else checks.name("queue", to_queue),
        dedup,
    )
    with closing(backend_of(url).connect(url, create=False)) as connection:
        lake = connection.execute(ReadLake(checks.name("topic", topic)))
        if lake is None:
            raise ValueError(f"topic {topic!r} has no archive: eventkit archive makes one")
        chosen = None if id is None else checks.name("replay", id)
        replaying = _Replaying(connection, lake, filter, target, rate, chosen, progress)
        with noted(connection, f"replay:{topic}", lake.location, target.name) as note:
            return replaying.run(note)


class _Target(NamedTuple):
    """The target of a replay."""

    source: str
    topic: str | None
    queue: str | None
    dedup: bool

    @property
    def name(self) -> str:
        """The target's name in messages."""
        return f"topic {self.topic}" if self.queue is None else f"queue {self.queue}"

    def write(self, events: list[dict[str, Any]]) -> Operation[Any]:
        """Return the operation that writes events there."""
        rows: list[EventRow] = [
            (event["payload"], event["key"], _headers(event), self._once(event)) for event in events
        ]
        if self.queue is None:
            return PublishMany(self.topic or "", rows)
        return EnqueueMany(
            self.queue, [(payload, headers, *PLAIN[1:3], once, *PLAIN[4:]) for payload, _, headers, once in rows]
        )

    def _once(self, event: dict[str, Any]) -> str | None:
        if not self.dedup:
            return None
        source = self.source if len(self.source) <= 900 else sha256(self.source.encode()).hexdigest()
        return f"replay:{source}:{event['offset']}"


class _Replaying:
    """A replay, which an earlier call may have begun."""

    def __init__(
        self,
        connection: Connection,
        lake: Lake,
        filter: Filter,
        target: _Target,
        rate: float | None,
        id: str | None,
        progress: Progress | None,
    ) -> None:
        self._connection = connection
        self._store = Store(lake.location)
        self._files = [file for file in lake.files if filter.touches(file)]
        self._filter = filter
        self._target = target
        self._rate = rate
        self._progress = progress or (lambda _done, _total: None)
        self._ends_at = 0 if id is None else checks.MOST
        asked = msgspec.json.encode((target, filter) if id is None else (target, id))
        self._writer = f"replay:{sha256(asked).hexdigest()[:32]}"

    def run(self, note: Note) -> Replayed:
        """Write the remaining events."""
        begun = at = self._connection.execute(ReadMark(self._writer))
        if at == checks.MOST:
            return Replayed(0, None, ended_before=True)
        written, started = 0, monotonic()
        for events in self._chunks(max(at, self._filter.after)):
            to = events[-1]["offset"]
            if not self._connection.execute(WriteOnward(self._writer, at, to, self._target.write(events))):
                raise EventkitError("another process runs the same replay: stop one of the two")
            at, written = to, written + len(events)
            note(len(events), at)
            if self._rate is not None:
                sleep(max(0.0, started + written / self._rate - monotonic()))
        # From here on, the same call is another replay, or, with an id, does nothing.
        self._connection.execute(MoveMark(self._writer, at, self._ends_at))
        return Replayed(written, begun or None)

    def _chunks(self, after: int) -> Iterator[list[dict[str, Any]]]:
        """Yield the events after an offset, as many at a time as fit into one transaction."""
        filter = msgspec.structs.replace(self._filter, after=after)
        most = _ROWS if self._rate is None else max(1, min(_ROWS, int(self._rate * _PAUSE)))
        total, looked = sum(file.rows for file in self._files), 0
        chunk: list[dict[str, Any]] = []
        size = 0
        for table in merged(self._store, self._files):
            looked += table.num_rows
            for batch in filter.of(table).to_batches(_ROWS):
                for event in batch.to_pylist():
                    chunk.append(event)
                    size += len(event["payload"])
                    if len(chunk) >= most or size >= _BYTES:
                        yield chunk
                        chunk, size = [], 0
            self._progress(looked, total)
        if chunk:
            yield chunk


def _headers(event: dict[str, Any]) -> str | None:
    return encode_headers(dict(event["headers"])) if event["headers"] else None

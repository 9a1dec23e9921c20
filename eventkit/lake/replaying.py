"""From an archive back into a stream or a queue, in the order in which it was.

How far a replay has got is written with what it writes, in one transaction.  So one that was interrupted goes on when
the same is asked for again, and one that has come to its end begins anew.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import datetime
from hashlib import sha256
from time import monotonic, sleep
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from .. import arguments
from ..arrays import compute
from ..codec import encode_headers
from ..errors import EventkitError
from ..kit import backend_of
from ..noting import Note, noted
from ..operations import Operation
from ..operations.enqueue import PLAIN, EnqueueMany
from ..operations.lake import Lake, LakeFile, ReadLake
from ..operations.staging import MoveMark, ReadMark, WriteOnward
from ..operations.stream import EventRow, PublishMany
from ..protocols import Connection
from .reading import merged
from .store import Store

_ROWS = 1_000
_BYTES = 2**20
"""Of what is written in one transaction."""

_PAUSE = 0.1
"""Seconds between two transactions, at most as many events as go into that are in one, where there is a rate."""

Progress = Callable[[int, int], object]
"""Is told how many events of the archive were looked at, of how many."""


class Filter(msgspec.Struct, frozen=True):
    """Which events: behind an offset, up to one, of a span of time in milliseconds, of some keys."""

    after: int = 0
    last: int = arguments.MOST
    since: int | None = None
    before: int | None = None
    keys: tuple[str, ...] | None = None

    def touches(self, file: LakeFile) -> bool:
        """Whether the file may have any of them."""
        return (
            file.last > self.after
            and file.first <= self.last
            and (self.since is None or file.newest >= self.since)
            and (self.before is None or file.oldest < self.before)
        )

    def of(self, events: Any) -> Any:
        """Those that are in a table."""
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
    """The outcome of a replay: events that were written, where it had been interrupted before, if it had, and whether
    a replay of this id had ended before, so that nothing was to be done."""

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
    """Publish to a topic, or enqueue as tasks, what the archive of *topic* has, in the order of offsets.

    Of that, what lies behind *after*, up to *last*, was created from *since* on and *before* a moment, and has one of
    the *keys*; no more than *rate* events a second.  Payloads, keys and headers are as they were; a task's key is not
    the event's.  With *dedup*, what another replay has written there already is not written again, as long as the
    topic, or the queue, remembers (S6, Q7).

    The same call goes on where an earlier one was interrupted, and writes nothing twice.  After the end it is another
    replay, unless it has an *id*: a replay of one id from a topic to a target ends once, however often it is called.
    """
    if (to_topic is None) == (to_queue is None):
        raise ValueError("say where to: to_topic='orders-again' or to_queue='orders'")
    filter = Filter(
        arguments.count("after", after),
        arguments.MOST if last is None else arguments.count("last", last),
        None if since is None else arguments.moment("since", since),
        None if before is None else arguments.moment("before", before),
        None if keys is None else tuple(arguments.key(key) for key in keys),
    )
    if rate is not None:
        arguments.positive("rate", rate)
    target = _Target(
        topic,
        None if to_topic is None else arguments.name("topic", to_topic),
        None if to_queue is None else arguments.name("queue", to_queue),
        dedup,
    )
    with closing(backend_of(url).connect(url, create=False)) as connection:
        lake = connection.execute(ReadLake(arguments.name("topic", topic)))
        if lake is None:
            raise ValueError(f"topic {topic!r} has no archive: eventkit archive makes one")
        chosen = None if id is None else arguments.name("replay", id)
        replaying = _Replaying(connection, lake, filter, target, rate, chosen, progress)
        with noted(connection, f"replay:{topic}", lake.location, target.name) as note:
            return replaying.run(note)


class _Target(NamedTuple):
    """Where events go."""

    source: str
    topic: str | None
    queue: str | None
    dedup: bool

    @property
    def name(self) -> str:
        """For people."""
        return f"topic {self.topic}" if self.queue is None else f"queue {self.queue}"

    def write(self, events: list[dict[str, Any]]) -> Operation[Any]:
        """What writes events there."""
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
    """A replay, which may have begun before."""

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
        self._ends_at = 0 if id is None else arguments.MOST
        asked = msgspec.json.encode((target, filter) if id is None else (target, id))
        self._writer = f"replay:{sha256(asked).hexdigest()[:32]}"

    def run(self, note: Note) -> Replayed:
        """Write what is still to be written."""
        begun = at = self._connection.execute(ReadMark(self._writer))
        if at == arguments.MOST:
            return Replayed(0, None, ended_before=True)
        written, started = 0, monotonic()
        for events in self._chunks(max(at, self._filter.after)):
            to = events[-1]["offset"]
            if not self._connection.execute(WriteOnward(self._writer, at, to, self._target.write(events))):
                raise EventkitError("the same replay is under way elsewhere: let one of the two go on")
            at, written = to, written + len(events)
            note(len(events), at)
            if self._rate is not None:
                sleep(max(0.0, started + written / self._rate - monotonic()))
        # From here on the same call is another replay, or, of an id, none.
        self._connection.execute(MoveMark(self._writer, at, self._ends_at))
        return Replayed(written, begun or None)

    def _chunks(self, after: int) -> Iterator[list[dict[str, Any]]]:
        """The events behind an offset, as many at a time as go into one transaction."""
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

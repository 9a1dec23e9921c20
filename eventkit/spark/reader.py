"""The readers: of a batch, of a stream of batches, of a stream that the driver reads, and of the other tables.

Tables are read page by page, so one that changes meanwhile is not a snapshot, but each of its rows is.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from time import monotonic
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ..arrow import Fetch, Portion, by_rows, opened, pages
from ..kit import backend_of
from ..operations.stream import SaveOffset
from ..operations.tables import (
    FetchConsumers,
    FetchEvents,
    FetchResults,
    FetchSchedules,
    FetchStanding,
    FetchTasks,
    FindEnd,
    FindTaskEnd,
    ReadTaskNumbers,
)
from .columns import COLUMNS, Layout, stream_layout
from .offsets import Position, Range, Streams, check_identity, check_loss, parts, ranges
from .options import COUNTED, READ, ReadOptions
from .session import Travelling, plainly


def batches(options: ReadOptions, part: Range, layout: Layout) -> Iterator[Any]:
    """Yield the events of *part*."""
    with plainly(), opened(options.address.resolve()) as fetch:
        yield from fetched(fetch, options, part, layout)
        [identity], [pruned_to] = fetch(FetchStanding(part.topic), FetchStanding.columns).to_pydict().values()
        check_identity(part.topic, part.last, part.identity, identity)
        if options.fail_on_data_loss:
            check_loss(part.topic, part.after, pruned_to)


def fetched(fetch: Fetch, options: ReadOptions, part: Range, layout: Layout) -> Iterator[Any]:
    """Yield the existing events of *part*."""
    keys, since, before = list(options.keys), options.starting.moment, options.ending.moment
    columns = list(dict.fromkeys(["offset", *layout.sources]))

    def read(after: int, limit: int) -> Any:
        return fetch(FetchEvents(part.topic, after, part.last, keys, since, before, limit), columns)

    for _, table in pages(read, part.after, part.last, "offset"):
        if table.num_rows:
            yield layout.batch(table, part.topic)


_log = logging.getLogger("eventkit.spark")


class Following:
    """The state of a streaming query over topics, by the options of a reader."""

    def __init__(self, options: ReadOptions) -> None:
        if options.ending.given:
            raise ValueError("a stream has no end: leave endingOffsets and endingTimestamp out, or use spark.read")
        url = options.address.resolve()
        self._options = options
        self._connection = backend_of(url).connect(url, create=False)
        self._streams = Streams(self._connection, options)
        self._target: dict[str, int] | None = None
        self._saved: dict[str, int] = {}
        self._read: dict[str, int] = {}
        self._began = False
        self._moved_at = monotonic()

    def begin(self) -> Position:
        """Return the start of a query that has no checkpoint yet."""
        self._began = True
        extents = self._streams.extents()
        starts = self._streams.start(extents, otherwise="latest")
        self._streams.check_loss(starts, extents)
        return self._streams.position(starts)

    def end_here(self) -> None:
        """Make the current heads the end of the query."""
        self._target = self._heads()

    def latest(self) -> dict[str, dict[str, int]]:
        """Return the current end of the streams, and how many events are after the last micro-batch, up to a million.

        `pipeline.progress` looks for these names.
        """
        heads = self._heads()
        behind = {
            topic: self._connection.execute(FindEnd(topic, self._read.get(topic, 0), head, COUNTED))[1]
            for topic, head in heads.items()
        }
        return {topic: {"offset": head, "behind": behind[topic]} for topic, head in heads.items()}

    def advance(self, start: Position, most: int | None, least: int | None) -> Position:
        """Return the end after *start*: at most *most* events later, or *start* while there are fewer than *least*.

        A request for the next micro-batch means that all before it are committed, so the consumer may move to *start*.
        Spark reports the commit one micro-batch later, and never that of the last one.
        """
        starts = self._read = self._streams.offsets(start)
        self._log_restart()
        self._save(starts)
        heads = self._heads() if self._target is None else self._target
        ends = {topic: max(starts.get(topic, 0), heads.get(topic, 0)) for topic in heads.keys() | starts.keys()}
        if least is not None and self._target is None and self._fewer_than(least, starts, ends):
            return start
        if most is not None:
            ends = self._limited(most, starts, ends)
        if ends != starts:
            self._moved_at = monotonic()
        self._read = ends
        return self._streams.position(dict(sorted(ends.items())))

    def plan(self, start: Position, end: Position) -> list[Range]:
        """Return the range between two positions, in parts."""
        starts, ends = self._streams.offsets(start), self._streams.offsets(end)
        self._streams.check_loss(starts, self._streams.extents())
        return ranges(self._connection, self._options, self._streams.identity, starts, ends)

    def fetch(self, start: Position, end: Position, layout: Layout) -> list[Any]:
        """Return the batches between two positions, read in this process."""
        fetch = by_rows(self._connection)
        return [batch for part in self.plan(start, end) for batch in fetched(fetch, self._options, part, layout)]

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _heads(self) -> dict[str, int]:
        return {topic: extent.head for topic, extent in self._streams.extents().items()}

    def _fewer_than(self, least: int, starts: Mapping[str, int], ends: Mapping[str, int]) -> bool:
        if monotonic() >= self._moved_at + self._options.max_delay:
            return False
        for topic, end in ends.items():
            if least > 0 and starts.get(topic, 0) < end:
                _, number = self._connection.execute(FindEnd(topic, starts.get(topic, 0), end, least))
                least -= number
        return least > 0

    def _limited(self, most: int, starts: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, int]:
        """Return *ends*, or smaller ones: an equal share for each topic, where unused shares go to topics with more."""
        behind = sorted(ends, key=lambda topic: ends[topic] - starts.get(topic, 0))
        limited = {}
        for left, topic in zip(range(len(behind), 0, -1), behind, strict=True):
            start, share = starts.get(topic, 0), most // left
            limited[topic], number = start, 0
            if share and start < ends[topic]:
                limited[topic], number = self._connection.execute(FindEnd(topic, start, ends[topic], share))
            most -= number
        return limited

    def _save(self, done: dict[str, int]) -> None:
        if self._options.consumer is not None:
            for topic, offset in done.items() - self._saved.items():
                self._connection.execute(SaveOffset(topic, self._options.consumer, offset))
            self._saved = done

    def _log_restart(self) -> None:
        if not self._began and self._options.starting.given:
            _log.warning("the query resumes from its checkpoint: startingOffsets and startingTimestamp have no effect")
        self._began = True


class BatchReader(Travelling, DataSourceReader):
    """A reader of each topic from the start in the options up to its settled head."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "lowLatency"):
            if getattr(options, READ[name][0]):
                raise ValueError(
                    f"{name} is for streams, and a batch is read whole: leave it out, set endingOffsets to read less, "
                    f"or use spark.readStream"
                )
        self._options = options
        self._layout = stream_layout(options, schema)

    @plainly()
    def partitions(self) -> Sequence[InputPartition]:
        """Return the parts, planned in the driver."""
        url = self._options.address.resolve()
        with closing(backend_of(url).connect(url, create=False)) as connection:
            streams = Streams(connection, self._options)
            extents = streams.extents()
            starts = streams.start(extents, otherwise="earliest")
            streams.check_loss(starts, extents)
            return ranges(connection, self._options, streams.identity, starts, streams.end(extents))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the batches of a part."""
        # Spark passes a partition of its own if there is none.
        return batches(self._options, partition, self._layout) if isinstance(partition, Range) else iter(())


class _Follower(Travelling, SupportsTriggerAvailableNow):
    """The part that both readers of streams share."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._layout = stream_layout(options, schema)
        self._portion = Portion()

    @cached_property
    def _following(self) -> Following:
        # Created on demand: workers get a copy of this object, and do not use it.
        return Following(self._options)

    @plainly()
    def initialOffset(self) -> Position:
        """Return the start of a query without a checkpoint."""
        return self._following.begin()

    @plainly()
    def prepareForTriggerAvailableNow(self) -> None:
        """Ignore new events from now on."""
        self._following.end_here()


class StreamReader(_Follower, DataSourceStreamReader):
    """A reader that follows streams from one settled head to the next."""

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a micro-batch."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    @plainly()
    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:
        """Return the end of the next micro-batch."""
        if isinstance(limit, ReadAllAvailable):
            return self._following.advance(start, None, None)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._following.advance(start, most, self._options.min_offsets)

    @plainly()
    def reportLatestOffset(self) -> dict[str, dict[str, int]]:
        """Return the current end of the streams, for Spark's progress reports."""
        return self._following.latest()

    @plainly()
    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        """Return the parts of a micro-batch."""
        return self._following.plan(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the batches of a part."""
        assert isinstance(partition, Range)
        return batches(self._options, partition, self._layout)

    def stop(self) -> None:
        """Close the connection."""
        if "_following" in vars(self):
            self._following.close()


class RefusingReader(DataSourceStreamReader):
    """A reader that only raises an error: if the reader cannot be created, Spark loses the reason."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @plainly()
    def _refuse(self, *_given: Any, **_named: Any) -> Any:
        raise self._error

    # Spark calls the first for a query without a checkpoint, the second for one whose last micro-batch is committed,
    # and the third for others.
    initialOffset = latestOffset = partitions = read = _refuse


class DriverSideReader(_Follower, SimpleDataSourceStreamReader):
    """A reader that follows streams of few events in one process."""

    @plainly()
    def read(self, start: Position) -> tuple[Iterator[Any], Position]:
        """Return the new events and their end."""
        most = min(self._portion.rows, self._options.max_offsets or self._portion.rows)
        end = self._following.advance(start, most, self._options.min_offsets)
        found = self._following.fetch(start, end, self._layout)
        if found:
            self._portion.learn(pa.Table.from_batches(found))
        # A list, because Spark copies the iterator to read it twice.
        return iter(found), end

    @plainly()
    def readBetweenOffsets(self, start: Position, end: Position) -> Iterator[Any]:
        """Yield the events that were read before a restart."""
        # This may run in any process, and an open connection would block later readers there.
        with closing(Following(self._options)) as following:
            return iter(following.fetch(start, end, self._layout))


class Part(InputPartition):
    """The rows after one number up to another; all of them, if the table has no numbers."""

    def __init__(self, after: int = 0, last: int = 0) -> None:
        self.after = after
        self.last = last


class TableReader(Travelling, DataSourceReader):
    """A reader of one of the tables."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._layout = Layout(COLUMNS[options.table], schema)

    @plainly()
    def partitions(self) -> Sequence[InputPartition]:
        """Return the parts of the tasks; other tables are small."""
        if self._options.table not in ("tasks", "dead"):
            return [Part()]
        url = self._options.address.resolve()
        with closing(backend_of(url).connect(url, create=False)) as connection:
            after, last = connection.execute(ReadTaskNumbers())
            found = parts(lambda *span: connection.execute(FindTaskEnd(*span)), after, last, last - after)
        return [Part(*part) for part in found]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the batches of a part."""
        assert isinstance(partition, Part)
        with plainly(), opened(self._options.address.resolve()) as fetch:
            for table in self._pages(fetch, partition):
                if table.num_rows:
                    yield self._layout.batch(table)

    def _pages(self, fetch: Fetch, part: Part) -> Iterator[Any]:
        table, sources = self._options.table, self._layout.sources
        if table in ("schedules", "consumers"):
            yield fetch(FetchSchedules() if table == "schedules" else FetchConsumers(), sources)
            return
        columns, state = list(dict.fromkeys(["id", *sources])), "dead" if table == "dead" else None
        if table == "results":
            found = pages(lambda after, limit: fetch(FetchResults(after, limit), columns), "", None, "id")
        else:
            found = pages(
                lambda after, limit: fetch(FetchTasks(after, part.last, state, limit), columns),
                part.after,
                part.last,
                "id",
            )
        yield from (page for _, page in found)

"""Going along with streams, from one position to the next: what both readers of streams have in common.

This is the part that belongs to the driver.  Spark runs it in a process of its own for each query, where a kit's
connection stays open for as long as the query runs.
"""

import logging
from collections.abc import Mapping
from time import monotonic
from typing import Any

from ..bulk import by_rows
from ..kit import backend_of
from ..operations.extract import FindEnd
from ..operations.stream import SaveOffset
from .fetching import fetched
from .layouts import Layout
from .offsets import Position, Streams
from .options import ReadOptions
from .planning import Range, ranges

_log = logging.getLogger("eventkit.spark")


class Following:
    """Streams that are followed, by the options of a reader."""

    def __init__(self, options: ReadOptions) -> None:
        if options.ending.given:
            raise ValueError("a stream has no end: leave endingOffsets and endingTimestamp out, or use spark.read")
        url = options.address.resolve()
        self._options = options
        self._connection = backend_of(url).connect(url, create=False)
        self._streams = Streams(self._connection, options)
        self._target: dict[str, int] | None = None
        self._saved: dict[str, int] = {}
        self._began = False
        self._moved_at = monotonic()

    def begin(self) -> Position:
        """Where a query begins that has no checkpoint yet."""
        self._began = True
        extents = self._streams.extents()
        starts = self._streams.start(extents, otherwise="latest")
        self._streams.check_loss(starts, extents)
        return self._streams.position(starts)

    def end_here(self) -> None:
        """Take what is there by now for all that there will be."""
        self._target = self._heads()

    def latest(self) -> Position:
        """Everything there is."""
        return self._streams.position(self._heads())

    def advance(self, start: Position, most: int | None, least: int | None) -> Position:
        """Where to go from *start*: on by *most* events, or not at all where there are not *least*, for a while.

        Whoever asks for the next micro-batch has committed all before it, so the consumer may follow up to *start*.
        Spark says so itself, but one micro-batch later, and of the last one never.
        """
        starts = self._streams.offsets(start)
        self._tell_of_restart()
        self._save(starts)
        heads = self._heads() if self._target is None else self._target
        ends = {topic: max(starts.get(topic, 0), heads.get(topic, 0)) for topic in heads.keys() | starts.keys()}
        if least is not None and self._target is None and self._fewer_than(least, starts, ends):
            return start
        if most is not None:
            ends = self._limited(most, starts, ends)
        if ends != starts:
            self._moved_at = monotonic()
        return self._streams.position(dict(sorted(ends.items())))

    def plan(self, start: Position, end: Position) -> list[Range]:
        """What lies between, in parts."""
        starts, ends = self._streams.offsets(start), self._streams.offsets(end)
        self._streams.check_loss(starts, self._streams.extents())
        return ranges(self._connection, self._options, self._streams.identity, starts, ends)

    def fetch(self, start: Position, end: Position, layout: Layout) -> list[Any]:
        """The batches that lie between, read here."""
        fetch = by_rows(self._connection)
        return [batch for part in self.plan(start, end) for batch in fetched(fetch, self._options, part, layout)]

    def close(self) -> None:
        """Let go of the database."""
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
        """*ends*, or nearer ones: an equal share for each topic, where those behind get what others have no use for."""
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

    def _tell_of_restart(self) -> None:
        if not self._began and self._options.starting.given:
            _log.warning("the query goes on from its checkpoint: startingOffsets and startingTimestamp have no effect")
        self._began = True

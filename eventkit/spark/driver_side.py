"""Reading on and on with little delay: the driver reads the events itself and hands them on with the micro-batch.

That spares a round of tasks, and takes memory of the driver; so a micro-batch has no more than ten thousand events, and
fewer where they are large.
"""

from collections.abc import Iterator
from contextlib import closing
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ..bulk import Portion
from .following import Following
from .layouts import stream_layout
from .offsets import Position
from .options import ReadOptions
from .refusals import Travelling, plainly


class DriverSideReader(Travelling, SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows streams of few events, in one process."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._layout = stream_layout(options, schema)
        self._portion = Portion()

    @cached_property
    def _following(self) -> Following:
        return Following(self._options)

    @plainly()
    def initialOffset(self) -> Position:
        """Where a query without a checkpoint begins."""
        return self._following.begin()

    @plainly()
    def read(self, start: Position) -> tuple[Iterator[Any], Position]:
        """What is new, and where it ends."""
        most = min(self._portion.rows, self._options.max_offsets or self._portion.rows)
        end = self._following.advance(start, most, self._options.min_offsets)
        found = self._following.fetch(start, end, self._layout)
        if found:
            self._portion.learn(pa.Table.from_batches(found))
        # Of a list, because Spark copies the iterator, to read it twice.
        return iter(found), end

    @plainly()
    def readBetweenOffsets(self, start: Position, end: Position) -> Iterator[Any]:
        """What was read before a restart, once more."""
        # This may be anywhere, and a connection that stayed open would be in the way of whoever reads here next.
        with closing(Following(self._options)) as following:
            return iter(following.fetch(start, end, self._layout))

    @plainly()
    def prepareForTriggerAvailableNow(self) -> None:
        """From here on, nothing new is seen."""
        self._following.end_here()

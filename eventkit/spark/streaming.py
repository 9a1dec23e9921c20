"""Reading on and on: what is new in each micro-batch, divided among the workers of Spark."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from .fetching import batches
from .following import Following
from .layouts import stream_layout
from .offsets import Position
from .options import ReadOptions
from .planning import Range
from .refusals import Travelling, plainly


class StreamReader(Travelling, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows streams, from one settled head to the next."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._layout = stream_layout(options, schema)

    @cached_property
    def _following(self) -> Following:
        # Not from the beginning: workers get a copy of this object, and have no use for it.
        return Following(self._options)

    @plainly()
    def initialOffset(self) -> Position:
        """Where a query without a checkpoint begins."""
        return self._following.begin()

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much a micro-batch takes."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    @plainly()
    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:
        """Where the next micro-batch ends."""
        if isinstance(limit, ReadAllAvailable):
            return self._following.advance(start, None, None)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._following.advance(start, most, self._options.min_offsets)

    @plainly()
    def prepareForTriggerAvailableNow(self) -> None:
        """From here on, nothing new is seen."""
        self._following.end_here()

    @plainly()
    def reportLatestOffset(self) -> Position:
        """How far the streams go, for the progress that Spark reports."""
        return self._following.latest()

    @plainly()
    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        """The parts of a micro-batch."""
        return self._following.plan(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The batches of a part."""
        assert isinstance(partition, Range)
        return batches(self._options, partition, self._layout)

    def stop(self) -> None:
        """Let go of the database."""
        if "_following" in vars(self):
            self._following.close()


class RefusingReader(DataSourceStreamReader):
    """Tells why there is nothing to follow: where a reader cannot be made, Spark forgets the reason."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @plainly()
    def initialOffset(self) -> Position:
        """Asked of a query without a checkpoint."""
        raise self._error

    @plainly()
    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:
        """Asked of one with a checkpoint, whose last micro-batch was done."""
        raise self._error

    @plainly()
    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        """Asked of one whose last micro-batch was not."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Never asked, because there are no partitions."""
        raise self._error

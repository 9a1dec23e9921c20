"""Reading once: what there is when the query begins."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..kit import backend_of
from .fetching import batches
from .layouts import stream_layout
from .offsets import Streams
from .options import ReadOptions
from .planning import Range, ranges
from .refusals import plainly


class BatchReader(DataSourceReader):
    """Reads each topic from where the options say up to its settled head."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._layout = stream_layout(options, schema)

    @plainly()
    def partitions(self) -> Sequence[InputPartition]:
        """The parts, planned where the driver is."""
        url = self._options.address.resolve()
        with closing(backend_of(url).connect(url, create=False)) as connection:
            streams = Streams(connection, self._options)
            extents = streams.extents()
            starts = streams.start(extents, otherwise="earliest")
            streams.check_loss(starts, extents)
            return ranges(connection, self._options, streams.identity, starts, streams.end(extents))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The batches of a part."""
        # Spark makes a part of its own where there is none.
        return batches(self._options, partition, self._layout) if isinstance(partition, Range) else iter(())

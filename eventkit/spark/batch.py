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
from .refusals import Travelling, plainly


class BatchReader(Travelling, DataSourceReader):
    """Reads each topic from where the options say up to its settled head."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        for name, given in (
            ("maxOffsetsPerTrigger", options.max_offsets is not None),
            ("minOffsetsPerTrigger", options.min_offsets is not None),
            ("lowLatency", options.low_latency),
        ):
            if given:
                raise ValueError(
                    f"{name} is for streams, and a batch is read whole: leave it out, set endingOffsets to read less, "
                    f"or use spark.readStream"
                )
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

"""The data source ``eventkit``, as Spark asks for it: a table of what each question is answered by."""

from pyspark.errors import PySparkNotImplementedError
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from .batch import BatchReader
from .driver_side import DriverSideReader
from .layouts import columns
from .options import ReadOptions
from .streaming import StreamReader


class EventkitSource(DataSource):
    """Streams of eventkit as tables."""

    @classmethod
    def name(cls) -> str:
        """What stands in ``format()``."""
        return "eventkit"

    def schema(self) -> StructType | str:
        """The columns of a table that is read."""
        return columns(ReadOptions.parse(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """What reads once."""
        return BatchReader(ReadOptions.parse(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """What reads on and on, by the workers; with this error Spark asks for the other one."""
        options = ReadOptions.parse(self.options)
        if options.low_latency:
            raise PySparkNotImplementedError(
                errorClass="NOT_IMPLEMENTED", messageParameters={"feature": "streamReader with lowLatency"}
            )
        return StreamReader(options, schema)

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        """What reads on and on, by the driver."""
        return DriverSideReader(ReadOptions.parse(self.options), schema)

"""The data source ``eventkit``, as Spark asks for it: a table of what each question is answered by."""

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from .batch import BatchReader
from .layouts import columns
from .options import ReadOptions


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

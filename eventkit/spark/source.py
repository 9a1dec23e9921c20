"""The data source ``eventkit``, in Spark's interface."""

from pyspark.errors import PySparkNotImplementedError
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.types import StructType

from ..errors import EventkitError
from .columns import schema, stream_schema
from .errors import plainly
from .options import ReadOptions, WriteOptions, check_shared
from .reader import BatchReader, DriverSideReader, RefusingReader, StreamReader
from .tables import COLUMNS, TableReader
from .writer import BatchWriter, StreamWriter


class EventkitSource(DataSource):
    """The data source for streams of eventkit."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format()``."""
        return "eventkit"

    @plainly()
    def schema(self) -> StructType | str:
        """Return the columns of a table that is read."""
        options = ReadOptions.parse(self.options)
        return stream_schema(options) if options.table == "events" else schema(COLUMNS[options.table])

    @plainly()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of a batch."""
        options = ReadOptions.parse(self.options)
        check_shared(options)
        return BatchReader(options, schema) if options.table == "events" else TableReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader of a stream in the workers, or raise the error that makes Spark call `simpleStreamReader`."""
        try:
            options = self._stream_options()
            reader = StreamReader(options, schema)
        except (ValueError, EventkitError) as error:
            return RefusingReader(error)
        if options.low_latency:
            raise PySparkNotImplementedError(
                errorClass="NOT_IMPLEMENTED", messageParameters={"feature": "streamReader with lowLatency"}
            )
        return reader

    @plainly()
    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        """Return a reader of a stream in the driver."""
        return DriverSideReader(self._stream_options(), schema)

    @plainly()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer of a batch."""
        return BatchWriter(self._write_options(), schema, overwrite)

    @plainly()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return a writer of a stream."""
        return StreamWriter(self._write_options(), schema, overwrite)

    def _write_options(self) -> WriteOptions:
        options = WriteOptions.parse(self.options)
        check_shared(options)
        return options

    def _stream_options(self) -> ReadOptions:
        options = ReadOptions.parse(self.options)
        if options.table != "events":
            raise ValueError(
                f"table={options.table} is not a stream: use spark.read; the topic eventkit.tasks has their history"
            )
        check_shared(options)
        return options

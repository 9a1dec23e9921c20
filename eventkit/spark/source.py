"""The data source ``eventkit``, as Spark asks for it: a table of what each question is answered by."""

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
from .batch import BatchReader
from .driver_side import DriverSideReader
from .layouts import schema, stream_schema
from .options import ReadOptions, WriteOptions, check_shared
from .refusals import plainly
from .streaming import RefusingReader, StreamReader
from .tables import COLUMNS, TableReader
from .writing import BatchWriter, StreamWriter


class EventkitSource(DataSource):
    """Streams of eventkit as tables."""

    @classmethod
    def name(cls) -> str:
        """What stands in ``format()``."""
        return "eventkit"

    @plainly()
    def schema(self) -> StructType | str:
        """The columns of a table that is read."""
        options = ReadOptions.parse(self.options)
        return stream_schema(options) if options.table == "events" else schema(COLUMNS[options.table])

    @plainly()
    def reader(self, schema: StructType) -> DataSourceReader:
        """What reads once."""
        options = ReadOptions.parse(self.options)
        check_shared(options)
        return BatchReader(options, schema) if options.table == "events" else TableReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """What reads on and on, by the workers; with this error Spark asks for the other one."""
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
        """What reads on and on, by the driver."""
        return DriverSideReader(self._stream_options(), schema)

    @plainly()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """What writes once."""
        return BatchWriter(self._write_options(), schema, overwrite)

    @plainly()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """What writes on and on."""
        return StreamWriter(self._write_options(), schema, overwrite)

    def _write_options(self) -> WriteOptions:
        options = WriteOptions.parse(self.options)
        check_shared(options)
        return options

    def _stream_options(self) -> ReadOptions:
        options = ReadOptions.parse(self.options)
        if options.table != "events":
            raise ValueError(
                f"table={options.table} is no stream: use spark.read; what happens to tasks is the topic eventkit.tasks"
            )
        check_shared(options)
        return options

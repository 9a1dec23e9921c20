"""The data sources ``eventkit`` and, for files of archives, ``eventkit_stored``, in Spark's interface."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pyarrow.parquet import ParquetFile
from pyspark.errors import PySparkNotImplementedError
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ..archive.files import Store
from ..errors import EventkitError
from .columns import COLUMNS, schema, stream_schema
from .options import ReadOptions, WriteOptions, check_shared
from .reader import BatchReader, DriverSideReader, RefusingReader, StreamReader, TableReader
from .session import Travelling, plainly
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
        options = check_shared(ReadOptions.parse(self.options))
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
        return BatchWriter(check_shared(WriteOptions.parse(self.options)), schema, overwrite)

    @plainly()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return a writer of a stream."""
        return StreamWriter(check_shared(WriteOptions.parse(self.options)), schema, overwrite)

    def _stream_options(self) -> ReadOptions:
        options = ReadOptions.parse(self.options)
        if options.table != "events":
            raise ValueError(
                f"table={options.table} is not a stream: use spark.read; the topic eventkit.tasks has their history"
            )
        return check_shared(options)


_ROWS = 10_000
"""Rows in a batch for Spark."""


class StoredSource(DataSource):
    """Files, by their paths in a location, with the credentials of the process that reads."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format, for a session in which it is registered."""
        return "eventkit_stored"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of some columns."""
        return _StoredReader(self.options["location"], json.loads(self.options["files"]), schema)


class _StoredReader(Travelling, DataSourceReader):
    def __init__(self, location: str, files: list[str], schema: StructType) -> None:
        self._location = location
        self._files = files
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(path) for path in self._files]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        store, schema = Store(self._location), to_arrow_schema(self._schema, timezone="UTC")
        with (
            plainly(),
            store.explained("cannot be read"),
            store.open(partition.value) as stream,
            ParquetFile(stream) as file,
        ):
            for group in range(file.num_row_groups):
                found = file.read_row_group(group, schema.names).select(schema.names)
                yield from found.cast(schema).to_batches(_ROWS)

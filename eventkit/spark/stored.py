"""Files of Parquet in an object store as a table, read by Arrow: Spark itself would need other jars for that."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pyarrow.parquet import ParquetFile
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ..lake.store import Store
from .refusals import Travelling, plainly

_ROWS = 10_000
"""Rows of a batch on its way to Spark."""


class StoredSource(DataSource):
    """Files, by their paths in a location, whose credentials are those of the process that reads."""

    @classmethod
    def name(cls) -> str:
        """The format, for a session in which it is registered."""
        return "eventkit_stored"

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of some columns."""
        return _Reader(self.options["location"], json.loads(self.options["files"]), schema)


class _File(InputPartition):
    def __init__(self, path: str) -> None:
        self.path = path


class _Reader(Travelling, DataSourceReader):
    def __init__(self, location: str, files: list[str], schema: StructType) -> None:
        self._location = location
        self._files = files
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """One for each file."""
        return [_File(path) for path in self._files]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The batches of a file."""
        assert isinstance(partition, _File)
        store, schema = Store(self._location), to_arrow_schema(self._schema, timezone="UTC")
        with plainly(), store.told("cannot be read"), store.open(partition.path) as stream, ParquetFile(stream) as file:
            for group in range(file.num_row_groups):
                found = file.read_row_group(group, schema.names).select(schema.names)
                yield from found.cast(schema).to_batches(_ROWS)

"""Reads, writes, and queries over a stream with their output; the mark ``both`` of tests on both kinds of database."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

both = pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
"""Marks tests of statements that the two kinds of database have each."""


def read(spark: Any, url: str, *, schema: str | None = None, **options: Any) -> Any:
    """Return the table of some options."""
    reader = spark.read.format("eventkit").options(url=url, **options)
    return (reader.schema(schema) if schema else reader).load()


def offsets(table: Any) -> list[int]:
    """Return the offsets in the table, in order."""
    return [row.offset for row in table.select("offset").orderBy("offset").collect()]


def write(frame: Any, url: str, **options: Any) -> None:
    """Append a DataFrame."""
    frame.write.format("eventkit").options(url=url, **options).mode("append").save()


def stored(name: str, url: str) -> str:
    """Return the name of a table of eventkit's in SQL."""
    schema = url.partition("schema=")[2]
    return f'"{schema}".eventkit_{name}' if schema else f"eventkit_{name}"


def forget_commit(checkpoint: Path) -> None:
    """Remove Spark's record of the last micro-batch's commit, as a kill does."""
    commits = checkpoint / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
    for name in (str(last), f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)


class Query:
    """A query with a checkpoint, whose sink is a folder of Parquet files."""

    def __init__(self, spark: Any, folder: Path, url: str, *, source: str = "eventkit", **options: Any) -> None:
        self._spark, self._source = spark, source
        self._out, self._checkpoint = str(folder / "out"), str(folder / "checkpoint")
        self._url, self._options = url, options

    def start(self, **trigger: Any) -> Any:
        """Start the query."""
        stream = self._spark.readStream.format(self._source).options(url=self._url, **self._options).load()
        writer = stream.writeStream.format("parquet").option("checkpointLocation", self._checkpoint)
        return writer.trigger(**trigger).start(self._out)

    @contextmanager
    def running(self) -> Iterator[Any]:
        """Run the query with micro-batches one after the other."""
        query = self.start(processingTime="0 seconds")
        try:
            yield query
        finally:
            query.stop()

    def run(self) -> list[dict[str, Any]]:
        """Read all events; return the progress of each micro-batch that read any."""
        query = self.start(availableNow=True)
        query.awaitTermination()
        return [progress for progress in query.recentProgress if progress["numInputRows"]]

    def rows(self) -> list[Any]:
        """Return the rows in the sink, in order."""
        if not Path(self._out).exists():
            return []
        return self._spark.read.schema("offset LONG, topic STRING").parquet(self._out).orderBy("offset").collect()

    def offsets(self) -> list[int]:
        """Return the offsets in the sink, in order."""
        return [row.offset for row in self.rows()]

    def in_files(self) -> list[int]:
        """Return the offsets in all files of the sink, whether its record begins with the first micro-batch or not."""
        return offsets(self._spark.read.parquet(f"{self._out}/*.parquet"))

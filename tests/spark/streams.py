"""Queries over a stream, and their output."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def wait_for(condition: Callable[[], Any]) -> None:
    """Return when the condition holds."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


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

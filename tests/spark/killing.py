"""A source that kills its own process, or a server, at a chosen step."""

import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from spark.streams import Query

from eventkit.spark.reader import StreamReader
from eventkit.spark.source import EventkitSource


def killing_source(folder: Path) -> type[EventkitSource]:
    """Return a source that counts its steps in all processes, and kills at the one whose number is in ``folder/at``.

    It kills the process that takes the step, or the server whose number is in ``folder/server``.
    Spark sends local classes by value, and not by name.
    """

    def step() -> None:
        with open(folder / "steps", "a+") as steps:
            fcntl.flock(steps, fcntl.LOCK_EX)
            steps.write(".")
            steps.flush()
            if steps.tell() == int((folder / "at").read_text()):
                if (folder / "server").exists():
                    os.kill(int((folder / "server").read_text()), signal.SIGQUIT)
                else:
                    os.kill(os.getpid(), signal.SIGKILL)

    class KillingReader(StreamReader):
        def initialOffset(self) -> Any:
            step()
            answer = StreamReader.initialOffset(self)
            step()
            return answer

        def latestOffset(self, start: Any, limit: Any) -> Any:
            step()
            answer = StreamReader.latestOffset(self, start, limit)
            step()
            return answer

        def partitions(self, start: Any, end: Any) -> Any:
            step()
            answer = StreamReader.partitions(self, start, end)
            step()
            return answer

        def read(self, partition: Any) -> Iterator[Any]:
            step()
            for batch in StreamReader.read(self, partition):
                yield batch
                step()

    class KillingSource(EventkitSource):
        @classmethod
        def name(cls) -> str:
            return "eventkit_killing"

        def streamReader(self, schema: Any) -> Any:
            return KillingReader(self._stream_options(), schema)

    return KillingSource


class KilledQuery:
    """A query that is killed at a step."""

    def __init__(self, spark: Any, folder: Path, url: str) -> None:
        spark.dataSource.register(killing_source(folder))
        self._folder = folder
        self._query = Query(
            spark,
            folder,
            url,
            source="eventkit_killing",
            topic="orders",
            startingOffsets="earliest",
            consumer="lake",
            maxOffsetsPerTrigger="4",
            minPartitions="2",
        )

    def run(self, at: int = 0) -> bool:
        """Run until a step counted from the start of this run, which kills it; return whether it got that far."""
        (self._folder / "steps").unlink(missing_ok=True)
        (self._folder / "at").write_text(str(at))
        try:
            self._query.run()
        except PySparkException:
            return True
        return False

    def offsets(self) -> list[int]:
        """Return the offsets in the sink."""
        return [row.offset for row in self._query.rows()]

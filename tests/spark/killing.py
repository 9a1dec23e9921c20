"""The source, in a form that kills the process it is in at a step that was chosen before."""

import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eventkit.spark.source import EventkitSource
from eventkit.spark.streaming import StreamReader


def killing_source(folder: Path) -> type[EventkitSource]:
    """A source that counts its steps, in all processes, and dies at the one whose number is in ``folder/at``.

    Classes of a function are sent to Spark whole, and not by name.
    """

    def step() -> None:
        with open(folder / "steps", "a+") as steps:
            fcntl.flock(steps, fcntl.LOCK_EX)
            steps.write(".")
            steps.flush()
            if steps.tell() == int((folder / "at").read_text()):
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

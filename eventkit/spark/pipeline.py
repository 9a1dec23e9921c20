"""From streams, through a function of a DataFrame, into a sink: once, or on and on, where everybody can see it.

A pipeline has a name, under which the database knows how it is doing (``eventkit pipeline list``) and how far it has
read.  Where it goes on after whatever has ended it, its checkpoint says.
"""

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import arguments
from ..errors import EventkitError
from ..kit import backend_of
from ..lake.store import Location
from ..noting import Note, noted
from ..operations.extract import FindEnd, ReadExtent
from ..operations.staging import ReadMark, skipped_in
from ..protocols import Connection
from .complaints import told
from .options import WRITE, address_of
from .starting import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Transform = Callable[["DataFrame"], "DataFrame"]
Sink = Mapping[str, str] | Callable[["DataFrame", int], None]

_ADDRESS = ("url", "urlEnv", "urlFile")
_LOOK = 1
"""Seconds between two looks at how far it is, of which Spark takes whole ones."""

_MOST = 1_000_000
"""Events ahead that are counted."""


class Ran(NamedTuple):
    """The outcome of a run: micro-batches that had rows, their rows, seconds, and how many of those micro-batches had
    been written before, wholly or in part, so that a write was *skipped*."""

    batches: int
    rows: int
    seconds: float
    skipped: int = 0


class Pipeline:
    """Reads *source*, and writes what *transform* makes of it to *sink*, each event once.

    *source* is a topic, or options of the data source ``eventkit``; *sink*, options of where to write: those of
    ``eventkit`` (``{"topic": …}``, ``{"queue": …}``), or of another format (``{"format": "parquet", "path": …}``), or a
    function that gets each micro-batch and its number, and writes it once however often it gets it.  The database is
    at *url*, unless the source names one.  *checkpoint* is a folder of the pipeline's own.
    """

    def __init__(
        self,
        name: str,
        *,
        source: str | Mapping[str, str],
        sink: Sink,
        checkpoint: str,
        transform: Transform | None = None,
        url: str | None = None,
        output_mode: str = "append",
    ) -> None:
        self.name = arguments.name("pipeline", name)
        given = {"topic": source} if isinstance(source, str) else dict(source)
        if url is not None:
            given["url"] = url
        # Its offset is what keeps events from being pruned, and shows how far behind it is.
        self._source = {"consumer": name, **given}
        self._address = {option: value for option, value in given.items() if option in (*_ADDRESS, "sharedFile")}
        self._url = address_of(self._address)
        self._sink = sink
        path = "" if callable(sink) else sink.get("path", "")
        self._place = Location(path) if "://" in path else None
        self._checkpoint = checkpoint
        self._transform = transform
        self._output_mode = output_mode

    def run_once(self, spark: "SparkSession | None" = None) -> Ran:
        """Read what there is by now, and return when it is written."""
        return self._run(spark, {"availableNow": True})

    def run(self, spark: "SparkSession | None" = None, *, every: str = "0 seconds") -> Ran:
        """Go on until interrupted, with a micro-batch as often as *every* says."""
        return self._run(spark, {"processingTime": every})

    def _run(self, spark: "SparkSession | None", trigger: dict[str, Any]) -> Ran:
        spark = spark or session()
        url = self._url.resolve()
        with (
            closing(backend_of(url).connect(url, create=False)) as connection,
            noted(connection, self.name, self._from(), self._to()) as note,
        ):
            watching = _Watching(self.name, connection, note)
            query: StreamingQuery | None = None
            try:
                query = self._start(spark, trigger)
                while not query.awaitTermination(_LOOK):
                    watching.look(query)
                watching.look(query)
            except KeyboardInterrupt:
                if query is not None:
                    query.stop()
                    watching.look(query)
                if "availableNow" in trigger:
                    raise
            except Exception as error:
                if type(error).__module__.startswith("pyspark"):
                    reason = told(error) if self._place is None else self._place.without_secrets(told(error))
                    raise EventkitError(f"pipeline {self.name!r} has failed: {reason}") from (
                        error if self._place is None else None
                    )
                raise
            finally:
                watching.end()
            return watching.ran()

    def _start(self, spark: "SparkSession", trigger: dict[str, Any]) -> "StreamingQuery":
        frame = spark.readStream.format("eventkit").options(**self._source).load()
        made = frame if self._transform is None else self._transform(frame)
        writer = made.writeStream.queryName(self.name).outputMode(self._output_mode).trigger(**trigger)
        writer = writer.option("checkpointLocation", self._checkpoint)
        if callable(self._sink):
            return writer.foreachBatch(self._sink).start()
        sink = dict(self._sink)
        format = sink.pop("format", "eventkit")
        if format == "eventkit" and not set(sink) & set(_ADDRESS):
            sink |= self._address
        return writer.format(format).options(**sink).start()

    def _from(self) -> str:
        return next(
            self._source[name] for name in ("topic", "subscribe", "subscribePattern", "table") if name in self._source
        )

    def _to(self) -> str:
        if callable(self._sink):
            return getattr(self._sink, "__name__", type(self._sink).__name__)
        shown = {name: value for name, value in self._sink.items() if name not in _ADDRESS}
        if self._place is not None:
            shown["path"] = self._place.name
        return " ".join(f"{name}={value}" for name, value in shown.items() if name in (*WRITE, "format", "path"))


class _Watching:
    """Tells the database, and whoever sits at the terminal, how far a query is."""

    def __init__(self, name: str, connection: Connection, note: Note) -> None:
        self._name = name
        self._connection = connection
        self._note = note
        self._began = monotonic()
        self._last = -1
        self._batches = self._rows = self._skipped = 0
        self._shown = sys.stderr.isatty()

    def look(self, query: "StreamingQuery") -> None:
        """Tell what has been done since the last look."""
        # The attribute, because by Spark Connect only the sources have numbers.
        found = [one for one in query.recentProgress if one.batchId > self._last and one.numInputRows]
        if not found:
            return
        rows, self._last = sum(one.numInputRows for one in found), found[-1].batchId
        self._batches, self._rows = self._batches + len(found), self._rows + rows
        skipped_below = self._connection.execute(ReadMark(skipped_in(query.id)))
        self._skipped += sum(one.batchId < skipped_below for one in found)
        lag = self._lag(found[-1].sources[0].endOffset)
        self._note(rows, self._last, lag)
        if self._shown:
            rate = self._rows / max(monotonic() - self._began, 0.001)
            line = f"{self._name}: batch {self._last}, {self._rows:,} rows, {rate:,.0f}/s, {lag:,} behind"
            print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the line."""
        if self._shown and self._batches:
            print(file=sys.stderr)

    def ran(self) -> Ran:
        """All of it."""
        return Ran(self._batches, self._rows, monotonic() - self._began, self._skipped)

    def _lag(self, position: Any) -> int:
        places = json.loads(position) if isinstance(position, str) else dict(position)
        lag = 0
        for topic, place in places.items():
            head = self._connection.execute(ReadExtent(topic)).head
            lag += self._connection.execute(FindEnd(topic, place["offset"], head, _MOST))[1]
        return lag

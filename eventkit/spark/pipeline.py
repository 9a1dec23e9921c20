"""Pipelines from streams, through a function of a DataFrame, into a sink; and the one that makes hourly sums.

A pipeline has a name, under which the database stores its state (``eventkit pipeline list``) and how far it has
read.  After any interruption it resumes from its checkpoint.

A run of `rollup` takes the events of a stream after the last one that is summed up, to the settled head, which is its
watermark: no transaction in progress can publish below it.  It adds their sums, each to the hour in which the event
was published, and moves the mark, in one transaction.  So a run that is killed has no effect, a repeated one adds
nothing twice, and no event is too late.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import checks
from ..archive.files import Location
from ..errors import EventkitError
from ..kit import backend_of
from ..operations.bulk import AddSums, ReadArchive, ReadMark, Sum, skipped_in
from ..operations.tables import FindEnd, ListTopics, ReadExtent
from ..protocols import Connection
from ..rollup import HOUR, KINDS, STEPS, Report, reported
from .options import COUNTED, WRITE, address_of
from .session import is_remote, is_sparks, reason_of, session
from .views import ATTEMPTS, Need, events, find_stream, overtaken

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

Transform = Callable[["DataFrame"], "DataFrame"]
Sink = Mapping[str, str] | Callable[["DataFrame", int], None]

_ADDRESS = ("url", "urlEnv", "urlFile")
_LOOK = 1
"""Seconds between two reports; Spark accepts whole seconds."""


class Ran(NamedTuple):
    """The result of a run: the number of micro-batches with rows, their rows, the seconds, and how many of those
    micro-batches had been written before, wholly or in part, so that a write was *skipped*."""

    batches: int
    rows: int
    seconds: float
    skipped: int = 0


class Pipeline:
    """A query that reads *source*, and writes the result of *transform* to *sink*, each event once.

    *source* is a stream, or options of the data source ``eventkit``; *sink* is options of the target: those of
    ``eventkit`` (``{"topic": …}``, ``{"queue": …}``), or of another format (``{"format": "parquet", "path": …}``), or a
    function of each micro-batch and its number, which must write it once however often it is called.  The database is
    at *url*, unless the source names one.  *checkpoint* is a folder for this pipeline alone.
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
        self.name = checks.name("pipeline", name)
        given = {"topic": source} if isinstance(source, str) else dict(source)
        if url is not None:
            given["url"] = url
        # Its offset keeps events from being pruned, and shows the lag.
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
        """Process the events that exist now, and return when they are written."""
        return self._run(spark, {"availableNow": True})

    def run(self, spark: "SparkSession | None" = None, *, every: str = "0 seconds") -> Ran:
        """Run until interrupted, with a micro-batch every *every*."""
        return self._run(spark, {"processingTime": every})

    def _run(self, spark: "SparkSession | None", trigger: dict[str, Any]) -> Ran:
        spark = spark or session()
        url = self._url.resolve()
        with (
            closing(backend_of(url).connect(url, create=False)) as connection,
            reported(connection, self.name, self._from(), self._to()) as report,
        ):
            reporter = _Reporter(self.name, connection, report)
            query: StreamingQuery | None = None
            try:
                query = self._start(spark, trigger)
                while not query.awaitTermination(_LOOK):
                    reporter.report(query)
                reporter.report(query)
            except KeyboardInterrupt:
                if query is not None:
                    query.stop()
                    reporter.report(query)
                if not is_remote(spark) and spark._jvm is not None:
                    # The interrupted call took its thread of Java along; writes find sources by that of the session.
                    java: Any = spark._jvm
                    java.SparkSession.setActiveSession(spark._jsparkSession)
                if "availableNow" in trigger:
                    raise
            except Exception as error:
                if not type(error).__module__.startswith("pyspark"):
                    raise
                reason = reason_of(error) if self._place is None else self._place.without_secrets(reason_of(error))
                cause = error if self._place is None else None
                raise EventkitError(f"pipeline {self.name!r} has failed: {reason}") from cause
            finally:
                reporter.end()
            return reporter.result()

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


class _Reporter:
    """A reporter of the progress of a query, to the database and to the terminal."""

    def __init__(self, name: str, connection: Connection, report: Report) -> None:
        self._name = name
        self._connection = connection
        self._report = report
        self._began, self._last = monotonic(), -1
        self._batches = self._rows = self._skipped = 0
        self._shown = sys.stderr.isatty()

    def report(self, query: "StreamingQuery") -> None:
        """Report the micro-batches since the last report."""
        # Not the property, because with Spark Connect only the sources have numbers.
        found = [one for one in query.recentProgress if one.batchId > self._last and one.numInputRows]
        if not found:
            return
        rows, self._last = sum(one.numInputRows for one in found), found[-1].batchId
        self._batches, self._rows = self._batches + len(found), self._rows + rows
        skipped_below = self._connection.execute(ReadMark(skipped_in(query.id)))
        self._skipped += sum(one.batchId < skipped_below for one in found)
        lag = self._lag(found[-1].sources[0].endOffset)
        self._report(rows, self._last, lag)
        if self._shown:
            rate = self._rows / max(monotonic() - self._began, 0.001)
            line = f"{self._name}: batch {self._last}, {self._rows:,} rows, {rate:,.0f}/s, {lag:,} behind"
            print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """End the progress line on the terminal."""
        if self._shown and self._batches:
            print(file=sys.stderr)

    def result(self) -> Ran:
        return Ran(self._batches, self._rows, monotonic() - self._began, self._skipped)

    def _lag(self, position: Any) -> int:
        places = json.loads(position) if isinstance(position, str) else dict(position)
        lag = 0
        for stream, place in places.items():
            head = self._connection.execute(ReadExtent(stream)).head
            lag += self._connection.execute(FindEnd(stream, place["offset"], head, COUNTED))[1]
        return lag


def progress(found: "StreamingQueryProgress") -> "StreamingQueryProgress":
    """Add the lag of eventkit's sources to the progress of a query, in the metrics that Kafka's source has.

    *found* is ``query.lastProgress``, or that of an event for a listener.  Spark accepts no metrics from a source in
    Python; so the source counts events in what it reports as its latest offset.
    """
    for source in found.sources:
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            behind = [place["behind"] for place in json.loads(source.latestOffset).values()]
            figures = {"avg": sum(behind) / len(behind), "max": max(behind), "min": min(behind)} if behind else {}
            source["metrics"] = {f"{name}OffsetsBehindLatest": str(value) for name, value in figures.items()}
    return found


TASKS = "eventkit.tasks"
"""The stream with the history of tasks."""

_COLUMNS = frozenset({"offset", "payload", "created_at"})
_STEP = "queue STRING, kind STRING, wait_ms BIGINT, run_ms BIGINT"


class Progress(NamedTuple):
    """The result of a run for a stream: the number of new *events*, and the *offset* up to which all are summed up.

    Those up to *lost* were pruned, and not archived, before they were summed up; 0 if there are none.
    """

    stream: str
    events: int
    offset: int
    lost: int


def rollup(spark: "SparkSession", url: str, streams: Iterable[str] | None = None) -> Iterator[Progress]:
    """Sum up the events since the last run, in all streams or in *streams*, and yield the progress of each."""
    with closing(backend_of(url).connect(url, create=False)) as connection:
        known = connection.execute(ListTopics())
        chosen = known if streams is None else [find_stream(stream, known) for stream in streams]
        source = "all streams" if streams is None else ", ".join(chosen)
        with reported(connection, "rollup", source, "eventkit_rollup") as report:
            for stream in chosen:
                done = _advance(spark, connection, url, stream)
                report(done.events)
                yield done


def _advance(spark: "SparkSession", connection: Connection, url: str, stream: str) -> Progress:
    for attempt in range(ATTEMPTS):
        after = connection.execute(ReadMark(f"rollup:{stream}"))
        extent, archive = connection.execute(ReadExtent(stream)), connection.execute(ReadArchive(stream))
        covered = archive.covered if archive else 0
        lost = extent.pruned_to if 0 < after < extent.pruned_to > covered else 0
        last = max(extent.head, covered)
        if last <= after:
            return Progress(stream, 0, after, 0)
        found = events(spark, connection, url, stream, Need(_COLUMNS, after, last))
        try:
            sums = _sums(found.where(f"offset > {after} AND offset <= {last}"), stream)
        except Exception as error:
            if not is_sparks(error) or not overtaken(error) or attempt == ATTEMPTS - 1:
                raise
            continue
        if connection.execute(AddSums(stream, after, last, sums)):
            return Progress(stream, sum(one.amount for one in sums if one.measure == "events"), last, lost)
    # Another process has summed up the same events first, each time.
    return Progress(stream, 0, connection.execute(ReadMark(f"rollup:{stream}")), 0)


def _sums(frame: "DataFrame", stream: str) -> list[Sum]:
    measures = [("topic", "topic", "'events'", "1"), ("topic", "topic", "'bytes'", "octet_length(payload)")]
    if stream == TASKS:
        measures.append(("queue", "step.queue", "step.kind", "1"))
        for latency in ("wait", "run"):
            value = f"step.{latency}_ms"
            bucket = f"IF({value} < 1, 0, 1 + floor({STEPS} * log2({value})))"
            measures.append(("queue", "step.queue", f"'{latency}_ms'", value))
            measures.append(("queue", "step.queue", f"concat('{latency}:', {bucket})", f"IF({value} IS NULL, NULL, 1)"))
    structs = ", ".join(
        f"named_struct('subject', '{subject}', 'name', {name}, 'measure', {measure}, 'amount', bigint({amount}))"
        for subject, name, measure, amount in measures
    )
    kinds = ", ".join(f"'{kind}'" for kind in KINDS)
    found = (
        frame.selectExpr(
            "*", f"from_json(payload, '{_STEP}') AS read", f"unix_millis(created_at) DIV {HOUR} * {HOUR} AS hour"
        )
        .selectExpr(
            "topic", "payload", "hour", f"IF(read.queue IS NULL OR read.kind NOT IN ({kinds}), NULL, read) AS step"
        )
        .selectExpr("hour", f"inline(array({structs}))")
        .where("name IS NOT NULL AND measure IS NOT NULL AND amount IS NOT NULL")
        .groupBy("subject", "name", "hour", "measure")
        .agg({"amount": "sum"})
    )
    return [Sum(*row) for row in found.collect()]

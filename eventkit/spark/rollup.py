"""Hourly sums of the activity of topics and queues: from events, archived or not, to rows of the database.

A run takes the events of a topic after the last one that is summed up, to the settled head, which is its
watermark: no transaction in progress can publish below it.  It adds their sums, each to the hour in which the event
was published, and moves the mark, in one transaction.  So a run that is killed has no effect, a repeated one adds
nothing twice, and no event is too late.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from ..kit import backend_of
from ..operations.bulk import AddSums, ReadLake, ReadMark, Sum
from ..operations.tables import ListTopics, ReadExtent
from ..protocols import Connection
from ..rollup import HOUR, KINDS, STEPS, noted
from .errors import is_sparks
from .needs import Need
from .views import ATTEMPTS, events, find_topic, overtaken

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS = "eventkit.tasks"
"""The topic with the history of tasks."""

_COLUMNS = frozenset({"offset", "payload", "created_at"})
_STEP = "queue STRING, kind STRING, wait_ms BIGINT, run_ms BIGINT"


class Progress(NamedTuple):
    """The result of a run for a topic: the number of new *events*, and the *offset* up to which all are summed up.

    Those up to *lost* were pruned, and not archived, before they were summed up; 0 if there are none.
    """

    topic: str
    events: int
    offset: int
    lost: int


def rollup(spark: "SparkSession", url: str, topics: Iterable[str] | None = None) -> Iterator[Progress]:
    """Sum up the events since the last run, in all topics or in *topics*, and yield the progress of each."""
    with closing(backend_of(url).connect(url, create=False)) as connection:
        known = connection.execute(ListTopics())
        chosen = known if topics is None else [find_topic(topic, known) for topic in topics]
        with noted(
            connection, "rollup", "all topics" if topics is None else ", ".join(chosen), "eventkit_rollup"
        ) as note:
            for topic in chosen:
                done = _advance(spark, connection, url, topic)
                note(done.events)
                yield done


def _advance(spark: "SparkSession", connection: Connection, url: str, topic: str) -> Progress:
    for attempt in range(ATTEMPTS):
        after = connection.execute(ReadMark(f"rollup:{topic}"))
        extent, lake = connection.execute(ReadExtent(topic)), connection.execute(ReadLake(topic))
        covered = lake.covered if lake else 0
        lost = extent.pruned_to if 0 < after < extent.pruned_to > covered else 0
        last = max(extent.head, covered)
        if last <= after:
            return Progress(topic, 0, after, 0)
        found = events(spark, connection, url, topic, Need(_COLUMNS, after, last))
        try:
            sums = _sums(found.where(f"offset > {after} AND offset <= {last}"), topic)
        except Exception as error:
            if not is_sparks(error) or not overtaken(error) or attempt == ATTEMPTS - 1:
                raise
            continue
        if connection.execute(AddSums(topic, after, last, sums)):
            return Progress(topic, sum(one.amount for one in sums if one.measure == "events"), last, lost)
    # Another process has summed up the same events first, each time.
    return Progress(topic, 0, connection.execute(ReadMark(f"rollup:{topic}")), 0)


def _sums(frame: "DataFrame", topic: str) -> list[Sum]:
    """Return the sums of events."""
    measures = [
        _measure("'topic'", "topic", "'events'", "1"),
        _measure("'topic'", "topic", "'bytes'", "octet_length(payload)"),
    ]
    if topic == TASKS:
        measures.append(_measure("'queue'", "step.queue", "step.kind", "1"))
        for latency in ("wait", "run"):
            value = f"step.{latency}_ms"
            bucket = f"IF({value} < 1, 0, 1 + floor({STEPS} * log2({value})))"
            measures.append(_measure("'queue'", "step.queue", f"'{latency}_ms'", value))
            measures.append(
                _measure("'queue'", "step.queue", f"concat('{latency}:', {bucket})", f"IF({value} IS NULL, NULL, 1)")
            )
    kinds = ", ".join(f"'{kind}'" for kind in KINDS)
    found = (
        frame.selectExpr(
            "*", f"from_json(payload, '{_STEP}') AS read", f"unix_millis(created_at) DIV {HOUR} * {HOUR} AS hour"
        )
        .selectExpr(
            "topic", "payload", "hour", f"IF(read.queue IS NULL OR read.kind NOT IN ({kinds}), NULL, read) AS step"
        )
        .selectExpr("hour", f"inline(array({', '.join(measures)}))")
        .where("name IS NOT NULL AND measure IS NOT NULL AND amount IS NOT NULL")
        .groupBy("subject", "name", "hour", "measure")
        .agg({"amount": "sum"})
    )
    return [Sum(*row) for row in found.collect()]


def _measure(subject: str, name: str, measure: str, amount: str) -> str:
    return (
        f"named_struct('subject', {subject}, 'name', {name}, 'measure', {measure}, 'amount', CAST({amount} AS BIGINT))"
    )

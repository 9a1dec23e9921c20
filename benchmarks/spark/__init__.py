"""Benchmarks of eventkit as a source and a sink of Spark, beside Spark's own for files and databases.

Everything runs in one session of two cores, with streams of the same events on either database.
"""

from collections.abc import Callable, Iterator

from ..report import Table
from ..settings import Settings
from . import archive, following, latency, query, reading, writing

GROUPS: dict[str, Callable[[Settings], Iterator[Table]]] = {
    "spark-reading": reading.measure,
    "spark-writing": writing.measure,
    "spark-following": following.measure,
    "spark-latency": latency.measure,
    "spark-archive": archive.measure,
    "spark-query": query.measure,
}

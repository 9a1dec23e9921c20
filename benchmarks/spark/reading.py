"""The rate of reading streams as tables, beside files that Spark itself reads, and the cost of old events."""

from collections.abc import Callable, Iterator
from time import perf_counter

from ..report import Table, milliseconds, ratio, thousands, verdict
from ..rounds import Spread
from ..settings import Settings
from .stage import EVENTS, Stage, drain, fill, staged
from .turns import compare

_BARS = {"SQLite": 0.55, "Postgres": 0.40}
_LAST = 1_000


def measure(settings: Settings) -> Iterator[Table]:
    """Measure reading a whole stream, and the end of streams of several lengths."""
    count = settings.count(EVENTS)
    with staged(settings, "spark-reading") as stage:
        for url in stage.urls.values():
            fill(url, "orders", count)
        yield _whole(stage, settings, count)
        yield _end(stage, settings, count)


def _whole(stage: Stage, settings: Settings, count: int) -> Table:
    table = Table(
        "Spark: reading a stream to a no-op sink",
        ("read from", "rows/s", "of Parquet (spread)", "bar", "reached"),
        note=f"{count:,} events with all their columns; *Parquet* are the same rows, as Spark wrote them. {stage.note}",
    )
    parquet = str(stage.folder / "orders.parquet")
    stage.read("SQLite", topic="orders").write.parquet(parquet)
    jobs: dict[str, Callable[[], object]] = {"Parquet": lambda: drain(stage.spark.read.parquet(parquet))}
    for database in stage.urls:
        jobs[database] = lambda database=database: drain(stage.read(database, topic="orders"))
    if stage.jdbc:
        divided = {"partitionColumn": "id", "lowerBound": "1", "upperBound": str(count), "numPartitions": "10"}
        options = {**stage.over_jdbc(), **divided, "dbtable": "eventkit.eventkit_event"}
        jobs["Postgres by JDBC"] = lambda: drain(stage.spark.read.format("jdbc").options(**options).load())
    result = compare(jobs, count, settings)
    for name in jobs:
        share = result.ratio(name, "Parquet")
        assert share is not None
        bar = _BARS.get(name)
        reached = ("–", "–") if bar is None else (f"≥ {bar:.2f}", verdict(share.median >= bar))
        table.add([name, thousands(result.rate(name)), ratio(share), *reached])
    return table


def _end(stage: Stage, settings: Settings, count: int) -> Table:
    table = Table(
        f"Spark: the last {_LAST:,} events",
        ("database", "events in the stream", "by startingOffsets", "by startingTimestamp"),
        note="The median of several queries, from `load()` to the last row. It should not grow with the stream.",
    )
    lengths = [count // 100, count // 10, count]
    for url in stage.urls.values():
        for length in lengths:
            fill(url, f"of {length}", length)
    for database in stage.urls:
        for length in lengths:
            topic = f"of {length}"
            [first, moment] = (
                stage.read(database, topic=topic)
                .selectExpr("offset", "unix_millis(created_at) AS moment")
                .orderBy("offset", ascending=False)
                .limit(_LAST)
                .agg({"offset": "min", "moment": "max"})
                .collect()[0]
            )
            row = [database, f"{length:,}"]
            for options in ({"startingOffsets": str(first)}, {"startingTimestamp": str(moment)}):
                times = []
                for _ in range(2 + settings.rounds):
                    begun = perf_counter()
                    drain(stage.read(database, topic=topic, **options))
                    times.append(perf_counter() - begun)
                row.append(milliseconds(Spread.of(times[2:]).median))
            table.add(row)
    return table

"""Streams read and written as tables, beside Spark's own files and connections, and the cost of old events."""

from collections.abc import Callable, Iterator
from itertools import count as numbers
from statistics import median

from ..databases import Settings
from ..report import Table, at_least, milliseconds, ratio, thousands
from ..rounds import seconds
from . import EVENTS, Stage, compare, drain

_READ = {"SQLite": 0.55, "Postgres": 0.40}
"""The required fractions of the rate of Parquet."""

_WRITTEN = {"SQLite": 280_000, "Postgres": 340_000}
"""The required rows a second."""

_LAST = 1_000


def measure_reading(settings: Settings, stage: Stage) -> Iterator[Table]:
    """Measure reading a whole stream, and the end of streams of several lengths."""
    count = settings.count(EVENTS)
    stage.fill("orders", count)
    yield _whole(stage, settings, count)
    yield _end(stage, settings, count)


def _whole(stage: Stage, settings: Settings, count: int) -> Table:
    table = Table(
        "Spark: reading a stream to a no-op sink",
        "read from | rows/s | of Parquet (spread) | bar | reached",
        note=f"{count:,} events with all their columns; *Parquet* are the same rows, as Spark wrote them.",
    )
    parquet = str(stage.folder / "read.parquet")
    stage.read("SQLite", topic="orders").write.parquet(parquet)
    jobs: dict[str, Callable[[], object]] = {"Parquet": lambda: drain(stage.spark.read.parquet(parquet))}
    for database in stage.urls:
        jobs[database] = lambda database=database: drain(stage.read(database, topic="orders"))
    if stage.jdbc:
        divided = {"partitionColumn": "id", "lowerBound": "1", "upperBound": str(count), "numPartitions": "10"}
        options = {**stage.over_jdbc(stage.urls["Postgres"]), **divided, "dbtable": "eventkit.eventkit_event"}
        jobs["Postgres by JDBC"] = lambda: drain(stage.spark.read.format("jdbc").options(**options).load())
    result = compare(jobs, count, settings)
    for name in jobs:
        share = result.ratio(name, "Parquet")
        bar = at_least(share and share.median, _READ.get(name), "{:.2f}".format)
        table.add(name, thousands(result.rate(name)), ratio(share), *bar)
    return table


def _end(stage: Stage, settings: Settings, count: int) -> Table:
    table = Table(
        f"Spark: the last {_LAST:,} events",
        "database | events in the stream | by startingOffsets | by startingTimestamp",
        note="The median of several queries, from `load()` to the last row. It should not grow with the stream.",
    )
    lengths = [count // 100, count // 10, count]
    for length in lengths:
        stage.fill(f"of {length}", length)
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
                times = [
                    seconds(lambda: drain(stage.read(database, topic=topic, **options)))  # noqa: B023
                    for _ in range(2 + settings.few_rounds)
                ]
                row.append(milliseconds(median(times[2:])))
            table.add(*row)
    return table


def measure_writing(settings: Settings, stage: Stage) -> Iterator[Table]:
    """Measure publishing, each row once, beside an append by JDBC, which repeats rows when retried."""
    count = settings.count(EVENTS)
    table = Table(
        "Spark: publishing exactly once",
        "written to | rows/s | bar | reached | of JDBC (spread)",
        note=f"{count:,} rows of a Parquet file in four parts. An append by JDBC that is retried writes "
        "some rows twice.",
    )
    stage.fill("orders", count)
    parquet = str(stage.folder / "written.parquet")
    stage.read("SQLite", topic="orders").select("key", "payload").coalesce(4).write.parquet(parquet)
    rows = stage.spark.read.parquet(parquet)
    topics, urls = numbers(), stage.new_urls()

    def publish(url: str) -> None:
        rows.write.format("eventkit").options(url=url, topic=f"t{next(topics)}").mode("append").save()

    jobs: dict[str, Callable[[], object]] = {name: lambda url=url: publish(url) for name, url in urls.items()}
    if stage.jdbc:
        options = {**stage.over_jdbc(urls["Postgres"]), "dbtable": "appended"}
        jobs["Postgres by JDBC"] = lambda: rows.write.format("jdbc").options(**options).mode("append").save()
    result = compare(jobs, count, settings)
    for name in jobs:
        rate, share = result.rate(name), result.ratio(name, "Postgres by JDBC")
        table.add(name, thousands(rate), *at_least(rate, _WRITTEN.get(name)), ratio(share))
    yield table

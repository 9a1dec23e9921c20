"""The rate at which Spark publishes, each row once, beside an append by JDBC, which repeats rows when retried."""

from collections.abc import Callable, Iterator
from itertools import count as numbers

from ..report import Table, ratio, thousands, verdict
from ..settings import Settings
from .stage import EVENTS, Stage, fill, staged
from .turns import compare

_BARS = {"SQLite": 280_000, "Postgres": 340_000}


def measure(settings: Settings) -> Iterator[Table]:
    """Measure publishing."""
    count = settings.count(EVENTS)
    with staged(settings, "spark-writing") as stage:
        fill(stage.urls["SQLite"], "orders", count)
        fill(stage.urls["Postgres"], "orders", 1)
        yield _publishing(stage, settings, count)


def _publishing(stage: Stage, settings: Settings, count: int) -> Table:
    table = Table(
        "Spark: publishing exactly once",
        ("written to", "rows/s", "bar", "reached", "of JDBC (spread)"),
        note=f"{count:,} rows of a Parquet file in four parts. An append by JDBC that is retried writes "
        f"some rows twice. {stage.note}",
    )
    parquet = str(stage.folder / "orders.parquet")
    stage.read("SQLite", topic="orders").select("key", "payload").coalesce(4).write.parquet(parquet)
    rows = stage.spark.read.parquet(parquet)
    topics = numbers()

    def publish(database: str) -> Callable[[], None]:
        options = {"url": stage.urls[database]}
        return lambda: rows.write.format("eventkit").options(**options, topic=f"t{next(topics)}").mode("append").save()

    jobs: dict[str, Callable[[], object]] = {database: publish(database) for database in stage.urls}
    if stage.jdbc:
        options = {**stage.over_jdbc(), "dbtable": "appended"}
        jobs["Postgres by JDBC"] = lambda: rows.write.format("jdbc").options(**options).mode("append").save()
    result = compare(jobs, count, settings)
    for name in jobs:
        rate, bar = result.rate(name), _BARS.get(name)
        assert rate is not None
        reached = ("–", "–") if bar is None else (f"≥ {bar:,}", verdict(rate >= bar))
        table.add([name, thousands(rate), *reached, ratio(result.ratio(name, "Postgres by JDBC"))])
    return table

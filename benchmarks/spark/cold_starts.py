"""Commands that start anew: archiving to Parquet, and SQL over topics, which a running session also answers."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count as numbers
from pathlib import Path
from statistics import median
from time import perf_counter

import eventkit

from ..databases import Settings
from ..report import Table, at_most, milliseconds, ratio, verdict
from ..rounds import seconds
from . import EVENTS, Stage, compare

_BAR = 1.35
"""The largest accepted time of an archive, as a multiple of that of Spark's file sink."""

_OURS = """
import sys
from eventkit import archive
url, folder = sys.argv[1:]
archive.archive(url, "orders", to=folder)
"""

_SPARKS = """
import sys
from eventkit.spark import session
url, folder = sys.argv[1:]
spark = session(master="local[2]", config={"spark.sql.shuffle.partitions": "2"})
stream = spark.readStream.format("eventkit").options(url=url, topic="orders", startingOffsets="earliest").load()
writer = stream.writeStream.format("parquet").option("compression", "zstd").option("path", folder + "/files")
writer.option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


def measure_archive(settings: Settings, stage: Stage) -> Iterator[Table]:
    """Measure archiving, each event once, beside Spark's own file sink."""
    count = settings.count(EVENTS)
    table = Table(
        "Archiving to Parquet, from a cold start",
        "from | eventkit archive | Spark's file sink | bar | reached | of the file sink (spread)",
        note=f"{count:,} events. Each run is a new process: eventkit writes files, "
        "compacts them and keeps a manifest; Spark writes a file for each part that it reads.",
    )
    stage.fill("orders", count)
    for database, url in stage.urls.items():
        result = compare(_jobs(url, stage.folder / f"archive of {database}"), count, settings)
        ours, sparks = result.rate("eventkit"), result.rate("Spark")
        assert ours is not None
        assert sparks is not None
        times = (f"{count / ours:.1f} s", f"{count / sparks:.1f} s")
        bar = (f"≤ {_BAR}", verdict(sparks / ours <= _BAR))
        table.add(database, *times, *bar, ratio(result.ratio("Spark", "eventkit")))
    yield table


def _jobs(url: str, folder: Path) -> dict[str, Callable[[], object]]:
    runs = numbers()

    def run(program: str) -> None:
        command = [sys.executable, "-c", program, url, str(folder / str(next(runs)))]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def archive() -> None:
        with eventkit.connect(url) as kit, kit.transaction() as tx:
            schema = "" if url.startswith("sqlite") else "eventkit."
            for name in ("lake", "lake_file", "consumer"):
                tx.execute(f"DELETE FROM {schema}eventkit_{name}")
        run(_OURS)

    return {"eventkit": archive, "Spark": lambda: run(_SPARKS)}


_SQL = "SELECT payload:to, count(*) FROM orders WHERE created_at > now() - INTERVAL 30 DAYS GROUP BY 1"
_COLD, _RUNNING = 6.5, 1.2
_LAST = 1_000


def measure_query(settings: Settings, stage: Stage) -> Iterator[Table]:
    """Measure cold and running sessions, and the last events of streams of several lengths."""
    count = settings.count(EVENTS)
    stage.fill("orders", count)
    yield _answers(stage, settings, count)
    yield _end(stage, settings, count)


def _answers(stage: Stage, settings: Settings, count: int) -> Table:
    table = Table(
        "Spark: SQL over live events",
        "database | asked of | median | bar | reached",
        note=f"`{_SQL}` over {count:,} events. *The first command ever* also stores Java's loaded classes for later; "
        "a running session beside it uses half of the machine.",
    )
    for database, url in stage.urls.items():
        environment = {**os.environ, "XDG_CACHE_HOME": str(stage.folder / f"cache of {database}")}
        first = _command(url, environment)
        kept = Path(environment["XDG_CACHE_HOME"], "eventkit")
        deadline = perf_counter() + 60
        while not list(kept.glob("*.jsa")) and perf_counter() < deadline:
            continue
        cold = median(_command(url, environment) for _ in range(1 if settings.quick else 3))
        warm = median([_answer(stage, url, _SQL) for _ in range(3 if settings.quick else 9)][2:])
        table.add(database, "the first command ever", milliseconds(first), "–", "–")
        table.add(database, "a command", milliseconds(cold), *at_most(cold, _COLD, milliseconds))
        table.add(database, "a running session", milliseconds(warm), *at_most(warm, _RUNNING, milliseconds))
    return table


def _end(stage: Stage, settings: Settings, count: int) -> Table:
    from eventkit.spark import query

    table = Table(
        f"Spark: SQL over the last {_LAST:,} events",
        "database | events in the stream | WHERE offset > | WHERE created_at >",
        note="The median of several queries of a running session. It should not grow with the stream.",
    )
    for length in (count // 100, count // 10, count):
        stage.fill(f"of {length}", length)
        for database, url in stage.urls.items():
            begin = f"SELECT * FROM `of {length}` ORDER BY offset DESC LIMIT {_LAST}"
            [(first, moment)] = query(
                stage.spark, url, f"SELECT min(offset), cast(max(created_at) AS STRING) FROM ({begin})"
            ).collect()
            row = [database, f"{length:,}"]
            for condition in (f"offset >= {first}", f"created_at >= TIMESTAMP '{moment}'"):
                sql = f"SELECT count(payload:to::string) FROM `of {length}` WHERE {condition}"
                times = [_answer(stage, url, sql) for _ in range(2 + settings.few_rounds)]
                row.append(milliseconds(median(times[2:])))
            table.add(*row)
    return table


def _command(url: str, environment: dict[str, str]) -> float:
    command = [sys.executable, "-m", "eventkit.cli", "query", _SQL, "--output-format", "csv", "--url", url]
    return seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment))


def _answer(stage: Stage, url: str, sql: str) -> float:
    from eventkit.spark import query

    return seconds(lambda: query(stage.spark, url, sql).toArrow())

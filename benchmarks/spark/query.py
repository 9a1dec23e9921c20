"""The time of SQL over topics: for a command that starts Spark, in a running session, and at a stream's end."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

from eventkit.spark import query

from ..report import Table, milliseconds, verdict
from ..settings import Settings
from .stage import EVENTS, Stage, fill, staged

_SQL = "SELECT payload:to, count(*) FROM orders WHERE created_at > now() - INTERVAL 30 DAYS GROUP BY 1"
_COLD, _RUNNING = 6.5, 1.2
_LAST = 1_000


def measure(settings: Settings) -> Iterator[Table]:
    """Measure cold and running sessions, and the last events of streams of several lengths."""
    count = settings.count(EVENTS)
    with staged(settings, "spark-query") as stage:
        for url in stage.urls.values():
            fill(url, "orders", count)
        yield _answers(stage, settings, count)
        yield _end(stage, settings, count)


def _answers(stage: Stage, settings: Settings, count: int) -> Table:
    table = Table(
        "Spark: SQL over live events",
        ("database", "asked of", "median", "bar", "reached"),
        note=f"`{_SQL}` over {count:,} events. *The first command ever* also stores Java's loaded classes for later; "
        f"a running session beside it uses half of the machine. {stage.note}",
    )
    for database, url in stage.urls.items():
        environment = {**os.environ, "XDG_CACHE_HOME": str(stage.folder / f"cache of {database}")}
        first = _command(url, environment)
        kept = Path(environment["XDG_CACHE_HOME"], "eventkit")
        deadline = perf_counter() + 60
        while not list(kept.glob("*.jsa")) and perf_counter() < deadline:
            continue
        cold = median(_command(url, environment) for _ in range(1 if settings.quick else 5))
        running = [_answer(stage, url, _SQL) for _ in range(3 if settings.quick else 12)]
        table.add([database, "the first command ever", milliseconds(first), "–", "–"])
        table.add([database, "a command", milliseconds(cold), f"≤ {milliseconds(_COLD)}", verdict(cold <= _COLD)])
        warm = median(running[2:])
        bar = (f"≤ {milliseconds(_RUNNING)}", verdict(warm <= _RUNNING))
        table.add([database, "a running session", milliseconds(warm), *bar])
    return table


def _end(stage: Stage, settings: Settings, count: int) -> Table:
    table = Table(
        f"Spark: SQL over the last {_LAST:,} events",
        ("database", "events in the stream", "WHERE offset >", "WHERE created_at >"),
        note="The median of several queries of a running session. It should not grow with the stream.",
    )
    lengths = [count // 100, count // 10, count]
    for database, url in stage.urls.items():
        for length in lengths:
            fill(url, f"of {length}", length)
            begin = f"SELECT * FROM `of {length}` ORDER BY offset DESC LIMIT {_LAST}"
            [(first, moment)] = query(
                stage.spark, url, f"SELECT min(offset), cast(max(created_at) AS STRING) FROM ({begin})"
            ).collect()
            row = [database, f"{length:,}"]
            for condition in (f"offset >= {first}", f"created_at >= TIMESTAMP '{moment}'"):
                sql = f"SELECT count(payload:to::string) FROM `of {length}` WHERE {condition}"
                times = [_answer(stage, url, sql) for _ in range(2 + settings.rounds)]
                row.append(milliseconds(median(times[2:])))
            table.add(row)
    return table


def _command(url: str, environment: dict[str, str]) -> float:
    begun = perf_counter()
    command = [sys.executable, "-m", "eventkit.cli", "query", _SQL, "--output-format", "csv", "--url", url]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return perf_counter() - begun


def _answer(stage: Stage, url: str, sql: str) -> float:
    begun = perf_counter()
    query(stage.spark, url, sql).toArrow()
    return perf_counter() - begun

"""``python -m benchmarks [--quick] [--only GROUP]… [--output FILE] [--folder FOLDER]``"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from . import (
    commands,
    connections,
    consumer_groups,
    contention,
    large_tables,
    limits,
    machine,
    old_transactions,
    service,
    sessions,
    task_groups,
    throughput,
    waiting,
    waking,
    workers,
)
from .databases import EVERY_STATEMENT, Postgres, Settings, postgres, sqlite
from .report import Table
from .spark import batches, cold_starts, following, stage


class Group(NamedTuple):
    """The function that measures, and the database, server or Spark session that it gets."""

    measure: Callable[[Settings, Any], Iterator[Table]]
    place: Callable[[Settings], AbstractContextManager[Any]]


_logging = partial(postgres, **EVERY_STATEMENT)
GROUPS = {
    "throughput": Group(throughput.measure, sqlite),
    "claims": Group(large_tables.measure_claims, sqlite),
    "waking": Group(waking.measure, sqlite),
    "idling": Group(waiting.measure, sqlite),
    "sharing": Group(contention.measure_fsyncs, sqlite),
    "locking": Group(contention.measure_lock, sqlite),
    "writers": Group(contention.measure_shares, sqlite),
    "schedules": Group(large_tables.measure_ticks, sqlite),
    "memory": Group(waiting.measure_memory, sqlite),
    "sessions": Group(sessions.measure, sqlite),
    "limits": Group(limits.measure, sqlite),
    "task-groups": Group(task_groups.measure, sqlite),
    "consumer-groups": Group(consumer_groups.measure, sqlite),
    "overview": Group(large_tables.measure_overview, sqlite),
    "dashboard": Group(large_tables.measure_pages, sqlite),
    "commands": Group(commands.measure, sqlite),
    "working": Group(workers.measure, sqlite),
    "http": Group(service.measure, sqlite),
    "postgres-throughput": Group(throughput.measure, postgres),
    "postgres-connections": Group(connections.measure, postgres),
    "postgres-waking": Group(waking.measure, postgres),
    "postgres-pinned": Group(old_transactions.measure_rates, postgres),
    "postgres-bloat": Group(old_transactions.measure_sizes, postgres),
    "postgres-idling": Group(waiting.measure_server, _logging),
    "postgres-schedules": Group(large_tables.measure_ticks, postgres),
    "postgres-sessions": Group(sessions.measure, postgres),
    "postgres-limits": Group(limits.measure, postgres),
    "postgres-task-groups": Group(task_groups.measure, postgres),
    "postgres-consumer-groups": Group(consumer_groups.measure, postgres),
    "postgres-overview": Group(large_tables.measure_overview, postgres),
    "postgres-dashboard": Group(large_tables.measure_pages, postgres),
    "postgres-commands": Group(commands.measure, postgres),
    "postgres-working": Group(workers.measure, postgres),
    "postgres-http": Group(service.measure, postgres),
    "spark-reading": Group(batches.measure_reading, stage),
    "spark-writing": Group(batches.measure_writing, stage),
    "spark-following": Group(following.measure, stage),
    "spark-latency": Group(following.measure_latency, stage),
    "spark-archive": Group(cold_starts.measure_archive, stage),
    "spark-query": Group(cold_starts.measure_query, stage),
}
RESULTS = Path(__file__).with_name("RESULTS.md")


def main() -> None:
    """Run the benchmarks, and write the report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure eventkit against its bars.")
    parser.add_argument("--quick", action="store_true", help="only check that everything runs; the numbers mean little")
    parser.add_argument("--only", action="append", choices=GROUPS, metavar="GROUP", help=" · ".join(GROUPS))
    parser.add_argument("--output", type=Path, help="the file to write; default RESULTS.md, after a whole run")
    parser.add_argument("--folder", help="the folder of the databases, for another file system")
    options = parser.parse_args()
    output = options.output or (None if options.quick or options.only else RESULTS)
    with tempfile.TemporaryDirectory(prefix="eventkit-benchmarks-", dir=options.folder) as root:
        settings = Settings(root, options.quick)
        parts = ["# Results\n", _introduction(settings), machine.describe(root) + "\n"]
        print(parts[-1], flush=True)
        for table in measure(settings, options.only or list(GROUPS)):
            parts.append(table.markdown())
            print(parts[-1], flush=True)
        parts.append(machine.describe_load() + "\n")
        print(parts[-1], flush=True)
    if output is not None:
        output.write_text("\n".join(parts), encoding="utf-8")


def measure(settings: Settings, chosen: list[str]) -> Iterator[Table]:
    """Yield the tables of groups; those of Spark share a session."""
    with ExitStack() as shared:
        session = None
        for name in chosen:
            print(f"… {name}", file=sys.stderr, flush=True)
            begun = perf_counter()
            group = GROUPS[name]
            if group.place is stage:
                session = session or shared.enter_context(stage(settings))
                yield from _described(group.measure(settings, session), session)
            else:
                with group.place(settings) as place:
                    yield from _described(group.measure(settings, place), place)
            print(f"  {perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)


def _described(tables: Iterator[Table], place: Any) -> Iterator[Table]:
    """Yield *tables* with the description of a server, and say in the title which database was measured."""
    for table in tables:
        if isinstance(place, Postgres) and not table.title.startswith("Postgres"):
            table.title = f"Postgres: {table.title}"
        table.note = f"{table.note} {place.note}".strip()
        yield table


def _introduction(settings: Settings) -> str:
    if settings.quick:
        return "A smoke run: it shows that everything runs; its numbers mean nothing.\n"
    return (
        "Written by `python -m benchmarks`. Contestants take turns, each in a process of its own, in "
        f"{settings.rounds} rounds, or {settings.few_rounds} of slow work, after one to warm up; a ratio is computed "
        "within a round, and shown as the median with minimum and maximum. SQLite runs at `durability=normal` unless "
        "stated otherwise.\n"
    )


if __name__ == "__main__":
    main()

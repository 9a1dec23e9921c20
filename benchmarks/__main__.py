"""``python -m benchmarks [--quick] [--only GROUP]… [--output FILE] [--folder FOLDER]``"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from . import (
    commands,
    crowd,
    dashboard,
    idling,
    limits,
    locking,
    machine,
    memory,
    overview,
    schedules,
    service,
    sessions,
    sharing,
    throughput,
    waking,
    working,
    writers,
)
from .postgres import GROUPS as POSTGRES_GROUPS
from .report import Table
from .settings import Settings
from .spark import GROUPS as SPARK_GROUPS

GROUPS: dict[str, Callable[[Settings], Iterator[Table]]] = {
    "throughput": throughput.measure,
    "crowd": crowd.measure,
    "waking": waking.measure,
    "idling": idling.measure,
    "sharing": sharing.measure,
    "locking": locking.measure,
    "writers": writers.measure,
    "schedules": schedules.measure,
    "memory": memory.measure,
    "sessions": sessions.measure,
    "limits": limits.measure,
    "overview": overview.measure,
    "dashboard": dashboard.measure,
    "commands": commands.measure,
    "working": working.measure,
    "http": service.measure,
    **POSTGRES_GROUPS,
    **SPARK_GROUPS,
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
    chosen = options.only or list(GROUPS)
    output = options.output or (None if options.quick or options.only else RESULTS)
    with tempfile.TemporaryDirectory(prefix="eventkit-benchmarks-", dir=options.folder) as root:
        settings = Settings(root, options.quick)
        parts = ["# Results\n", _introduction(settings), machine.describe(root) + "\n"]
        print(parts[-1], flush=True)
        for name in chosen:
            print(f"… {name}", file=sys.stderr, flush=True)
            for table in GROUPS[name](settings):
                parts.append(table.markdown())
                print(parts[-1], flush=True)
        parts.append(machine.describe_load() + "\n")
        print(parts[-1], flush=True)
    if output is not None:
        output.write_text("\n".join(parts), encoding="utf-8")


def _introduction(settings: Settings) -> str:
    if settings.quick:
        return "A smoke run: it shows that everything runs; its numbers mean nothing.\n"
    return (
        "Written by `python -m benchmarks`. Contestants take turns, each in a process of its own, "
        f"{settings.rounds} rounds after one to warm up; a ratio is computed within a round, and shown as the "
        "median with minimum and maximum. SQLite runs at `durability=normal` unless stated otherwise.\n"
    )


if __name__ == "__main__":
    main()

"""The command line: its start, and the import of a file of a million lines."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import eventkit

from .databases import Database, Settings
from .processes import status
from .report import NO_BAR, Table, at_least, at_most, megabytes, milliseconds, thousands
from .rounds import seconds

_EVENTKIT = (sys.executable, "-m", "eventkit.cli")
_LINES = {"SQLite": 60_000, "Postgres": 40_000}
"""The required lines a second."""

_CONSTANT = 1.1
"""The largest accepted ratio to the memory for a tenth of the file."""


def measure(settings: Settings, database: Database) -> Iterator[Table]:
    """Measure the help, and files of two lengths that the command enqueues and publishes."""
    if database.name == "SQLite":
        yield _help()
    yield _files(settings, database)


def _help() -> Table:
    table = Table("Commands: the help", "command | best of five | bar | reached")
    for words in (("--help",), ("queue", "--help"), ("task", "enqueue", "--help")):
        best = min(
            seconds(lambda: subprocess.run([*_EVENTKIT, *words], check=True, stdout=subprocess.DEVNULL))  # noqa: B023
            for _ in range(5)
        )
        # A subcommand also loads the code for its options; the bar is for the help, which loads none.
        bar = at_most(best, 0.3 if words == ("--help",) else None, milliseconds)
        table.add(f"eventkit {' '.join(words)}", milliseconds(best), *bar)
    return table


def _files(settings: Settings, database: Database) -> Table:
    url, folder = database.new(), settings.folder("commands")
    eventkit.connect(url).close()
    most = settings.count(500_000, least=4_000)
    table = Table(
        "Commands: files of tasks and events",
        "command | lines | lines/s | bar | reached | memory at most | bar for it | kept",
    )
    for words in (("task", "enqueue", "jobs"), ("stream", "publish", "orders")):
        allowed = None
        for lines in (settings.count(50_000, least=2_000), most):
            file = Path(folder, f"{lines}.ndjson")
            if not file.exists():
                with file.open("w", encoding="utf-8") as stream:
                    stream.writelines(
                        json.dumps({"to": f"ann{n}@example.com", "order": n}) + "\n" for n in range(lines)
                    )
            rate, size = _fed(words, file, url)
            bar = at_least(rate, _LINES[database.name]) if lines == most else NO_BAR
            kept = at_most(size, allowed, megabytes)
            table.add(f"eventkit {' '.join(words)} --file", f"{lines:,}", thousands(rate), *bar, megabytes(size), *kept)
            allowed = _CONSTANT * size
    return table


def _fed(words: tuple[str, ...], file: Path, url: str) -> tuple[float, float]:
    """Return the lines a second, including the start of the process, and its maximum size in megabytes."""
    begun = perf_counter()
    process = subprocess.Popen(
        [*_EVENTKIT, *words, "--file", str(file), "--url", url, "--json"], stdout=subprocess.PIPE
    )
    greatest = 0.0
    while process.poll() is None:
        # The maximum that `wait4` returns includes the parent's size at the fork.
        greatest = max(greatest, status(process.pid, "VmHWM") / 1024)
        time.sleep(0.02)
    took = perf_counter() - begun
    said, _ = process.communicate()
    if process.returncode:
        raise AssertionError(f"eventkit {words} ended with {process.returncode}")
    return json.loads(said)["number"] / took, greatest

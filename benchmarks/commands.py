"""The command line: its start, and the import of a file of a million lines."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import eventkit

from .report import Table, milliseconds, verdict
from .settings import Settings

_EVENTKIT = (sys.executable, "-m", "eventkit.cli")
_HELP = 0.3
_LINES = 60_000
_CONSTANT = 1.1
"""The largest accepted ratio to the memory for a tenth of the file."""


def measure(settings: Settings) -> Iterator[Table]:
    """Measure the help, and a file into a file."""
    yield _help(settings)
    folder = settings.folder("commands")
    yield files(settings, "", f"sqlite:///{folder}/kit.db", folder, _LINES)


def _help(settings: Settings) -> Table:
    table = Table("Commands: the help", ("command", "best of five", "bar", "reached"))
    for words in (("--help",), ("queue", "--help"), ("message", "enqueue", "--help")):
        times = []
        for _ in range(5):
            begun = perf_counter()
            subprocess.run([*_EVENTKIT, *words], check=True, stdout=subprocess.DEVNULL)
            times.append(perf_counter() - begun)
        best = min(times)
        named = f"eventkit {' '.join(words)}"
        # A subcommand also loads the code for its options; the bar is for the help, which loads none.
        bar = (f"≤ {milliseconds(_HELP)}", verdict(best <= _HELP)) if words == ("--help",) else ("–", "–")
        table.add([named, milliseconds(best), *bar])
    return table


def files(settings: Settings, title: str, url: str, folder: str, bar: int) -> Table:
    """Return a table of files of two lengths that the command enqueues and publishes."""
    eventkit.connect(url).close()
    most = settings.count(1_000_000, least=4_000)
    table = Table(
        f"{title}Commands: files of tasks and events".strip(),
        ("command", "lines", "lines/s", "bar", "reached", "memory at most", "bar for it", "kept"),
    )
    for words in (("message", "enqueue", "jobs"), ("stream", "publish", "orders")):
        allowed = None
        for lines in (settings.count(100_000, least=2_000), most):
            file = Path(folder, f"{lines}.ndjson")
            if not file.exists():
                with file.open("w", encoding="utf-8") as stream:
                    stream.writelines(
                        json.dumps({"to": f"ann{n}@example.com", "order": n}) + "\n" for n in range(lines)
                    )
            rate, megabytes = _fed(words, file, url)
            table.add(
                [
                    f"eventkit {' '.join(words)} --file",
                    f"{lines:,}",
                    f"{rate:,.0f}",
                    f"≥ {bar:,}" if lines == most else "–",
                    verdict(rate >= bar) if lines == most else "–",
                    f"{megabytes:.0f} MB",
                    "–" if allowed is None else f"≤ {allowed:.0f} MB",
                    "–" if allowed is None else verdict(megabytes <= allowed),
                ]
            )
            allowed = _CONSTANT * megabytes
    return table


def _fed(words: tuple[str, ...], file: Path, url: str) -> tuple[float, float]:
    """Return the lines a second, including the start of the process, and its maximum size in megabytes."""
    begun = perf_counter()
    process = subprocess.Popen(
        [*_EVENTKIT, *words, "--file", str(file), "--url", url, "--json"], stdout=subprocess.PIPE
    )
    greatest = 0.0
    while process.poll() is None:
        greatest = _greatest(process.pid) or greatest
        time.sleep(0.02)
    took = perf_counter() - begun
    said, _ = process.communicate()
    if process.returncode:
        raise AssertionError(f"eventkit {words} ended with {process.returncode}")
    return json.loads(said)["number"] / took, greatest


def _greatest(pid: int) -> float:
    """Return the maximum megabytes of a process so far; those of `wait4` include its parent's at the fork."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("utf-8")
    except OSError:
        return 0.0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0

"""Break the code on purpose and see whether the tests notice: ``python tests/mutants/mutation.py [--rest] [ID …]``.

Each mutant of ``mutants.toml`` is applied to a copy of the repository, where the tests that are named for it run until
one fails.  With ``--rest``, a mutant that survives them runs against all other tests that are not slow.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
LIST = Path(__file__).with_name("mutants.toml")
COPIED = ("eventkit", "backends", "migrations", "tests", "docs", "benchmarks", ".ci")
HANGS = 900
"""Seconds after which a run counts as a failed one, because a mutant may wait for ever."""


@dataclass(frozen=True)
class Mutant:
    """One change, its meaning, and the tests that must notice it."""

    id: str
    operator: str
    file: str
    old: str
    new: str
    meaning: str
    tests: list[str] = field(default_factory=list)
    which: int = 1
    survives: str = ""
    """The reason why no test notices it, if none does."""

    def applied(self, source: str) -> str:
        """Return the source with the change; raise `LookupError` if the text is not there."""
        begin = -1
        text = f"\n{source}"
        for _ in range(self.which):
            begin = text.find(f"\n{self.old}\n", begin + 1)
            if begin < 0:
                raise LookupError(f"{self.id}: {self.file} does not have the text {self.old!r}, {self.which} times")
        return text[1 : begin + 1] + self.new + text[begin + 1 + len(self.old) :]


def load() -> list[Mutant]:
    """Return the recorded mutants."""
    return [Mutant(**entry) for entry in tomllib.loads(LIST.read_text("utf-8"))["mutant"]]


def failure(mutant: Mutant, tests: list[str]) -> str:
    """Run *tests* on a copy of the repository with the mutant; return the first failure, or nothing if all pass."""
    with tempfile.TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder)
        for name in COPIED:
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for file in ROOT.iterdir():
            if file.is_file():
                shutil.copy(file, copy)
        target = copy / mutant.file
        target.write_text(mutant.applied(target.read_text("utf-8")), "utf-8")
        path = os.pathsep.join(str(copy / name) for name in ("", "backends", "migrations"))
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", *tests]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with subprocess.Popen(command, cwd=copy, env=environment, process_group=0, **pipes) as run:
            try:
                output, _ = run.communicate(timeout=HANGS)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
                return f"not ended after {HANGS} s"
        if run.returncode == 0:
            return ""
        failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
        if run.returncode == 5:
            raise LookupError(f"{mutant.id}: no such test: {tests}")
        return failed[0] if failed else output.strip().splitlines()[-1]


def main() -> None:
    """Run the mutants, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*", metavar="ID", help="an id, or the beginning of several; all without one")
    parser.add_argument("--rest", action="store_true", help="run what survives its own tests against all others")
    parser.add_argument(
        "--tests",
        nargs="+",
        metavar="TEST",
        help="run these instead of the tests that are named; other options are pytest's",
    )
    options, passed_on = parser.parse_known_args()
    chosen = [one for one in load() if not options.ids or one.id.startswith(tuple(options.ids))]
    killed = 0
    for mutant in chosen:
        began = time.monotonic()
        tests = options.tests or mutant.tests
        found = failure(mutant, [*tests, *passed_on]) if tests else ""
        if not found and options.rest:
            found = failure(mutant, [])
        killed += bool(found)
        print(f"{mutant.id}  {time.monotonic() - began:4.0f} s  {found or 'SURVIVED'}", flush=True)
    print(f"{killed} of {len(chosen)} killed")


if __name__ == "__main__":
    main()

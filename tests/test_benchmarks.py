"""The benchmarks run, and their reference does the same work as the kit."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# The benchmarks are not part of the distribution.
sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.__main__ import GROUPS as ALL
from benchmarks.bare_sqlite import Bare
from benchmarks.kits import Kit

ROOT = Path(__file__).parent.parent
GROUPS = [group for group in ALL if not group.startswith(("postgres", "spark"))]
"""The groups on SQLite."""


@pytest.mark.parametrize(
    "groups", [["throughput", "waking", "memory"], pytest.param(GROUPS, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_a_quick_run_writes_a_table_of_every_group(groups: list[str], tmp_path: Path) -> None:
    """`python -m benchmarks --quick` measures every group and writes the results to ``--output``."""
    output = tmp_path / "results.md"
    only = [option for group in groups for option in ("--only", group)]
    command = [sys.executable, "-m", "benchmarks", "--quick", "--folder", str(tmp_path), "--output", str(output)]
    run = subprocess.run([*command, *only], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert [line.removeprefix("… ") for line in run.stderr.splitlines() if line.startswith("… ")] == groups
    sections = output.read_text("utf-8").split("\n## ")[1:]
    assert len(sections) >= len(groups)
    for section in sections:
        rows = [line for line in section.splitlines() if line.startswith("|")][2:]
        assert rows, section
        assert str(tmp_path) not in section


def test_one_group_alone_leaves_the_results_alone(tmp_path: Path) -> None:
    """Without ``--output``, a run of some groups only prints them: RESULTS.md is always of one whole run."""
    results = ROOT / "benchmarks" / "RESULTS.md"
    before = results.read_bytes() if results.exists() else None
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", "memory", "--folder", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert "## Memory" in run.stdout
    assert (results.read_bytes() if results.exists() else None) == before


@pytest.mark.parametrize(
    ("work", "arguments"),
    [
        ("enqueue", (3,)),
        ("enqueue_many", (6, 3)),
        ("claim", (3,)),
        ("claim_many", (6, 3)),
        ("publish", (3,)),
        ("publish_many", (6, 3)),
        ("read", (1000,)),
    ],
)
def test_bare_executes_what_the_kit_executes(work: str, arguments: tuple[int, ...], tmp_path: Path) -> None:
    """The reference runs the statements of the kit and no others, apart from transaction control."""
    kit, bare = Kit(f"sqlite:///{tmp_path}/kit.db"), Bare(f"sqlite:///{tmp_path}/bare.db")
    for contestant in (kit, bare):
        contestant.fill(10)
        contestant.time("publish_many", 1000, 100)
    by_kit, by_bare = _executed(kit, work, arguments), _executed(bare, work, arguments)
    kit.close()
    bare.close()
    assert by_bare == by_kit
    assert by_kit


def _executed(contestant: Any, work: str, arguments: tuple[int, ...]) -> list[str]:
    """Return the statements that the work executed, without transaction control."""
    executed: list[str] = []

    def note(cursor: Any, sql: str, parameters: Any) -> bool:
        if not sql.startswith(("BEGIN", "COMMIT", "PRAGMA")):
            executed.append(sql)
        return True

    if isinstance(contestant, Kit):
        connection: Any = contestant.kit._connection
        contestant.read(1000)  # A reader must be attached.
        drivers = [connection._writer.connection, *connection._readers._spares]
    else:
        drivers = [contestant._connection]
    for driver in drivers:
        driver.exec_trace = note
    contestant.time(work, *arguments)
    return executed

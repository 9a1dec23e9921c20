"""The benchmarks run."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
GROUPS = ["throughput", "crowd", "waking", "idling", "sharing", "locking", "memory"]


def test_a_quick_run_writes_a_table_of_every_group(tmp_path: Path) -> None:
    """`python -m benchmarks --quick` measures something in every group and writes it where it is told to."""
    output = tmp_path / "results.md"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--folder", str(tmp_path), "--output", str(output)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert [line.removeprefix("… ") for line in run.stderr.splitlines() if line.startswith("… ")] == GROUPS
    sections = output.read_text("utf-8").split("\n## ")[1:]
    assert len(sections) >= len(GROUPS)
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

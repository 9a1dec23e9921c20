"""The benchmarks on Postgres run, with Spark as well, and their reference does the same work as the kit."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

# The benchmarks are not part of the distribution.
sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.__main__ import GROUPS
from benchmarks.bare_postgres import Bare
from benchmarks.kits import Kit

ROOT = Path(__file__).parent.parent
QUICK = "postgres-schedules"
OTHERS = [group for group in GROUPS if group.startswith(("postgres", "spark")) and group != QUICK]


@pytest.mark.parametrize("group", [QUICK, *(pytest.param(group, marks=pytest.mark.slow) for group in OTHERS)])
def test_a_quick_run_of_a_group_writes_tables(group: str, tmp_path: Path) -> None:
    """`python -m benchmarks --quick --only` measures the group on a server of its own, and writes the results."""
    output = tmp_path / "results.md"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", group, "--output", str(output)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert run.returncode == 0, run.stderr
    [_, *sections] = output.read_text("utf-8").split("\n## ")
    assert sections
    for section in sections:
        rows = [line for line in section.splitlines() if line.startswith("|")][2:]
        assert rows, section


@pytest.mark.parametrize(
    ("work", "arguments"),
    [
        ("enqueue", (3,)),
        ("enqueue_many", (6, 3)),
        ("claim_many", (6, 3)),
        ("publish", (3,)),
        ("publish_many", (6, 3)),
    ],
)
def test_bare_leaves_what_the_kit_leaves(work: str, arguments: tuple[int, ...], postgres: str) -> None:
    """The reference writes to the same tables, and the same work leaves the same rows."""
    left = []
    for contestant in (Kit, Bare):
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute("DROP SCHEMA IF EXISTS eventkit CASCADE")
        party: Any = contestant(postgres)
        party.fill(10)
        party.time(work, *arguments)
        party.close()
        with psycopg.connect(postgres, autocommit=True) as connection:
            tasks = "SELECT id, queue, state, priority, attempt, payload::text FROM eventkit.eventkit_task ORDER BY id"
            events = "SELECT id, topic, key, payload::text FROM eventkit.eventkit_event ORDER BY id"
            left.append((connection.execute(tasks).fetchall(), connection.execute(events).fetchall()))
            connection.execute("DROP SCHEMA eventkit CASCADE")
    assert left[0] == left[1]
    assert left[0][0]

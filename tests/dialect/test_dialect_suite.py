"""SQLAlchemy's own suite for dialects."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parent / "suite"


def start(driver: str, directory: Path) -> subprocess.Popen[str]:
    (directory := directory / driver).mkdir()
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "pytest", "-q", "-c", SUITE / "setup.cfg", SUITE / "suite.py"),
            *("--dburi", f"sqlite+{driver}:///suite.db"),
        ],
        cwd=directory,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST")},
        stdout=subprocess.PIPE,
        text=True,
    )


def counts(run: subprocess.Popen[str]) -> dict[str, int]:
    output = run.communicate()[0]
    assert run.returncode == 0, output[-3000:]
    return {result: int(count) for count, result in re.findall(r"(\d+) (passed|skipped)", output.splitlines()[-1])}


@pytest.mark.parametrize("driver", ["apsw", pytest.param("apsw_async", marks=pytest.mark.slow)])
def test_sqlalchemys_suite_passes(tmp_path, driver):
    """No test of SQLAlchemy's dialect suite fails."""
    assert counts(start(driver, tmp_path))["passed"] > 1000


@pytest.mark.slow
@pytest.mark.parametrize(("ours", "theirs"), [("apsw", "pysqlite"), ("apsw_async", "aiosqlite")])
def test_sqlalchemys_suite_passes_as_with_its_own_driver(tmp_path, ours, theirs):
    """As many tests of the suite pass and are skipped as with SQLAlchemy's own driver."""
    runs = [start(driver, tmp_path) for driver in (ours, theirs)]
    assert counts(runs[0]) == counts(runs[1])

"""SQLAlchemy's own suite for dialects."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parent / "suite"


@pytest.mark.slow
def test_sqlalchemys_suite_passes_as_with_its_own_driver(tmp_path):
    """As many tests of SQLAlchemy's dialect suite pass as with `sqlite3`, and none fails."""
    runs = []
    for name in ("apsw", "pysqlite"):
        directory = tmp_path / name
        directory.mkdir()
        command = [sys.executable, "-m", "pytest", "-q", "-c", SUITE / "setup.cfg", SUITE / "suite.py"]
        runs.append(
            subprocess.Popen(
                [*command, "--dburi", f"sqlite+{name}:///suite.db"],
                cwd=directory,
                env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST")},
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    outputs = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], "".join(output[-3000:] for output in outputs)
    ours, theirs = [re.findall(r"(\d+) (passed|skipped)", output.splitlines()[-1]) for output in outputs]
    assert ours == theirs
    assert int(ours[0][0]) > 1000

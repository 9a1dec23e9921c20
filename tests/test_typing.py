"""The types of the public API, as mypy and pyright see them.

``tests/typing/api.py`` states them; each checker has to agree, in its strict mode, and to complain where the
file says that it should.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
API = "tests/typing/api.py"


def check(*command: str) -> None:
    """Run a checker from the root of the project; what it found is the failure."""
    ran = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_mypy_agrees(tmp_path: Path) -> None:
    """Every call has the type that it should have, and no ``type: ignore`` is idle."""
    check("mypy", "--strict", "--warn-unused-ignores", f"--cache-dir={tmp_path}", API)


def test_pyright_agrees(tmp_path: Path) -> None:
    """The same, to another eye."""
    check("pyright", "--pythonpath", sys.executable, API)


def test_both_checkers_notice_a_wrong_type(tmp_path: Path) -> None:
    """The two tests above fail when a type is not what the file says."""
    wrong = (ROOT / API).read_text("utf-8").replace("list[Event[Order]]", "list[Event[Email]]")
    (tmp_path / "api.py").write_text(wrong)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for command in (
        ("mypy", "--strict", f"--cache-dir={tmp_path}/cache", f"{tmp_path}/api.py"),
        ("pyright", "--pythonpath", sys.executable, f"{tmp_path}/api.py"),
    ):
        with pytest.raises(AssertionError, match="assert.[Tt]ype"):
            check(*command)

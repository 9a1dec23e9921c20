"""The types of the public API, as mypy and pyright see them.

The modules in ``tests/typing`` state them; each checker must accept them in its strict mode, and report the errors that
they mark.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
API = "tests/typing"


def check(*command: str, root: Path = ROOT) -> None:
    """Run a checker from the root of the project; fail with its output."""
    ran = subprocess.run([sys.executable, "-m", *command], cwd=root, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_mypy_agrees(tmp_path: Path) -> None:
    """Every call has the stated type, and no ``type: ignore`` is unused."""
    check("mypy", "--strict", "--warn-unused-ignores", f"--cache-dir={tmp_path}", API)


def test_pyright_agrees(tmp_path: Path) -> None:
    """Pyright reports the same types."""
    check("pyright", "--pythonpath", sys.executable, API)


def test_a_wrong_type_is_noticed(tmp_path: Path) -> None:
    """The tests above fail on a wrong type; mypy also notices a ``type: ignore`` that is not needed."""
    copy = shutil.copytree(ROOT / API, tmp_path / "checked")
    streams = copy / "streams.py"
    streams.write_text(streams.read_text("utf-8").replace("list[Event[Order]]", "list[Event[Alert]]"), "utf-8")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with pytest.raises(AssertionError, match="assert.[Tt]ype"):
        check("pyright", "--pythonpath", sys.executable, copy.name, root=tmp_path)

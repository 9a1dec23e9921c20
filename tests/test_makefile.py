"""The environments that make finds: a correct result, or one sentence that names the remedy."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment that make has created with this Python, with nothing installed."""
    environment = tmp_path_factory.mktemp("make") / "venv"
    if " " in str(environment):
        pytest.skip("make cannot handle a space in a path: set TMPDIR to a folder without one")
    ran = make(environment, target=".made")
    assert ran.returncode == 0, ran.stderr
    return environment


def make(environment: Path, *settings: str, target: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run make for one file of the environment, with nothing inherited from a make around this test."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PYTHON", "VENV"))}
    command = ("make", f"VENV={environment}", *settings, f"{environment}/{target}")
    return subprocess.run(command, cwd=ROOT, env=inherited | variables, capture_output=True, text=True)


def version(environment: Path) -> str:
    """Return the version of the environment's Python."""
    ran = subprocess.run((environment / "bin" / "python", "--version"), check=True, capture_output=True, text=True)
    return ran.stdout.strip()


def test_an_environment_that_works_is_kept(made: Path) -> None:
    """PYTHON= of the same version keeps it, too."""
    (made / "kept").touch()
    assert "is up to date" in make(made, target=".made").stdout
    assert "is up to date" in make(made, f"PYTHON={sys.executable}", target=".made").stdout
    assert (made / "kept").exists()


def test_an_environment_of_another_version_is_made_again(made: Path) -> None:
    """PYTHON= decides, and not the Python of an earlier make; so is one whose interpreter is gone."""
    for link in (made / "bin").glob("python*"):
        link.unlink()
    assert make(made, target=".made").returncode == 0
    assert version(made).startswith("Python 3.")
    other = made / "bin" / "python"
    other.unlink()
    other.write_text("#!/bin/sh\necho 3.99\n")
    other.chmod(0o755)
    assert make(made, f"PYTHON={sys.executable}", target=".made").returncode == 0
    assert version(made) == "Python {}.{}.{}".format(*sys.version_info)


def test_a_python_that_cannot_be_used_is_named(made: Path) -> None:
    """Make does not fall back to another Python."""
    ran = make(made.parent / "other", "PYTHON=/nowhere/python", target=".made")
    assert ran.returncode
    assert "PYTHON=/nowhere/python is no Python 3.11 or newer" in ran.stderr
    assert not (made.parent / "other").exists()


def test_a_path_with_a_space_is_refused(tmp_path: Path) -> None:
    """Make would split it in two."""
    ran = make(tmp_path / "with space", target=".made")
    assert ran.returncode
    assert "set VENV to a folder without one" in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_missing_network_is_one_sentence(made: Path) -> None:
    """It follows pip's last error, and names the log with all of it."""
    nowhere = {
        "PIP_INDEX_URL": "http://127.0.0.1:9/",
        "PIP_RETRIES": "0",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": "",
    }
    ran = make(made, target=".core", **nowhere)
    assert ran.returncode
    error, sentence, make_says = ran.stderr.strip().splitlines()
    assert "ERROR" in error
    assert sentence == (
        f"pip could not install eventkit: is the package index reachable? {made}/pip.log has all that pip said."
    )
    assert make_says.startswith("make")
    assert (made / "pip.log").stat().st_size

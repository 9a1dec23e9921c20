"""A backend of a third party: installed from a distribution of its own, found by its URL, proved by the suite.

``tests/foreign_backend`` is that distribution.  Nothing of it is importable here; each test runs in a process
that finds it beside eventkit, as after a ``pip install``.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import eventkit_migrations as migrations
import pytest

FOREIGN = Path(__file__).parent / "foreign_backend"

BROKEN = """
import eventkit_migrations as migrations
import pytest
from eventkit.conformance import *
from eventkit_elsewhere import AsyncElsewhere, Elsewhere

Elsewhere.execute = lambda self, operation, tx=None: self._connection.execute(operation)
AsyncElsewhere.execute = lambda self, operation, tx=None: self._connection.execute(operation)

@pytest.fixture
def url(tmp_path):
    return f"elsewhere:///{tmp_path}/test.db?busy_timeout=0.1"
"""
"""A backend that ignores ``tx=``, which fails every call on a caller's transaction."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder into which pip has installed the foreign distribution."""
    target = tmp_path_factory.mktemp("installed")
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", *options, "--target", str(target), str(FOREIGN))
    subprocess.run(pip, check=True, stdin=subprocess.DEVNULL)
    return target


def run(installed: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python where the distribution is installed."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    command = (sys.executable, *arguments)
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def conform(installed: Path, cwd: Path, *options: str, suite: str | None = None) -> tuple[int, dict[str, int]]:
    """Run the suite from a folder of its own; return pytest's exit code, and the counts of its closing line."""
    (cwd / "suite.py").write_text(suite or (FOREIGN / "suite.py").read_text("utf-8"))
    shutil.copy(FOREIGN / "pyproject.toml", cwd)
    ran = run(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", "suite.py", *options, cwd=cwd)
    print(ran.stdout[-5000:], ran.stderr[-5000:])
    closing = ran.stdout.strip().splitlines()[-1]
    return ran.returncode, {what: int(number) for number, what in re.findall(r"(\d+) (\w+)", closing)}


def test_it_is_not_here_until_it_is_installed(installed: Path, tmp_path: Path) -> None:
    """The URL is unknown without the distribution, and listed among the known ones with it."""
    program = "import eventkit; eventkit.connect('nowhere:///x.db')"
    with_it = run(installed, "-c", program, cwd=tmp_path).stderr
    without = run(tmp_path, "-c", program, cwd=tmp_path).stderr
    assert "UnknownBackend" in with_it
    assert "UnknownBackend" in without
    assert "elsewhere" in with_it
    assert "elsewhere" not in without


def test_it_serves_its_url(installed: Path, tmp_path: Path) -> None:
    """A program that installs it connects to it like to any other."""
    program = "import eventkit; print(eventkit.connect('elsewhere:///x.db').stream('orders').publish(1))"
    assert run(installed, "-c", program, cwd=tmp_path).stdout == "1\n"


def test_its_tables_are_migrated(installed: Path, tmp_path: Path) -> None:
    """The migrations create, show and drop the tables of a backend that they do not know."""
    program = """
import eventkit, eventkit_migrations as migrations
url = "elsewhere:///x.db"
print(migrations.current(url), migrations.script(url).count("CREATE TABLE eventkit_event "))
migrations.upgrade(url)
print(migrations.current(url), eventkit.connect(url, create=False).stream("orders").publish(1))
migrations.downgrade(url, "base")
print(migrations.current(url))
"""
    assert run(installed, "-c", program, cwd=tmp_path).stdout.split() == ["None", "1", migrations.HEAD, "1", "None"]


def test_it_passes_the_suite(installed: Path, tmp_path: Path) -> None:
    """A part of the suite passes in both flavours; the suite knows the backend by its URL alone."""
    code, counted = conform(installed, tmp_path, "-m", "not slow", "-k", "transaction or kit")
    assert code == 0
    assert counted["passed"] > 80


@pytest.mark.slow
def test_it_passes_the_whole_suite(installed: Path, tmp_path: Path) -> None:
    """Every test passes, including the long races."""
    code, counted = conform(installed, tmp_path)
    assert code == 0
    assert counted["passed"] > 500


def test_its_capabilities_choose_tests(installed: Path, tmp_path: Path) -> None:
    """A test that requires a capability runs if it is declared and is skipped if it is not."""
    code, counted = conform(installed, tmp_path, "-k", "what_the_backend_declares or what_it_does_not_declare")
    assert code == 0
    assert (counted["passed"], counted["skipped"]) == (2, 2)


def test_the_end_of_a_run_counts_what_optional_fixtures_would_add(installed: Path, tmp_path: Path) -> None:
    """Without engine_url the tests on SQLAlchemy's engines are skipped, and their number is printed."""
    suite = (FOREIGN / "suite.py").read_text("utf-8").partition("@pytest.fixture\ndef engine_url")[0]
    (tmp_path / "suite.py").write_text(suite)
    options = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "suite.py", "-k", "collect and not slow")
    ran = run(installed, *options, cwd=tmp_path)
    skipped = re.search(r"(\d+) skipped", ran.stdout)
    lacking = re.findall(r"(\d+) tests of the suite skipped: the backend has no fixture (\w+)", ran.stdout)
    assert skipped, ran.stdout
    assert [fixture for _, fixture in lacking] == ["engine_url"]
    assert lacking[0][0] == skipped[1]


def test_a_backend_that_breaks_a_promise_is_found_out(installed: Path, tmp_path: Path) -> None:
    """Many tests of the suite fail where a backend ignores the caller's transaction."""
    code, counted = conform(installed, tmp_path, "-k", "rolled_back", suite=BROKEN)
    assert code == 1
    assert counted["failed"] > counted.get("passed", 0)

"""A backend of a third party: installed from a distribution of its own, found by its URL, proved by the suite.

``tests/foreign_backend`` is that distribution, with tables and statements of its own.  Nothing of it is importable
here; each test runs in a process that finds it beside eventkit, as after a ``pip install``.
"""

import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import eventkit_migrations as migrations
import pytest

from eventkit import conformance
from eventkit.conformance.clauses import clauses_of

FOREIGN = Path(__file__).parent / "foreign_backend"

BROKEN = """
import eventkit_migrations as migrations
import pytest
from eventkit.conformance import *
from eventkit_elsewhere.connection import AsyncConnection, Connection

sync, asyncio = Connection.execute, AsyncConnection.execute
Connection.execute = lambda self, operation, tx=None: sync(self, operation)
AsyncConnection.execute = lambda self, operation, tx=None: asyncio(self, operation)

@pytest.fixture
def url(tmp_path):
    return f"elsewhere:///{tmp_path}/test.db?busy_timeout=0.1"
"""
"""A backend that ignores ``tx=``, which fails every call on a caller's transaction."""

LEFT_OUT = {"O1", "O2", "T1", "T2", "T3", "T4", "T5", "T6", "H3", "H5", "N6", "W7", "Q23"}
"""The clauses that the backend leaves out."""

AWAY = {"engine", "engine_url", "bare_sql", "caller", "plain"}
"""Fixtures of tests that need a dialect of SQLAlchemy or functions of SQL, which the backend lacks."""


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
    searched = os.pathsep.join(filter(None, (str(installed), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": searched}
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    command = (sys.executable, *arguments)
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def conform(installed: Path, cwd: Path, *options: str, suite: str | None = None) -> tuple[int, dict[str, int], str]:
    """Run the suite in a folder of its own; return pytest's exit code, the counts of its last line, and its output."""
    (cwd / "suite.py").write_text(suite or (FOREIGN / "suite.py").read_text("utf-8"))
    shutil.copy(FOREIGN / "pyproject.toml", cwd)
    ran = run(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", "suite.py", *options, cwd=cwd)
    print(ran.stdout[-5000:], ran.stderr[-5000:])
    closing = ran.stdout.strip().splitlines()[-1]
    return ran.returncode, {what: int(number) for number, what in re.findall(r"(\d+) (\w+)", closing)}, ran.stdout


def test_it_is_not_here_until_it_is_installed(installed: Path, tmp_path: Path) -> None:
    """The URL is unknown without the distribution, and listed among the known ones with it."""
    program = "import eventkit; eventkit.connect('nowhere:///x.db')"
    with_it = run(installed, "-c", program, cwd=tmp_path).stderr
    without = run(tmp_path, "-c", program, cwd=tmp_path).stderr
    assert "UnknownBackend" in with_it
    assert "UnknownBackend" in without
    assert "elsewhere" in with_it
    assert "elsewhere" not in without


def test_its_tables_are_migrated(installed: Path, tmp_path: Path) -> None:
    """The migrations create, show and drop tables that they do not know, and store their hash; the backend serves them.

    No table or index of the file but the two of the migrations is called like one of eventkit's own backends.
    """
    program = """
import eventkit, eventkit_migrations as migrations, sqlite3
url = "elsewhere:///x.db"
print(migrations.current(url), migrations.script(url).count("CREATE TABLE elsewhere_event "))
migrations.upgrade(url)
with eventkit.connect(url, create=False) as kit:
    print(migrations.current(url), kit.stream("orders").publish(1))
connection = sqlite3.connect("x.db")
names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
print("elsewhere_task" in names, *sorted(name for name in names if name.startswith("eventkit")))
[(stored,)] = connection.execute("SELECT schema_hash FROM eventkit_identity")
print(stored == migrations.schema_hash("elsewhere"), stored == migrations.schema_hash("sqlite"))
migrations.downgrade(url, "base")
print(migrations.current(url))
migrations.upgrade(url)
with connection:
    connection.execute("UPDATE eventkit_identity SET schema_hash = ?", [migrations.schema_hash("sqlite")])
eventkit.connect(url)
"""
    ran = run(installed, "-c", program, cwd=tmp_path)
    assert ran.stdout.splitlines() == [
        "None 1",
        f"{migrations.HEAD} 1",
        "True eventkit_identity eventkit_version",
        "True False",
        "None",
    ], ran.stderr
    assert "NotMigrated" in ran.stderr


def for_each_clause() -> dict[str, str]:
    """Return a test of the suite for each clause of the contract that the backend keeps."""
    found: dict[str, str] = {}
    for name in conformance.__all__:
        test = getattr(conformance, name)
        fixtures = set(inspect.signature(test).parameters) if name.startswith("test_") else set()
        if fixtures & {"kit", "connect", "url"} and not fixtures & AWAY:
            marks = {mark.name for mark in test.pytestmark}
            if "slow" not in marks and not LEFT_OUT & set(clauses_of(test)):
                for clause in clauses_of(test):
                    found.setdefault(clause, name)
    return found


def test_it_passes_the_suite(installed: Path, tmp_path: Path) -> None:
    """A test of each of sixty clauses passes, and all of transactions; the suite knows the backend by its URL alone."""
    tests = for_each_clause()
    assert len(tests) >= 60
    chosen = " or ".join(sorted({"transaction", *tests.values()}))
    code, counted, _ = conform(installed, tmp_path, "-k", chosen, "-m", "not slow")
    assert code == 0
    assert counted["passed"] > 100


def test_the_end_of_a_run_counts_what_is_left_out(installed: Path, tmp_path: Path) -> None:
    """Tests of clauses or of a fixture that the backend lacks are skipped without a call of it, and counted.

    A test that requires a capability runs if it is declared and is skipped if it is not.
    """
    declared = "what_the_backend_declares or what_it_does_not_declare"
    code, counted, said = conform(
        installed, tmp_path, "-k", f"({declared} or cut_short or inbox or collect) and not slow"
    )
    assert code == 0
    clauses = {clause: int(n) for n, clause in re.findall(r"(\d+) tests .* leaves out clause (\w+)", said)}
    assert {"O1", "O2"} <= clauses.keys() <= LEFT_OUT, said
    lacking = re.findall(r"(\d+) tests of the suite skipped: the backend has no fixture (\w+)", said)
    assert [fixture for _, fixture in lacking] == ["engine_url"]
    assert sum(clauses.values()) + int(lacking[0][0]) + 2 == counted["skipped"]
    assert counted["passed"] > 2, "the other clauses of these tests are proved"


@pytest.mark.slow
def test_it_passes_the_whole_suite(installed: Path, tmp_path: Path) -> None:
    """Every test of the clauses that it keeps passes, including the long races."""
    code, counted, _ = conform(installed, tmp_path)
    assert code == 0
    assert counted["passed"] > 500


def test_an_operation_that_it_leaves_out_says_so(installed: Path, tmp_path: Path) -> None:
    """A call for which it has no statement names the operation, and a setting without effect is refused."""
    program = "import eventkit; kit = eventkit.connect('elsewhere:///x.db'); kit."
    assert "no statement for ReadOverview" in run(installed, "-c", f"{program}overview()", cwd=tmp_path).stderr
    configure = f"{program}queue('q').configure(history=True)"
    assert "keeps no history" in run(installed, "-c", configure, cwd=tmp_path).stderr


def test_the_documentation_has_its_size() -> None:
    """The page for authors states how many lines of Python and of SQL the backend has, which are few."""
    lines = {kind: count_lines(FOREIGN.rglob(f"*.{kind}")) for kind in ("py", "sql")}
    page = (FOREIGN.parent.parent / "docs" / "backends.md").read_text("utf-8")
    assert f"{lines['py']} lines of Python and {lines['sql']:,} of SQL" in page, lines
    assert lines["py"] <= 710


def count_lines(files: Iterator[Path]) -> int:
    """Return the number of lines of some files."""
    return sum(len(file.read_bytes().splitlines()) for file in files)


def test_a_backend_that_breaks_a_promise_is_found_out(installed: Path, tmp_path: Path) -> None:
    """Many tests of the suite fail where a backend ignores the caller's transaction."""
    code, counted, _ = conform(installed, tmp_path, "-k", "rolled_back", suite=BROKEN)
    assert code == 1
    assert counted["failed"] > counted.get("passed", 0)

"""The published files: a source archive, the wheel made from it, and their content."""

import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import eventkit

ROOT = Path(__file__).parent.parent
PACKAGES = {
    "eventkit": ROOT / "eventkit",
    "eventkit_sqlite": ROOT / "backends" / "eventkit_sqlite",
    "eventkit_postgres": ROOT / "backends" / "eventkit_postgres",
    "pyspark_eventkit": ROOT / "backends" / "pyspark_eventkit",
    "eventkit_migrations": ROOT / "migrations" / "eventkit_migrations",
}


def build(*options: str, source: Path, into: Path) -> None:
    """Build with the installed packages, without an index."""
    command = (sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", str(into), str(source))
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the source archive and the wheel made from it."""
    folder = tmp_path_factory.mktemp("built")
    build(source=ROOT, into=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """Return the wheel."""
    [wheel] = built.glob("*.whl")
    return wheel


def names(wheel: Path) -> set[str]:
    """Return the files in a wheel, without its metadata."""
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def test_the_wheel_holds_the_packages_whole(wheel: Path) -> None:
    """It holds code, statements, the marker of types, the suite and the migrations, and nothing else."""
    wanted = {
        f"{package}/{file.relative_to(folder).as_posix()}"
        for package, folder in PACKAGES.items()
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert names(wheel) == wanted
    assert {f"{package}/py.typed" for package in PACKAGES} <= wanted
    assert {"eventkit_sqlite/claim.sql", "eventkit/conformance/fixtures.py"} <= wanted
    assert any(name.startswith("eventkit_migrations/versions/0001") for name in wanted)


def test_the_source_archive_holds_what_it_takes_to_test_it(built: Path) -> None:
    """It holds tests, docs and the Makefile, but no caches and databases."""
    [archive] = built.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        held = {name.partition("/")[2] for name in files.getnames()}
    wanted = (
        "Makefile",
        "LICENSE",
        "CHANGELOG.md",
        "README.md",
        "docs/contract.md",
        "tests/test_package.py",
        ".ci/run",
    )
    assert set(wanted) <= held
    assert not [name for name in held if "__pycache__" in name or ".venv" in name or name.endswith((".db", ".pyc"))]


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    """It has licence, versions, dependencies, and the entry points of SQLAlchemy and eventkit.

    A package index shows the README alone, so its description has no relative link, which would lead nowhere.
    """
    assert wheel.name.startswith(f"eventkit_db-{eventkit.__version__}-")
    with zipfile.ZipFile(wheel) as files:
        [folder] = {name.split("/")[0] for name in files.namelist() if ".dist-info/" in name}
        metadata = Parser().parsestr(files.read(f"{folder}/METADATA").decode())
        entry_points = files.read(f"{folder}/entry_points.txt").decode()
        held = files.namelist()
    assert metadata["License-Expression"] == "MIT"
    assert f"{folder}/licenses/LICENSE" in held
    assert metadata["Requires-Python"] == ">=3.11"
    needed = [line for line in metadata.get_all("Requires-Dist") if "extra" not in line]
    assert sorted(line.split(">")[0] for line in needed) == ["alembic", "apsw", "croniter", "msgspec", "sqlalchemy"]
    for line in (
        "sqlite = eventkit_sqlite",
        "sqlite+pysqlite = eventkit_sqlite",
        "sqlite.apsw = eventkit_sqlite.dialect:ApswDialect",
    ):
        assert line in entry_points.splitlines()
    description = metadata.get_payload()
    assert "the contract (`docs/contract.md`)" in description
    assert re.findall(r"\]\((?!https?://)[^)]*\)", description) == []


def test_no_text_names_the_unrelated_distribution() -> None:
    """The distribution is eventkit-db: ``pip install eventkit`` installs an unrelated package."""
    folders = ("eventkit", "backends", "migrations", "docs", "tests", "benchmarks")
    inside = (file for name in folders for file in (ROOT / name).rglob("*"))
    files = [ROOT / "README.md", ROOT / "pyproject.toml", *inside]
    old = re.compile(r"(pip install|uv add|poetry add) [^\n]*\beventkit(?!-db)(\[|['\"\s]|$)|['\"`]eventkit\[\w")
    found = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in files
        if file.suffix in (".md", ".py", ".toml", ".html", ".txt") and file.name != "test_package.py"
        for line in file.read_text("utf-8").splitlines()
        if old.search(line)
    ]
    assert found == []


@pytest.mark.slow
def test_the_wheel_works_alone(wheel: Path, tmp_path: Path) -> None:
    """The main calls work in a new environment with only its dependencies."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", str(wheel))
    subprocess.run(pip, check=True, stdin=subprocess.DEVNULL)
    ran = subprocess.run((python, "-m", "eventkit.demo"), cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "received nothing" in ran.stdout

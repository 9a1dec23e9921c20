"""The programs of ``docs/recipes.md`` work: each is written to a folder and tested by the test beside it.

On SQLite as they stand, where they are for it; on Postgres with the URLs that the page names.
"""

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

PAGE = Path(__file__).parent.parent / "docs" / "recipes.md"
DJANGO = {"dbname": "NAME", "host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD"}


def recipes() -> dict[str, dict[str, str]]:
    """Return the files of each recipe, by its heading."""
    sections = re.split(r"^## (.*)$", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    found = {}
    for title, text in zip(sections[::2], sections[1::2], strict=True):
        blocks = re.findall(r"^```python\n# (\S+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        assert len(blocks) == text.count("\n```python\n"), f"a block of {title!r} does not say which file it is"
        found[title] = dict(blocks)
    return found


RECIPES = recipes()


@pytest.fixture
def database(postgres: str) -> Iterator[str]:
    """Return the URL of a database of the recipe's own."""
    name = f"recipe_{secrets.token_hex(4)}"
    with psycopg.connect(postgres, autocommit=True) as driver:
        driver.execute(f"CREATE DATABASE {name}".encode())
        yield re.sub(r"^(\w+://[^/?]*/)[^?]*", rf"\1{name}", postgres)
        driver.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def on_postgres(program: str, url: str, driver: str) -> str:
    """Return the program with its URLs replaced by those of a database on Postgres."""
    parts = {DJANGO[name]: value for name, value in conninfo_to_dict(url).items() if name in DJANGO}
    for pattern, other in (
        (r'"sqlite(\+pysqlite)?:///shop.db"', repr(url)),
        (r'"sqlite\+apsw(_async)?:///shop.db"', repr(url.replace("postgresql", f"postgresql+{driver}", 1))),
        (r'"postgresql://localhost/shop"', repr(url)),
        (r"^DATABASE = \{.*\}$", f"DATABASE = {{'ENGINE': 'django.db.backends.postgresql', **{parts}}}"),
    ):
        program = re.sub(pattern, other.replace("\\", r"\\"), program, flags=re.MULTILINE)
    assert "shop.db" not in program
    assert "localhost" not in program
    return program


def run(files: dict[str, str], folder: Path) -> None:
    """Write the files, and run their tests."""
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".")
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_recipe_has_a_program_and_its_test() -> None:
    """No recipe is shown only."""
    assert all(set(files) == {"shop.py", "test_shop.py"} for files in RECIPES.values())
    assert len(RECIPES) == 5


@pytest.mark.parametrize("title", [title for title in RECIPES if title != "psycopg alone"])
def test_it_works_on_sqlite(title: str, tmp_path: Path) -> None:
    """It runs unchanged."""
    run(RECIPES[title], tmp_path)


@pytest.mark.parametrize(
    ("title", "driver"),
    [
        ("FastAPI and AsyncSession", "psycopg"),
        ("FastAPI and AsyncSession", "asyncpg"),
        ("Flask and Session", "psycopg"),
        ("Flask and Session", "psycopg2"),
        ("Django", "psycopg"),
        ("psycopg alone", "psycopg"),
        ("Tasks and an outbox under one worker", "psycopg"),
    ],
)
def test_it_works_on_postgres(title: str, driver: str, database: str, tmp_path: Path) -> None:
    """It runs with each driver that the page names."""
    files = dict(RECIPES[title])
    run(files | {"shop.py": on_postgres(files["shop.py"], database, driver)}, tmp_path)

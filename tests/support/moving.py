"""Databases to copy between, and their content seen from outside."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from postgres_server import drop_schema

import eventkit


class Places:
    """Fresh databases of either kind."""

    def __init__(self, folder: Path, postgres: str) -> None:
        self._folder = folder
        self._postgres = postgres
        self._count = 0

    def fresh(self, kind: str) -> str:
        """Return the URL of a database that does not exist yet."""
        self._count += 1
        return f"sqlite:///{self._folder}/{self._count}.db" if kind == "sqlite" else f"{self._postgres}_{self._count}"

    def schemas(self) -> list[str]:
        """Return the schemas that may have been made on Postgres."""
        name = self._postgres.rpartition("schema=")[2]
        return [f"{name}_{number}" for number in range(1, self._count + 1)]


def run_sql(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Return the rows of the last statement, run with the others in one transaction."""
    rows: list[tuple[Any, ...]] = []
    with eventkit.connect(url) as kit, kit.transaction() as tx:
        if not url.startswith("sqlite"):
            tx.execute(f"SET LOCAL search_path = {url.rpartition('schema=')[2]}")
        for statement in statements:
            cursor = tx.execute(statement)
            if statement.startswith("SELECT"):
                rows = cursor.fetchall()
    return [tuple(row) for row in rows]


ROUTES = [("sqlite", "postgres"), ("postgres", "sqlite")]
"""Each database is once read and once written."""

routes = pytest.mark.parametrize("route", ROUTES, ids=[f"{here}-to-{there}" for here, there in ROUTES])


@pytest.fixture
def places(tmp_path: Path, postgres_url: str, postgres: str) -> Iterator[Places]:
    """Return fresh databases; those on Postgres are dropped after the test."""
    places = Places(tmp_path, postgres_url)
    yield places
    for schema in places.schemas():
        drop_schema(postgres, schema)


@contextmanager
def moved(places: Places, route: tuple[str, str]) -> Iterator[tuple[eventkit.EventKit, Any]]:
    """Return a kit to fill, and a function that returns the kit of its copy."""
    here, there = (places.fresh(kind) for kind in route)
    kits: list[eventkit.EventKit] = []

    def move() -> eventkit.EventKit:
        eventkit.copy(here, there)
        kits.append(eventkit.connect(there))
        return kits[-1]

    with eventkit.connect(here) as kit:
        yield kit, move
    for copy in kits:
        copy.close()

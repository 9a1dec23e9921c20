"""The databases of tests beside the suite: a SQLite file, and Postgres as well where a test is `on_both`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import eventkit
from eventkit import EventKit

on_both = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
"""Run a test on each of the two databases."""


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a database of the test's own."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    given: str = request.getfixturevalue("emptied_url")
    return given


@pytest.fixture
def kit(url: str) -> Iterator[EventKit]:
    """Return a kit on it."""
    with eventkit.connect(url) as kit:
        yield kit

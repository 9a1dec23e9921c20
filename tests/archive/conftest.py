"""A fresh database, and a folder for its archive; tests on both kinds of database are marked with ``both``."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import eventkit


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a new database, a file unless the test is for both kinds."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{tmp_path / 'shop.db'}"
    return str(request.getfixturevalue("emptied_url"))


@pytest.fixture
def kit(url: str) -> Iterator[eventkit.EventKit]:
    """Return a kit on it."""
    with eventkit.connect(url) as kit:
        yield kit


@pytest.fixture
def location(tmp_path: Path) -> Path:
    """Return the location of the archive."""
    return tmp_path / "lake"

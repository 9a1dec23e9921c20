"""A fresh database of each kind, and a folder for its archive."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import eventkit


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a new database."""
    if request.param == "sqlite":
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

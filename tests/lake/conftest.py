"""A fresh database of each kind, and a folder for its archive."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import eventkit


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that nobody has seen yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shop.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def kit(url: str) -> Iterator[eventkit.EventKit]:
    """A kit on it."""
    with eventkit.connect(url) as kit:
        yield kit


@pytest.fixture
def location(tmp_path: Path) -> Path:
    """Where the archive is to be."""
    return tmp_path / "lake"

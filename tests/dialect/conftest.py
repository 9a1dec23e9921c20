"""Engines on a shop's file."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from shop import Base


@pytest.fixture
def connect_to(tmp_path: Path) -> Iterator[Callable[..., sa.Engine]]:
    """Makes engines on one file; what it is given follows the file's name in the URL."""
    engines = []

    def connect_to(query: str = "", **options: object) -> sa.Engine:
        engines.append(sa.create_engine(f"sqlite+apsw:///{tmp_path}/shop.db{query}", **options))
        return engines[-1]

    yield connect_to
    for engine in engines:
        engine.dispose()


@pytest.fixture
def engine(connect_to) -> sa.Engine:
    engine = connect_to()
    Base.metadata.create_all(engine)
    return engine

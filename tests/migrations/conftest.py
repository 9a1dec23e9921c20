"""The file that is migrated, under both SQLite drivers."""

from pathlib import Path

import pytest


@pytest.fixture(params=["sqlite+apsw", "sqlite+pysqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}:///{tmp_path}/shop.db"

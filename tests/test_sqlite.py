"""The conformance suite on SQLite: through apsw, and through the standard library's driver."""

from pathlib import Path

import pytest

from eventkit.conformance import *


@pytest.fixture(params=["sqlite", "sqlite+pysqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh file, by each driver."""
    return f"{request.param}:///{tmp_path}/test.db"

"""The conformance suite on SQLite: through apsw, and through the standard library's driver."""

from pathlib import Path

import pytest

from eventkit.conformance import *

ENGINES = {
    ("sqlite", "sync"): "sqlite+apsw",
    ("sqlite", "async"): "sqlite+apsw_async",
    ("sqlite+pysqlite", "sync"): "sqlite+pysqlite",
    ("sqlite+pysqlite", "async"): "sqlite+aiosqlite",
}
"""By which name SQLAlchemy uses the library that the kit uses."""


@pytest.fixture(params=["sqlite", "sqlite+pysqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh file, by each driver."""
    return f"{request.param}:///{tmp_path}/test.db"


@pytest.fixture
def engine_url(url: str, flavour: str) -> str:
    """An engine on the same SQLite library, which waits for its turn as long as a crowd may take."""
    scheme, _, file = url.partition(":")
    return f"{ENGINES[scheme, flavour]}:{file}?timeout=30"

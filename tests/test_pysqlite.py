"""The standard library's driver: transactions and sessions, where it differs, and a sample of streams and queues.

The whole suite runs through it in the slow group (`test_sqlite`).
"""

import shutil
from pathlib import Path

import pytest
import test_sqlite

from eventkit.conformance import pytest_generate_tests  # noqa: F401  # for pytest
from eventkit.conformance.test_claim import *
from eventkit.conformance.test_collected import *
from eventkit.conformance.test_emitted import *
from eventkit.conformance.test_finish import *
from eventkit.conformance.test_headers import *
from eventkit.conformance.test_keys import *
from eventkit.conformance.test_sqlalchemy import *
from eventkit.conformance.test_streams import *
from eventkit.conformance.test_transactions import *

pattern, engine_url, bare_sql = test_sqlite.pattern, test_sqlite.engine_url, test_sqlite.bare_sql


@pytest.fixture
def url(tmp_path: Path, pattern: Path) -> str:
    """Return the URL of a fresh file."""
    shutil.copyfile(pattern, tmp_path / "test.db")
    return f"sqlite+pysqlite:///{tmp_path}/test.db"

"""Fixtures for pytest: ``pytest_plugins = ["eventkit.testing.fixtures"]`` in the top ``conftest.py``.

A test gets a database of its own: a file in its ``tmp_path``, or, if the environment variable ``EVENTKIT_TEST_URL``
names a Postgres database, a schema in that, dropped afterwards.
"""

import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..kit import connect
from ..protocols import EventKit

VARIABLE = "EVENTKIT_TEST_URL"


@pytest.fixture
def eventkit_url(tmp_path: Path) -> Iterator[str]:
    """The URL of the test's own database, for `connect` and `connect_async`."""
    given = os.environ.get(VARIABLE)
    if not given:
        yield f"sqlite:///{tmp_path}/eventkit.db"
        return
    if not re.match(r"postgres(ql)?(\+\w+)?://", given):
        raise pytest.UsageError(f"{VARIABLE} is the URL of a Postgres database; without it, tests use SQLite files")
    schema = f"test_{secrets.token_hex(6)}"
    bare = re.sub(r"[?&]schema=[^&]*", "", given)
    url = f"{bare}{'&' if '?' in bare else '?'}schema={schema}"
    yield url
    with connect(url) as kit, kit.transaction() as tx:
        tx.execute(f'DROP SCHEMA "{schema}" CASCADE')


@pytest.fixture
def kit(eventkit_url: str) -> Iterator[EventKit]:
    """A kit on the test's own database."""
    with connect(eventkit_url) as kit:
        yield kit

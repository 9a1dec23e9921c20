"""The conformance suite on Postgres."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from eventkit_postgres.address import parse

from eventkit.conformance import *

OTHER = {"sync": "psycopg2", "async": "asyncpg"}
"""Drivers that the kit itself does not use."""


@pytest.fixture
def url(emptied_url: str) -> str:
    """Return the URL of an emptied schema."""
    return emptied_url


@pytest.fixture
def new_url(postgres_url: str) -> str:
    """Return the URL of a schema that does not exist yet."""
    return postgres_url


@pytest.fixture
def bare_sql(url: str) -> Iterator[tuple[str, Callable[[str], Any]]]:
    """Return a caller of SQL by a connection of psycopg."""
    address = parse(url)
    with psycopg.connect(address.conninfo, autocommit=True) as connection:

        def run(sql: str) -> Any:
            cursor = connection.execute(sql.encode())
            row = cursor.fetchone() if cursor.description else None
            return row[0] if row else None

        yield f'"{address.schema}".', run


@pytest.fixture(params=["psycopg", "another driver"])
def engine_url(request: pytest.FixtureRequest, url: str, flavour: str) -> str:
    """Return an engine's URL on the kit's driver, and on one with another style of parameters."""
    driver = "psycopg" if request.param == "psycopg" else OTHER[flavour]
    return re.sub(r"[?&]schema=\w+$", "", url).replace("postgresql", f"postgresql+{driver}", 1)

"""The conformance suite on Postgres."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from eventkit_postgres.address import parse

from eventkit.conformance import *

OTHER = {"sync": "psycopg2", "async": "asyncpg"}
"""Drivers that the kit does not use itself."""


@pytest.fixture
def url(postgres_url: str) -> str:
    """A fresh schema."""
    return postgres_url


@pytest.fixture
def bare_sql(url: str) -> Iterator[tuple[str, Callable[[str], Any]]]:
    """A connection of psycopg."""
    address = parse(url)
    with psycopg.connect(address.conninfo, autocommit=True) as connection:

        def run(sql: str) -> Any:
            cursor = connection.execute(sql.encode())
            row = cursor.fetchone() if cursor.description else None
            return row[0] if row else None

        yield f'"{address.schema}".', run


@pytest.fixture(params=["psycopg", "another driver"])
def engine_url(request: pytest.FixtureRequest, url: str, flavour: str) -> str:
    """An engine on the kit's driver, and one that the kit's statements have to be put differently for."""
    driver = "psycopg" if request.param == "psycopg" else OTHER[flavour]
    return re.sub(r"[?&]schema=\w+$", "", url).replace("postgresql", f"postgresql+{driver}", 1)

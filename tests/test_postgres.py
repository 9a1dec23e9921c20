"""The conformance suite on Postgres."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from emptied_schema import EmptiedSchema
from eventkit_postgres.address import parse

from eventkit.conformance import *

OTHER = {"sync": "psycopg2", "async": "asyncpg"}
"""Drivers that the kit does not use itself."""


@pytest.fixture(scope="session")
def emptied(postgres: str) -> Iterator[EmptiedSchema]:
    """The schema that every test has in its turn."""
    with closing(EmptiedSchema(postgres)) as schema:
        yield schema


@pytest.fixture
def url(emptied: EmptiedSchema) -> str:
    """A schema as if it were fresh."""
    emptied.empty()
    return emptied.url


@pytest.fixture
def new_url(postgres_url: str) -> str:
    """A schema that does not exist yet."""
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

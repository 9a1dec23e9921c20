"""The conformance suite on Postgres."""

import re

import pytest

from eventkit.conformance import *

OTHER = {"sync": "psycopg2", "async": "asyncpg"}
"""Drivers that the kit does not use itself."""


@pytest.fixture
def url(postgres_url: str) -> str:
    """A fresh schema."""
    return postgres_url


@pytest.fixture(params=["psycopg", "another driver"])
def engine_url(request: pytest.FixtureRequest, url: str, flavour: str) -> str:
    """An engine on the kit's driver, and one that the kit's statements have to be put differently for."""
    driver = "psycopg" if request.param == "psycopg" else OTHER[flavour]
    return re.sub(r"[?&]schema=\w+$", "", url).replace("postgresql", f"postgresql+{driver}", 1)

"""The conformance suite on Postgres."""

import pytest

from eventkit.conformance import *


@pytest.fixture
def url(postgres_url: str) -> str:
    """A fresh schema."""
    return postgres_url

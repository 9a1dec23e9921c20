"""The conformance suite behind PgBouncer in transaction mode, with a direct connection for the listener."""

import secrets
from collections.abc import Iterator
from urllib.parse import quote

import pooler
import pytest
from clusters import Cluster
from pooler import Pooler

from eventkit.conformance import *

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(pooler.find() is None, reason=pooler.MISSING),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Return the server."""
    with Cluster(max_connections=200) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def front(cluster: Cluster) -> Iterator[Pooler]:
    """Return the pooler."""
    with Pooler(cluster) as front:
        yield front


@pytest.fixture
def url(cluster: Cluster, front: Pooler) -> str:
    """Return the URL of a schema that does not exist yet."""
    schema = f"t_{secrets.token_hex(4)}"
    return f"{front.url}?schema={schema}&pooler=transaction&listen_url={quote(cluster.url, safe='')}"


@pytest.fixture
def engine_url(cluster: Cluster) -> str:
    """Return the URL of an engine that connects to the server directly, without the pooler."""
    return cluster.url.replace("postgresql", "postgresql+psycopg", 1)

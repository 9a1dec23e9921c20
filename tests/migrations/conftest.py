"""The place that is migrated: a file under both SQLite drivers, and a schema on Postgres."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(params=["sqlite+apsw", "sqlite+pysqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the URL of an empty place; `schemas.place` gives more of the kind."""
    if request.param != "postgresql":
        yield f"{request.param}:///{tmp_path}/shop.db"
        return
    import psycopg
    from postgres_server import drop_schema

    server: str = request.getfixturevalue("postgres")
    prefix = f"t_{secrets.token_hex(4)}_"
    yield f"{server}{'&' if '?' in server else '?'}schema={prefix}shop"
    with psycopg.connect(server) as driver:
        made = driver.execute("SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s)", [prefix]).fetchall()
    for (schema,) in made:
        drop_schema(server, schema)

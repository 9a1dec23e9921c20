"""Connections to a Postgres database, for changing the schema."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

from eventkit_postgres import address
from eventkit_postgres.errors import translated
from eventkit_postgres.session import OwnConnection, check_encoding
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from .schemas import alone

TIMEOUT = 30.0
"""Seconds to wait for other processes that change the same schema."""

LOCK_TIMEOUT = 5.0
"""Seconds to wait for the lock on a table in use, which also bounds how long later queries wait behind the change."""


def exists(url: str) -> bool:
    """Return true: connecting to a database that does not exist raises the error."""
    return True


def schema(url: str) -> str:
    """Return the schema that the URL names."""
    return address.parse(url).schema


def shown(url: str) -> str:
    """Return the URL without its password."""
    return address.shown(url)


@contextmanager
def reading(url: str) -> Iterator[Connection]:
    """Provide a connection that does not block writers."""
    with _connection(url) as connection:
        yield connection


@contextmanager
def locked(url: str) -> Iterator[Connection]:
    """Provide a connection in a transaction with an exclusive lock on the schema, and commit at the end."""
    with _connection(url) as connection, connection.begin():
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{TIMEOUT * 1000:.0f}ms'")
        alone(connection, schema(url))
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT * 1000:.0f}ms'")
        yield connection


@contextmanager
def _connection(url: str) -> Iterator[Connection]:
    place = address.parse(url)

    def connect() -> OwnConnection:
        # libpq parses the rest of the URL, as it does for the kit.
        driver = OwnConnection.connect(place.conninfo, client_encoding="utf8")
        check_encoding(driver, place)
        driver.patience = inf  # A schema change takes time in proportion to the rows.
        return driver

    engine = create_engine("postgresql+psycopg://", creator=connect, poolclass=NullPool)
    try:
        with engine.connect() as connection:
            yield connection
    except DBAPIError as error:
        raise translated(error.orig, place) or error from error

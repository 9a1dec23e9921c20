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
"""Seconds to wait for other processes, which may be changing the same schema."""

LOCK_TIMEOUT = 5.0
"""Seconds for which a table that is in use may hold a change up, and the change whoever comes after it."""


def exists(url: str) -> bool:
    """Whether there is a database: whoever asks for one that is not there is told so when connecting."""
    return True


def schema(url: str) -> str:
    """The schema that the URL names."""
    return address.parse(url).schema


def shown(url: str) -> str:
    """The URL without its password."""
    return address.shown(url)


@contextmanager
def reading(url: str) -> Iterator[Connection]:
    """A connection that keeps nobody from writing."""
    with _connection(url) as connection:
        yield connection


@contextmanager
def locked(url: str) -> Iterator[Connection]:
    """A connection in a transaction that is alone in changing the schema, and commits at the end."""
    with _connection(url) as connection, connection.begin():
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{TIMEOUT * 1000:.0f}ms'")
        alone(connection, schema(url))
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT * 1000:.0f}ms'")
        yield connection


@contextmanager
def _connection(url: str) -> Iterator[Connection]:
    place = address.parse(url)

    def connect() -> OwnConnection:
        # libpq reads the rest of the URL itself, as it does for the kit.
        driver = OwnConnection.connect(place.conninfo, client_encoding="utf8")
        check_encoding(driver, place)
        driver.patience = inf  # What changes a schema takes as long as there are rows.
        return driver

    engine = create_engine("postgresql+psycopg://", creator=connect, poolclass=NullPool)
    try:
        with engine.connect() as connection:
            yield connection
    except DBAPIError as error:
        raise translated(error.orig, place) or error from error

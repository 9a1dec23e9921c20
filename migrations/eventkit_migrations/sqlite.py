"""Connections to an SQLite file, for changing the schema."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from eventkit_sqlite import address, library
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from eventkit.errors import Busy

TIMEOUT = 30.0
"""Seconds to wait for other processes that change the same schema."""


def exists(url: str) -> bool:
    """Return whether the database exists, without creating it."""
    return os.path.exists(str(_place(url).database))


def schema(url: str) -> None:
    """Return None: a file has no schemas."""


def shown(url: str) -> str:
    """Return the URL, which holds no secret."""
    return url


@contextmanager
def reading(url: str) -> Iterator[Connection]:
    """Provide a connection that does not block writers."""
    with _engine(url, begin="deferred").connect() as connection:
        yield connection


@contextmanager
def locked(url: str) -> Iterator[Connection]:
    """Provide a connection in a transaction that begins with the write lock, and commit at the end."""
    place = address.parse(url)
    # If the file cannot be created, connecting raises the error.
    with suppress(OSError):
        library.create_file(place.path, place.mode)
    engine = _engine(url, begin="immediate")
    event.listen(engine, "connect", lambda connection, _: library.use_wal(connection, TIMEOUT))
    try:
        with engine.begin() as connection:
            yield connection
    except OperationalError as error:
        if not _is_busy(error):
            raise
        raise Busy(f"another process has kept {url} locked for {TIMEOUT:.0f} s: try again when it is done") from error


def _place(url: str) -> URL:
    driver = "sqlite+pysqlite" if url.startswith("sqlite+pysqlite:") else "sqlite+apsw"
    # Parsed by the kit's own code, so that the schema goes into the file that the kit opens.
    return URL.create(driver, database=address.parse(url).path)


def _engine(url: str, begin: str) -> Engine:
    place = _place(url)
    if place.drivername == "sqlite+apsw":
        return create_engine(place, poolclass=NullPool, connect_args={"timeout": TIMEOUT, "begin": begin})

    # By default the stdlib driver begins late and deferred, and runs CREATE outside any transaction.
    own_begin = {"timeout": TIMEOUT, "isolation_level": None}
    engine = create_engine(place, poolclass=NullPool, connect_args=own_begin)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(f"BEGIN {begin}"))
    return engine


def _is_busy(error: Exception) -> bool:
    # SQLite's own message, the same through each driver.
    return "database is locked" in str(error)

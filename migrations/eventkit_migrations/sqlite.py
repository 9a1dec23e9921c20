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
"""Seconds to wait for other processes, which may be changing the same schema."""


def exists(url: str) -> bool:
    """Whether there is a database, found out without creating one."""
    return os.path.exists(str(_place(url).database))


def schema(url: str) -> None:
    """A file has no schemas."""


def shown(url: str) -> str:
    """The URL, which holds no secret."""
    return url


@contextmanager
def reading(url: str) -> Iterator[Connection]:
    """A connection that keeps nobody from writing."""
    with _engine(url, begin="deferred").connect() as connection:
        yield connection


@contextmanager
def locked(url: str) -> Iterator[Connection]:
    """A connection in a transaction that has the write lock from its first moment, and commits at the end."""
    place = address.parse(url)
    # A file that cannot be made is reported by the connection, as one that cannot be opened.
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
    # The kit's own reading of the URL, or the schema might go into another file than the kit opens.
    return URL.create(driver, database=address.parse(url).path)


def _engine(url: str, begin: str) -> Engine:
    place = _place(url)
    if place.drivername == "sqlite+apsw":
        return create_engine(place, poolclass=NullPool, connect_args={"timeout": TIMEOUT, "begin": begin})

    # Left to itself the stdlib driver begins late and deferred, and CREATE is in no transaction at all.
    own_begin = {"timeout": TIMEOUT, "isolation_level": None}
    engine = create_engine(place, poolclass=NullPool, connect_args=own_begin)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(f"BEGIN {begin}"))
    return engine


def _is_busy(error: Exception) -> bool:
    # SQLite's own words, the same whichever driver hands them on.
    return "database is locked" in str(error)

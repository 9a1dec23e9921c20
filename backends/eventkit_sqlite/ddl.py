"""The definitions of the tables, and the connections that change them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from eventkit_migrations import database

from eventkit.errors import Busy

from . import address, library

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

TIMEOUT = 30.0
"""Seconds to wait for other processes that change the same schema."""


class Schema(database.Schema):
    """The tables of one file, for migrations; see `eventkit_migrations.database.Schema`."""

    scheme = dialect = "sqlite"

    def __init__(self, url: str | None = None) -> None:
        self._url = url or ""

    def tables(self, revision: str) -> list[str]:
        """Return the statements that create the tables of a revision."""
        # SQLite stores the text of a definition unchanged, and shows it in .schema.
        parts = files("eventkit_sqlite").joinpath(f"schema_{revision}.sql").read_text("utf-8").strip().split("\n\n")
        return [part for part in parts if not part.startswith("--")]

    def exists(self) -> bool:
        """Return whether the database exists, without creating it."""
        return os.path.exists(address.parse(self._url).path)

    def shown(self) -> str:
        """Return the URL, which holds no secret."""
        return self._url

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Provide a connection that does not block writers."""
        with self._engine("deferred").connect() as connection:
            yield connection

    @contextmanager
    def locked(self) -> Iterator[Connection]:
        """Provide a connection in a transaction that begins with the write lock, and commit at the end."""
        from sqlalchemy import event
        from sqlalchemy.exc import OperationalError

        place = address.parse(self._url)
        # If the file cannot be created, connecting raises the error.
        with suppress(OSError):
            library.create_file(place.path, place.mode)
        engine = self._engine("immediate")
        event.listen(engine, "connect", lambda connection, _: library.use_wal(connection, TIMEOUT))
        try:
            with engine.begin() as connection:
                yield connection
        except OperationalError as error:
            if "database is locked" not in str(error):  # SQLite's own message, the same through each driver.
                raise
            raise Busy(
                f"another process has kept {self._url} locked for {TIMEOUT:.0f} s: try again when it is done"
            ) from error

    def _engine(self, begin: str) -> Engine:
        from sqlalchemy import URL, create_engine, event
        from sqlalchemy.pool import NullPool

        driver = "sqlite+pysqlite" if self._url.startswith("sqlite+pysqlite:") else "sqlite+apsw"
        # Parsed by the kit's own code, so that the schema goes into the file that the kit opens.
        place = URL.create(driver, database=address.parse(self._url).path)
        if driver == "sqlite+apsw":
            return create_engine(place, poolclass=NullPool, connect_args={"timeout": TIMEOUT, "begin": begin})

        # By default the stdlib driver begins late and deferred, and runs CREATE outside any transaction.
        own_begin: dict[str, Any] = {"timeout": TIMEOUT, "isolation_level": None}
        engine = create_engine(place, poolclass=NullPool, connect_args=own_begin)
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(f"BEGIN {begin}"))
        return engine


def schema(url: str | None = None, name: str = "") -> Schema:
    """Return the schema of the file of *url*, or that of the connection of an application."""
    return Schema(url)

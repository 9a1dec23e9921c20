"""The tables, as `eventkit_migrations` creates and drops them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

from eventkit_migrations import database
from sqlalchemy import Connection, create_engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from eventkit.errors import Busy

from .file import parse
from .statements import NOW

TIMEOUT = 30
"""Seconds to wait for another process that creates the tables."""


class Schema(database.Schema):
    """The tables of one file; see `eventkit_migrations.database.Schema`."""

    scheme = "elsewhere"
    dialect = "sqlite"

    def __init__(self, url: str | None) -> None:
        self._url = url or ""

    def tables(self, revision: str) -> list[str]:
        """Return the statements that create or change the tables of a revision."""
        text = files("eventkit_elsewhere").joinpath(f"schema_{revision}.sql").read_text("utf-8")
        return text.replace(":now", NOW).strip().split("\n\n")[1:]

    def exists(self) -> bool:
        """Return whether there is a file."""
        return os.path.exists(parse(self._url).path)

    def shown(self) -> str:
        """Return the URL, which holds no secret."""
        return self._url

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Provide a connection that only reads."""
        with self._begun("DEFERRED") as connection:
            yield connection

    @contextmanager
    def locked(self) -> Iterator[Connection]:
        """Provide a connection that holds the write lock, and commit at the end."""
        try:
            with self._begun("IMMEDIATE") as connection:
                yield connection
        except OperationalError as error:
            if "locked" not in str(error):
                raise
            raise Busy(f"{self._url} was locked for {TIMEOUT} s: try again when the other process is done") from error

    @contextmanager
    def _begun(self, how: str) -> Iterator[Connection]:
        options: dict[str, Any] = {"timeout": TIMEOUT, "isolation_level": None}
        place = f"sqlite+pysqlite:///{parse(self._url).path}"
        engine = create_engine(place, poolclass=NullPool, connect_args=options)
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(f"BEGIN {how}"))
        with engine.begin() as connection:
            yield connection

"""A database file: its URL, connections to it, and SQLite's errors as those of eventkit."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from eventkit.checks import choice, number
from eventkit.errors import Busy, DatabaseError, EventkitError, NotMigrated, Unavailable


class File(NamedTuple):
    """A database file, with the options of its URL."""

    url: str
    path: str
    durability: str
    busy_timeout: float
    fallback_poll: float
    max_payload: int

    def open(self) -> sqlite3.Connection:
        """Return a connection for any thread, without a transaction of its own accord."""
        connection = sqlite3.connect(self.path, self.busy_timeout, isolation_level=None, check_same_thread=False)
        connection.execute(f"PRAGMA synchronous = {self.durability}")
        return connection

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise SQLite's errors as those of eventkit."""
        try:
            yield
        except sqlite3.Error as error:
            raise self.translated(error) from error

    def translated(self, error: sqlite3.Error) -> EventkitError:
        """Return *error* with its remedy."""
        text, code = f"{self.path}: {error}", getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Busy(f"{text}: another connection is writing; try again, or raise busy_timeout in the URL")
        if "no such table" in str(error):
            return NotMigrated(f"{text}: run python -m eventkit_migrations upgrade {self.url}")
        if code in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT):
            return DatabaseError(f"{text}: look for a constraint or a trigger that refuses the statement")
        return Unavailable(f"{text}: check the disk, its free space, and the permissions of the file and its folder")


def parse(url: str) -> File:
    """Return the file that *url* names; raise ValueError if the URL is invalid."""
    place, _, query = url.partition("://")[2].partition("?")
    host, _, path = place.partition("/")
    given: dict[str, Any] = {"durability": "normal", "busy_timeout": "5", "fallback_poll": "5", "max_payload": "524288"}
    options = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := options.keys() - given.keys():
        raise ValueError(f"{url!r} has the unknown option {min(unknown)!r}: the options are {', '.join(given)}")
    if host or not path:
        raise ValueError(f"{url!r} names no file: write elsewhere:///relative.db or elsewhere:////absolute.db")
    given |= options
    return File(
        url,
        os.path.realpath(unquote(path)),
        choice("durability", given["durability"], ("full", "normal", "off")),
        number("busy_timeout", given["busy_timeout"]),
        number("fallback_poll", given["fallback_poll"]),
        int(number("max_payload", given["max_payload"])),
    )

"""Connections that read and change the schema.

Another process may write between the reads and the writes of a transaction.  So each transaction here begins with
an exclusive lock, and what it reads stays true until it commits: on SQLite the write lock of the file, on Postgres
an advisory lock.  Each kind of database has its own module, loaded by the URL's scheme, because its driver need not
be installed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from sqlalchemy import Connection

from eventkit.errors import UnknownBackend

_MODULES = {
    "sqlite": "sqlite",
    "sqlite+apsw": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "postgresql": "postgres",
    "postgres": "postgres",
    "postgresql+psycopg": "postgres",
}


def exists(url: str) -> bool:
    """Return whether the database exists, without creating it."""
    there: bool = _module(url).exists(url)
    return there


def schema(url: str) -> str | None:
    """Return the schema that the URL names; None where the kind of database has none."""
    name: str | None = _module(url).schema(url)
    return name


def shown(url: str) -> str:
    """Return the URL for messages, without a password."""
    text: str = _module(url).shown(url)
    return text


@contextmanager
def reading(url: str) -> Iterator[Connection]:
    """Provide a connection that does not block writers."""
    with _module(url).reading(url) as connection:
        yield connection


@contextmanager
def locked(url: str) -> Iterator[Connection]:
    """Provide a connection in a transaction with an exclusive lock on the schema, and commit at the end."""
    with _module(url).locked(url) as connection:
        yield connection


def _module(url: str) -> Any:
    name = _MODULES.get(scheme := url.partition(":")[0])
    if name is None:
        raise UnknownBackend(f"eventkit has no schema for {scheme!r}, only for {', '.join(_MODULES)}")
    try:
        return import_module(f"eventkit_migrations.{name}")
    except ImportError as error:
        raise UnknownBackend(
            f"the driver for {scheme!r} is missing ({error}): pip install 'eventkit-db[{name}]'"
        ) from error

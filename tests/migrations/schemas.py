"""What is in a database's schema, as the migrations' tests look at it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, NullPool, create_engine


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    with create_engine(url, poolclass=NullPool).begin() as connection:
        yield connection


def schema(url: str) -> set[tuple[str, ...]]:
    """Every definition that is eventkit's: its tables, and the indexes and triggers on them."""
    sql = "SELECT type, name, sql FROM sqlite_master WHERE tbl_name GLOB 'eventkit_*'"
    with connected(url) as connection:
        return {tuple(row) for row in connection.exec_driver_sql(sql)}


def tables(url: str) -> set[str]:
    with connected(url) as connection:
        rows = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").all()
    return {row[0] for row in rows} - {"sqlite_sequence"}


def journal_mode(url: str) -> object:
    with connected(url) as connection:
        return connection.exec_driver_sql("PRAGMA journal_mode").scalar()


def python(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

"""The definitions of the tables, and the connections that change them.

The views of plain SQL, in `functions`, are what the functions are on Postgres: no part of a revision, and replaced by
any migration.  A trigger does what stands below ``-- view: name (columns)`` for each row that is inserted into that
view.  It takes the steps of an operation, with the statements of the operation: ``:Lease`` stands for the statement of
that heading, and each of its parameters for the column of the same name in the row.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from importlib.resources import files
from textwrap import indent
from typing import TYPE_CHECKING, Any

from eventkit_migrations import database

from eventkit.errors import Busy
from eventkit.statements import in_files

from . import address, library
from .statements import NOW

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

TIMEOUT = 30.0
"""Seconds to wait for other processes that change the same schema."""


class Schema(database.Schema):
    """The tables of one file, for migrations; see `eventkit_migrations.database.Schema`."""

    scheme = dialect = "sqlite"
    functions_in = ("eventkit_functions", "hash")

    def __init__(self, url: str | None = None) -> None:
        self._url = url or ""
        self.functions_hash = functions_hash()

    def tables(self, revision: str) -> list[str]:
        """Return the statements that create or change the tables of a revision."""
        # SQLite stores the text of a definition unchanged, and shows it in .schema.
        parts = files("eventkit_sqlite").joinpath(f"schema_{revision}.sql").read_text("utf-8").strip().split("\n\n")
        return [part for part in parts if not part.startswith("--")]

    def functions(self, replace: bool = False) -> list[str]:
        """Return the statements that create the views of plain SQL, or replace those of another version."""
        made = [*_functions(), f"CREATE VIEW eventkit_functions AS SELECT '{functions_hash()}' AS hash"]
        return [*self.functions_dropped(), *made] if replace else made

    def functions_dropped(self) -> list[str]:
        """Return the statements that drop the views, and with them their triggers."""
        names = re.findall(r"^CREATE VIEW (\w+)", "\n".join(_functions()), re.MULTILINE)
        return [f"DROP VIEW IF EXISTS {name}" for name in ("eventkit_functions", *names)]

    def around_functions(self, statements: list[str]) -> list[str]:
        """Return *statements* without the views meanwhile: SQLite refuses a change that a trigger does not fit."""
        return [*self.functions_dropped(), *statements, *self.functions()]

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


@cache
def functions_hash() -> str:
    """Return the hash of the views of plain SQL, which `connect` compares with that of the database."""
    return sha256("\n".join(" ".join(statement.split()) for statement in _functions()).encode()).hexdigest()


@cache
def _functions() -> list[str]:
    # A trigger returns no rows.
    steps = {heading: text.partition("\nRETURNING")[0] for _, heading, text in in_files("eventkit_sqlite")}
    folder = files("eventkit_sqlite").joinpath("functions")
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    whole = "\n\n".join(folder.joinpath(name).read_text("utf-8") for name in names)
    whole = _VIEW.sub(_written_to, re.sub(r"^--(?! view).*\n", "", whole, flags=re.MULTILINE))
    whole = re.sub(r":([A-Z]\w+)", lambda found: steps[found[1]], whole)
    # SQLite 3.37 could not read a file with this operator at all.
    whole = re.sub(r"(\w+) ->> (\d+)", r"json_extract(\1, '$[\2]')", whole)
    bound = re.sub(r":([a-z]\w*)", lambda found: NOW if found[1] == "now" else f'NEW."{found[1]}"', whole)
    return [statement.strip() for statement in re.split(r"\n{2,}", bound) if statement.strip()]


_VIEW = re.compile(r"^-- view: (\w+) \((.*?)\)( WHEN .*)?\n((?:.+\n)+)", re.MULTILINE)


def _written_to(found: re.Match[str]) -> str:
    """Return a view without rows, and the trigger for those that are inserted into it."""
    name, columns, when, body = found.groups("")
    nulls = ", ".join("NULL" for _ in columns.split(","))
    view = f"CREATE VIEW {name} ({columns}) AS SELECT {nulls} WHERE false"
    return f"{view}\n\nCREATE TRIGGER {name}_do INSTEAD OF INSERT ON {name}{when}\nBEGIN\n{indent(body, ' ' * 4)}END\n"


def schema(url: str | None = None, name: str = "") -> Schema:
    """Return the schema of the file of *url*, or that of the connection of an application."""
    return Schema(url)

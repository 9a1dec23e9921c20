"""The schemas of the backends, which own their tables and functions.

A backend is found by the scheme of a URL, by its entry point.  Its function ``schema(url)`` returns the `Schema`.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol, cast

from eventkit.errors import UnknownBackend
from eventkit.kit import backend_of
from eventkit_migrations import VERSION_TABLE

if TYPE_CHECKING:
    from sqlalchemy import Connection


_CREATED = re.compile(r"^CREATE (OR REPLACE )?(?:UNLOGGED )?(VIEW|TABLE|SEQUENCE|INDEX) (\w+)", re.MULTILINE)
_ADDED = re.compile(r"^ALTER TABLE (\w+) ADD COLUMN (\w+)", re.MULTILINE)
_REPLACED = re.compile(r"^DROP (VIEW|INDEX) (\w+)", re.MULTILINE)
_TRIGGER = re.compile(r"^CREATE TRIGGER (\w+) .* ON (\w+)", re.MULTILINE)
_RENAMED = re.compile(r"^ALTER TABLE (\w+) RENAME COLUMN (\w+) TO (\w+)", re.MULTILINE)


class Schema(Protocol):
    """The definitions of a backend, and the connections that change them.

    Another process may write between the reads and the writes of a transaction.  So each transaction begins with an
    exclusive lock, and what it reads stays true until it commits.  What has a body here is for a database without
    schemas and functions, whose transactions begin with a lock.
    """

    scheme: str
    """A scheme of the backend's URLs, which names its tables: several backends may share a dialect."""

    dialect: str
    """SQLAlchemy's name for the kind of database."""

    name: str | None = None
    """The schema of the tables; None where the kind of database has none."""

    functions_hash: str | None = None
    """The hash of the functions, which a migration stores and compares; None without functions."""

    functions_in: tuple[str, str] = (VERSION_TABLE, "functions_hash")
    """The table and the column that store the hash; or a view, which the functions contain."""

    def tables(self, revision: str) -> list[str]:
        """Return the statements that create or change the tables of a revision."""
        ...

    def dropped(self, revision: str) -> list[str]:
        """Return the statements that undo those of a revision, in the reverse order."""
        undone: list[str] = []
        views: list[str] = []  # They come last, when the tables have their former columns.
        for statement in reversed(self.tables(revision)):
            if found := _CREATED.search(statement):
                undone.append(f"DROP {found[2]} {found[3]}")
                if found[1]:
                    views.append(self._earlier(revision, found[3]))
            elif found := _TRIGGER.search(statement):
                undone.append(f"DROP TRIGGER {found[1]}" + (f" ON {found[2]}" if self.name is not None else ""))
            elif found := _RENAMED.search(statement):
                undone.append(f"ALTER TABLE {found[1]} RENAME COLUMN {found[3]} TO {found[2]}")
            elif statement.startswith(("DROP TRIGGER IF EXISTS", "UPDATE")):  # It is for both directions.
                undone.append(statement)
            elif found := _ADDED.search(statement):
                undone.append(f"ALTER TABLE {found[1]} DROP COLUMN {found[2]}")
            elif found := _REPLACED.search(statement):
                (views if found[1] == "VIEW" else undone).append(self._earlier(revision, found[2]))
        return undone + views

    def _earlier(self, revision: str, name: str) -> str:
        """Return the statement of an earlier revision that creates a view or an index."""
        before = (f"{number:04}" for number in range(int(revision) - 1, 0, -1))
        made = (statement for one in before for statement in reversed(self.tables(one)))
        return next(one for one in made if (found := _CREATED.search(one)) and found[3] == name)

    def functions(self, replace: bool = False) -> list[str]:
        """Return the statements that create the functions, or replace those of another version."""
        return []

    def functions_dropped(self) -> list[str]:
        """Return the statements that drop the functions."""
        return []

    def around_functions(self, statements: list[str]) -> list[str]:
        """Return *statements*, which change tables, with what it takes that no function is in the way."""
        return statements

    def prepared(self, statement: str) -> str:
        """Return a statement for a script, with the schema in its names."""
        return statement

    def escaped(self, statement: str) -> str:
        """Return a prepared statement for the driver."""
        return statement

    def lock(self, connection: Connection) -> None:
        """Wait until no other transaction changes the schema, and lock it until the transaction ends."""
        return

    def make_room(self, connection: Connection) -> None:
        """Create the schema if it does not exist."""
        return

    def exists(self) -> bool:
        """Return whether the database exists, without creating it."""
        return True  # Connecting to one that does not exist raises the error.

    def shown(self) -> str:
        """Return the URL for messages, without a password."""
        ...

    def reading(self) -> AbstractContextManager[Connection]:
        """Provide a connection that does not block writers."""
        ...

    def locked(self) -> AbstractContextManager[Connection]:
        """Provide a connection in a transaction with an exclusive lock on the schema, and commit at the end."""
        ...


def of(url: str) -> Schema:
    """Return the schema of the database at *url*."""
    if ":" not in url:
        raise UnknownBackend(f"{url!r} is not a URL: write it as in 'sqlite:///events.db'")
    backend: Any = backend_of(url)
    if not hasattr(backend, "schema"):
        raise UnknownBackend(
            f"the backend for {url.partition(':')[0]!r} has no function schema(url): create its tables"
        )
    return cast(Schema, backend.schema(url))


def of_scheme(scheme: str, name: str = "eventkit") -> Schema:
    """Return the schema called *name* of the backend of a scheme, or of SQLAlchemy's dialect of the same name."""
    backend: Any = backend_of(f"{scheme}:")
    return cast(Schema, backend.schema(None, name))


def shown(url: str) -> str:
    """Return the URL for messages, without a password."""
    return of(url).shown()


class Recorder:
    """A stand-in for the connection of a revision, which only records the statements."""

    def __init__(self) -> None:
        self.statements: list[str] = []


def execute(connection: Connection | Recorder, statement: str, schema: Schema) -> None:
    """Execute a statement of a revision in *schema*."""
    text = schema.prepared(statement)
    if isinstance(connection, Recorder):
        connection.statements.append(text)
    else:
        connection.exec_driver_sql(schema.escaped(text))


@cache
def schema_hash(scheme: str, revision: str) -> str:
    """Return the hash of the tables from nothing to *revision*, without comments and layout.

    `eventkit.connect` compares it with the stored one, so the revisions are loaded without Alembic.
    """
    recorder, schema = Recorder(), of_scheme(scheme)
    for name in sorted(file.name for file in files("eventkit_migrations").joinpath("versions").iterdir()):
        if name.endswith(".py") and name.partition("_")[0] <= revision:
            import_module(f"eventkit_migrations.versions.{name.removesuffix('.py')}").upgrade(recorder, schema)
    functions = {*map(schema.prepared, [*schema.functions(), *schema.functions_dropped()])}
    statements = (
        " ".join(re.sub(r"--.*", "", statement).split())
        for statement in recorder.statements
        if statement not in functions
    )
    return sha256("\n".join(statements).encode()).hexdigest()

"""The schema of eventkit: creation, upgrades and downgrades.

``eventkit.connect`` creates the schema in a new database, but does not upgrade an older one.  To upgrade::

    python -m eventkit_migrations upgrade sqlite:///shop.db

An application with its own Alembic migrations calls `upgrade_op` and `downgrade_op` in one of them, and passes
`include_object` to ``context.configure``.  ``eventkit_version`` stores the revision of the database.  A table of
Postgres in use blocks a change for five seconds at most; then the change fails with `Busy` and has no effect.

Importing this package loads neither Alembic nor SQLAlchemy, which are needed only to change a schema, not to
check that it is current.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from alembic.runtime.migration import MigrationContext
    from sqlalchemy import Connection

__all__ = [
    "HEAD",
    "UNRELEASED",
    "VERSION_TABLE",
    "check",
    "current",
    "downgrade",
    "downgrade_op",
    "include_object",
    "objects",
    "schema_hash",
    "script",
    "upgrade",
    "upgrade_op",
]

HEAD = "0003"
"""The newest revision, which this version of eventkit requires."""

VERSION_TABLE = "eventkit_version"
"""The table with one row, whose ``version_num`` is the revision of the database."""

UNRELEASED = (
    "has the eventkit tables of an unreleased version, which differ from those of this one: use that version to write "
    "them to a file and drop them (eventkit export FILE, python -m eventkit_migrations downgrade <url> --to base), and "
    "this one to read it (eventkit import FILE); or create a new database"
)
"""The error for a database whose stored hash is not `schema_hash`, with the remedy."""


class Op(Protocol):
    """``alembic.op``, or an ``Operations`` object."""

    def get_bind(self) -> Connection: ...
    def get_context(self) -> MigrationContext: ...


def upgrade(url: str, to: str = "head") -> None:
    """Upgrade the database at *url* to revision *to*, in one transaction; do nothing if it is there or beyond.

    Also replace the functions of another version of eventkit by those of this one; nothing else replaces functions.
    Any number of processes may do so at once, also on a new file: one of them does it, and the others wait for it
    (30 seconds at most, then `Busy`).  If the process is killed, the schema is unchanged.  Raise `NotMigrated` if the
    database is newer than this code.
    """
    from . import database, revisions

    schema = database.of(url)
    with schema.locked() as connection:
        revisions.upgrade(connection, to, schema)


def downgrade(url: str, to: str) -> None:
    """Downgrade the database at *url* to revision *to*, in one transaction; do nothing if it is there or below.

    Drop everything that the undone revisions created, with its data: ``base`` drops everything.
    """
    from . import database, revisions

    schema = database.of(url)
    if schema.exists():
        with schema.locked() as connection:
            revisions.downgrade(connection, to, schema)


def current(url: str) -> str | None:
    """Return the revision of the database at *url*; None if it has no eventkit schema or does not exist.

    Raise `NotMigrated` if its tables are those of an unreleased version; so do all functions that change the schema.
    """
    from . import database, revisions

    schema = database.of(url)
    if not schema.exists():
        return None
    with schema.reading() as connection:
        return revisions.current(connection, schema)


def check(place: str, url: str, revision: str | None) -> None:
    """Raise `NotMigrated` unless *revision*, that of the database at *place*, is the newest."""
    from eventkit.errors import NotMigrated

    if revision == HEAD:
        return
    found, remedy = "no eventkit tables", f"run python -m eventkit_migrations upgrade {url}"
    if revision is not None:
        found = f"the eventkit tables of revision {revision}, older than this code's {HEAD}"
        if revision > HEAD:
            found, remedy = found.replace("older", "newer"), "install a newer eventkit"
    raise NotMigrated(f"{place} has {found}: {remedy}")


def schema_hash(scheme: str) -> str:
    """Return the hash of the newest tables of ``sqlite``, ``postgresql`` or the scheme of another backend.

    The migrations store it in ``eventkit_identity``.
    """
    from .database import schema_hash

    return schema_hash(scheme, HEAD)


def script(url: str) -> str:
    """Return the SQL that `upgrade` would execute on the database at *url*, for manual execution.

    Empty if the database is at the newest revision and has the functions of this version.
    """
    from . import database, revisions

    schema = database.of(url)
    if not schema.exists():
        return revisions.script(None, HEAD, schema)
    with schema.reading() as connection:
        at, functions = revisions.current(connection, schema), revisions.stored_functions(connection, schema)
    return revisions.script(at, HEAD, schema, functions)


def objects(scheme: str) -> list[str]:
    """Return the names of the tables, indexes, views and triggers of the newest revision of the backend of *scheme*."""
    from . import revisions

    return revisions.objects(scheme)


def upgrade_op(op: Op, to: str = "head", *, at: str = "base", schema: str = "eventkit") -> None:
    """Upgrade on the connection and in the transaction of the application's migration that calls it.

    Name the revision: ``head`` means another schema with every version of eventkit.  *schema* is the schema of the
    tables on Postgres.  In Alembic's offline mode (``alembic upgrade --sql``) it writes the statements from *at* to
    *to*, because a script cannot read the revision of the database.
    """
    from . import database, revisions

    context = op.get_context()
    place = database.of_scheme(context.dialect.name, schema)
    if context.as_sql:
        revisions.write(context, at, to, place)
    else:
        revisions.upgrade(op.get_bind(), to, place)


def downgrade_op(op: Op, to: str, *, at: str = "head", schema: str = "eventkit") -> None:
    """Downgrade on the connection and in the transaction of the application's migration that calls it.

    In Alembic's offline mode it writes the statements from *at* to *to*.
    """
    from . import database, revisions

    context = op.get_context()
    place = database.of_scheme(context.dialect.name, schema)
    if context.as_sql:
        revisions.write(context, at, to, place)
    else:
        revisions.downgrade(op.get_bind(), to, place)


def include_object(object: object, name: str | None, type_: str, reflected: bool, compare_to: object | None) -> bool:
    """Return false for eventkit's tables: ``context.configure(include_object=…)`` then leaves them alone."""
    return not (type_ == "table" and reflected and (name or "").startswith("eventkit_"))

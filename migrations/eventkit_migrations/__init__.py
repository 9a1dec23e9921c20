"""eventkit's tables, from nothing to the newest schema and back.

``eventkit.connect`` creates the schema in a new database by itself; an older schema it leaves to you::

    python -m eventkit_migrations upgrade sqlite:///shop.db

An application with an Alembic tree of its own can carry eventkit's tables in it, so that one
``alembic upgrade head`` does both.  In one of its migrations::

    def upgrade():
        eventkit_migrations.upgrade_op(op, to="0001")

    def downgrade():
        eventkit_migrations.downgrade_op(op, to="base")

and in its ``env.py``, so that ``--autogenerate`` does not propose to drop what it has no model of::

    context.configure(..., include_object=eventkit_migrations.include_object)

The revision a database is at stands in the table ``eventkit_version``, beside the application's own
``alembic_version``.

On Postgres the tables are in a schema of their own, ``eventkit`` or what ``?schema=`` in the URL says, made with
them by whoever has the right to; in an application's tree the keyword ``schema=`` says which.  A table in use holds a
change up for five seconds at most, then it is `Busy` and nothing has happened::

    python -m eventkit_migrations upgrade "postgresql://localhost/shop?schema=tenant_7"

Importing this package loads neither Alembic nor SQLAlchemy: both are needed when a schema changes, and not by a
process that finds it current.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from alembic.runtime.migration import MigrationContext
    from sqlalchemy import Connection

__all__ = [
    "HEAD",
    "VERSION_TABLE",
    "current",
    "downgrade",
    "downgrade_op",
    "include_object",
    "objects",
    "script",
    "upgrade",
    "upgrade_op",
]

HEAD = "0001"
"""The newest revision, which this version of eventkit works on."""

VERSION_TABLE = "eventkit_version"
"""The table with one row, whose ``version_num`` is the database's revision."""


class Op(Protocol):
    """``alembic.op``, or an ``Operations`` object."""

    def get_bind(self) -> Connection: ...
    def get_context(self) -> MigrationContext: ...


def upgrade(url: str, to: str = "head") -> None:
    """Bring the database at *url* to revision *to*, in one transaction; nothing if it is there or beyond.

    Any number of processes may do so at once, on a new file too: one of them does it, the others wait
    (30 seconds at most, then `Busy`) and find it done.  A process killed on the way leaves the schema as it
    was.  `NotMigrated` if the database is newer than this code.
    """
    from . import database, revisions

    with database.locked(url) as connection:
        revisions.upgrade(connection, to, database.schema(url))


def downgrade(url: str, to: str) -> None:
    """Take the database at *url* back to revision *to*, in one transaction; nothing if it is there or below.

    What the undone revisions had created is dropped with the data in it: ``base`` drops everything.
    """
    from . import database, revisions

    if database.exists(url):
        with database.locked(url) as connection:
            revisions.downgrade(connection, to, database.schema(url))


def current(url: str) -> str | None:
    """The revision of the database at *url*; None if it has no eventkit schema or does not exist."""
    from . import database, revisions

    if not database.exists(url):
        return None
    with database.reading(url) as connection:
        return revisions.current(connection, database.schema(url))


def script(url: str) -> str:
    """What `upgrade` would execute on the database at *url*, as SQL for whoever does that by hand.

    Empty if the database is at the newest revision.
    """
    from . import database, revisions

    return revisions.script(current(url), HEAD, database.schema(url))


def objects(dialect: str) -> list[str]:
    """The names of the tables, indexes, views and triggers of the newest revision, on ``sqlite`` or ``postgresql``."""
    from . import revisions

    return revisions.objects(dialect)


def upgrade_op(op: Op, to: str = "head", *, schema: str = "eventkit") -> None:
    """`upgrade` on the connection and in the transaction of the application's migration that calls it.

    Name the revision: a migration that says ``head`` means another schema with every version of eventkit.
    *schema* is where the tables go on Postgres.  In Alembic's offline mode (``alembic upgrade --sql``) it writes the
    statements from an empty database to *to*, because a script cannot look at which revision the database is.
    """
    from . import revisions

    context = op.get_context()
    place = schema if context.dialect.name == "postgresql" else None
    if context.as_sql:
        revisions.write(context, None, to, place)
    else:
        revisions.upgrade(op.get_bind(), to, place)


def downgrade_op(op: Op, to: str, *, schema: str = "eventkit") -> None:
    """`downgrade` on the connection and in the transaction of the application's migration that calls it.

    In Alembic's offline mode it writes the statements from the newest revision to *to*.
    """
    from . import revisions

    context = op.get_context()
    place = schema if context.dialect.name == "postgresql" else None
    if context.as_sql:
        revisions.write(context, HEAD, to, place)
    else:
        revisions.downgrade(op.get_bind(), to, place)


def include_object(object: object, name: str | None, type_: str, reflected: bool, compare_to: object | None) -> bool:
    """For ``context.configure(include_object=…)``: autogenerate leaves eventkit's tables alone."""
    return not (type_ == "table" and reflected and (name or "").startswith("eventkit_"))

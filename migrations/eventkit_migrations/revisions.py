"""The revisions, and the execution of those between two of them on a connection.

The history is linear, so a revision is a position in it and a migration is a slice of it.  Alembic
loads the revision files and keeps the version table.  Its ``alembic.op`` and ``alembic.context`` are not used:
they are global to the process, and belong to the application, whose own migration may be running.  A revision's
functions take the connection instead.
"""

import re
from functools import cache
from importlib.resources import files

from alembic.runtime.migration import MigrationContext
from alembic.script import Script, ScriptDirectory
from sqlalchemy import Connection, inspect

from eventkit_migrations import UNRELEASED, VERSION_TABLE

from .schemas import Recorder, alone, keep_hash, schema_hash

_NAME = r"(?:UNLOGGED )?(?:UNIQUE )?(?:TABLE|INDEX|VIEW|TRIGGER) (?:\"\w+\"\.)?(\w+)"
_MADE, _DROPPED = re.compile(f"CREATE {_NAME}"), re.compile(f"DROP {_NAME}")


def current(connection: Connection, schema: str | None) -> str | None:
    """Return the revision of the database, known to this code or not; None without a schema.

    Raise `NotMigrated` if its tables are those of an unreleased version.
    """
    from eventkit.errors import NotMigrated

    revision = _context(connection, schema).get_current_revision()
    if revision in _names() and stored_hash(connection, schema) != schema_hash(connection.dialect.name, revision):
        raise NotMigrated(f"the database {UNRELEASED}")
    return revision


def stored_hash(connection: Connection, schema: str | None) -> str | None:
    """Return the hash that `keep_hash` has stored, without a statement that can fail."""
    if not inspect(connection).has_table("eventkit_identity", schema):
        return None
    place = "eventkit_identity" if schema is None else f'"{schema}".eventkit_identity'
    found = connection.exec_driver_sql(f"SELECT * FROM {place}").mappings().all()
    return found[0].get("schema_hash") if found else None


def upgrade(connection: Connection, to: str, schema: str | None) -> None:
    """Run the revisions after the database's, up to *to*; do nothing if it is there or beyond."""
    context = _context(connection, schema)
    alone(connection, schema)
    make_room(connection, schema)
    for script in _history()[_reached(connection, schema) : _position(to)]:
        script.module.upgrade(connection, schema)
        context.stamp(_scripts(), script.revision)
        keep_hash(connection, script.revision, schema)


def downgrade(connection: Connection, to: str, schema: str | None) -> None:
    """Undo the revisions of the database down to *to*; do nothing if it is there or below."""
    context = _context(connection, schema)
    alone(connection, schema)
    for script in reversed(_history()[_position(to) : _reached(connection, schema)]):
        script.module.downgrade(connection, schema)
        below = _names()[_position(script.revision) - 1]
        context.stamp(_scripts(), below)
        keep_hash(connection, below, schema)


def script(at: str | None, to: str, schema: str | None) -> str:
    """Return the transaction that takes a database from the revision *at* to *to*; empty if they are the same."""
    statements = between(at, to, schema)
    return ";\n\n".join(["BEGIN", *statements, "COMMIT"]) + ";\n" if statements else ""


def write(context: MigrationContext, at: str | None, to: str, schema: str | None) -> None:
    """Write the statements from the revision *at* to *to* into the script of Alembic's offline mode."""
    for statement in between(at, to, schema):
        context.impl.static_output(f"{statement};")


def between(at: str | None, to: str, schema: str | None) -> list[str]:
    """Return the statements from the revision *at* to *to*, up or down, including that for the version table."""
    here, there = _position(at or "base"), _position(to)
    recorder = Recorder("sqlite" if schema is None else "postgresql")
    for script in _history()[here:there]:
        script.module.upgrade(recorder, schema)
    for script in reversed(_history()[there:here]):
        script.module.downgrade(recorder, schema)
    if here == there:
        return []
    keep_hash(recorder, _names()[there], schema)
    version = VERSION_TABLE if schema is None else f'"{schema}".{VERSION_TABLE}'
    first = [] if schema is None or here else [f'CREATE SCHEMA IF NOT EXISTS "{schema}"']
    if not here:
        # SQLite keeps the text of a definition: this is exactly Alembic's.
        first.append(
            f"CREATE TABLE {version} (\n\tversion_num VARCHAR(32) NOT NULL, \n\t"
            f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num)\n)"
        )
        last = f"INSERT INTO {version} (version_num) VALUES ('{_names()[there]}')"
    elif there:
        last = f"UPDATE {version} SET version_num = '{_names()[there]}'"
    else:
        last = f"DELETE FROM {version}"
    return [*first, *recorder.statements, last]


def objects(dialect: str) -> list[str]:
    """Return the names of the objects that the revisions create and do not drop again."""
    recorder = Recorder(dialect)
    for script in _history():
        script.module.upgrade(recorder, None if dialect == "sqlite" else "eventkit")
    made: list[str] = []
    for statement in recorder.statements:
        if found := _MADE.match(statement):
            made.append(found[1])
        elif found := _DROPPED.match(statement):
            made.remove(found[1])
    return made


def make_room(connection: Connection, schema: str | None) -> None:
    """Create the schema if it does not exist, where the kind of database has schemas."""
    # The query comes first because a role may lack the right to create a schema that already exists.
    found = f"SELECT 1 FROM pg_namespace WHERE nspname = '{schema}'"
    if schema is not None and not connection.exec_driver_sql(found).fetchall():
        connection.exec_driver_sql(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')


def _context(connection: Connection, schema: str | None) -> MigrationContext:
    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE, "version_table_schema": schema})


def _reached(connection: Connection, schema: str | None) -> int:
    """Return the number of revisions that the database has."""
    from eventkit.errors import NotMigrated

    revision = current(connection, schema)
    if revision is None:
        return 0
    if revision not in _names():
        raise NotMigrated(
            f"the database's eventkit schema is {revision}, which this eventkit does not know (it ends at "
            f"{_names()[-1]}): install the eventkit that made it, or a newer one"
        )
    return _names().index(revision)


def _position(to: str) -> int:
    if to == "head":
        return len(_history())
    if to not in _names():
        raise ValueError(f"eventkit has no schema revision {to!r}: use head or one of {', '.join(_names())}")
    return _names().index(to)


@cache
def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(files("eventkit_migrations")))


@cache
def _history() -> tuple[Script, ...]:
    return tuple(reversed([*_scripts().walk_revisions()]))


@cache
def _names() -> tuple[str, ...]:
    """Return every revision in order; ``base`` is the one before the first."""
    return ("base", *(script.revision for script in _history()))

"""The revisions that exist, and running those between two of them on a connection.

The history is one line, so a revision is a position in it and a migration is a slice of it.  Alembic
loads the revision files and keeps the version table.  Its ``alembic.op`` and ``alembic.context`` are left
alone: they are global to the process, and belong to the application whose own migration may be running at
this moment.  A revision's functions are handed the connection instead.
"""

import re
from functools import cache
from importlib.resources import files

from alembic.runtime.migration import MigrationContext
from alembic.script import Script, ScriptDirectory
from sqlalchemy import Connection

from eventkit_migrations import VERSION_TABLE

from .schemas import Recorder, alone

_NAME = r"(?:UNLOGGED )?(?:UNIQUE )?(?:TABLE|INDEX|VIEW|TRIGGER) (?:\"\w+\"\.)?(\w+)"
_MADE, _DROPPED = re.compile(f"CREATE {_NAME}"), re.compile(f"DROP {_NAME}")


def current(connection: Connection, schema: str | None) -> str | None:
    """The revision the database is at, known to this code or not; None without a schema."""
    return _context(connection, schema).get_current_revision()


def upgrade(connection: Connection, to: str, schema: str | None) -> None:
    """Run what lies between the database's revision and *to*; nothing if it is there or beyond."""
    context = _context(connection, schema)
    alone(connection, schema)
    make_room(connection, schema)
    for script in _history()[_reached(context) : _position(to)]:
        script.module.upgrade(connection, schema)
        context.stamp(_scripts(), script.revision)


def downgrade(connection: Connection, to: str, schema: str | None) -> None:
    """Undo what lies between the database's revision and *to*; nothing if it is there or below."""
    context = _context(connection, schema)
    alone(connection, schema)
    for script in reversed(_history()[_position(to) : _reached(context)]):
        script.module.downgrade(connection, schema)
        context.stamp(_scripts(), _names()[_position(script.revision) - 1])


def script(at: str | None, to: str, schema: str | None) -> str:
    """Return the transaction that takes a database from the revision *at* to *to*; empty if they are the same."""
    statements = between(at, to, schema)
    return ";\n\n".join(["BEGIN", *statements, "COMMIT"]) + ";\n" if statements else ""


def write(context: MigrationContext, at: str | None, to: str, schema: str | None) -> None:
    """Write the statements from the revision *at* to *to* into the script of Alembic's offline mode."""
    for statement in between(at, to, schema):
        context.impl.static_output(f"{statement};")


def between(at: str | None, to: str, schema: str | None) -> list[str]:
    """Return the statements from the revision *at* to *to*, up or down, that of the version table included."""
    here, there = _position(at or "base"), _position(to)
    recorder = Recorder("sqlite" if schema is None else "postgresql")
    for script in _history()[here:there]:
        script.module.upgrade(recorder, schema)
    for script in reversed(_history()[there:here]):
        script.module.downgrade(recorder, schema)
    if here == there:
        return []
    version = VERSION_TABLE if schema is None else f'"{schema}".{VERSION_TABLE}'
    first = [] if schema is None or here else [f'CREATE SCHEMA IF NOT EXISTS "{schema}"']
    if not here:
        # SQLite keeps the text of a definition: this is Alembic's, to the letter.
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
    """What the revisions have made, by name, and none of them has dropped."""
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
    """See that the schema is there, where the kind of database has such."""
    # To ask first takes no right to create one, which a role may not have where the schema is there already.
    found = f"SELECT 1 FROM pg_namespace WHERE nspname = '{schema}'"
    if schema is not None and not connection.exec_driver_sql(found).fetchall():
        connection.exec_driver_sql(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')


def _context(connection: Connection, schema: str | None) -> MigrationContext:
    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE, "version_table_schema": schema})


def _reached(context: MigrationContext) -> int:
    """How many revisions the database has behind it."""
    from eventkit.errors import NotMigrated

    revision = context.get_current_revision()
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
        raise ValueError(f"eventkit has no schema revision {to!r}: say head or one of {', '.join(_names())}")
    return _names().index(to)


@cache
def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(files("eventkit_migrations")))


@cache
def _history() -> tuple[Script, ...]:
    return tuple(reversed([*_scripts().walk_revisions()]))


@cache
def _names() -> tuple[str, ...]:
    """Every revision at the index that is its position; ``base`` is the one before the first."""
    return ("base", *(script.revision for script in _history()))

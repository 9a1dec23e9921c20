"""The revisions, and the execution of those between two of them on a connection.

The history is linear, so a revision is a position in it and a migration is a slice of it.  Alembic loads the revision
files and keeps the version table, which has one more column, for the hash of the functions.  Its ``alembic.op`` and
``alembic.context`` are not used: they are global to the process, and belong to the application, whose own migration may
be running.  A revision's functions take the connection instead.
"""

import re
from functools import cache
from importlib.resources import files

from alembic.runtime.migration import MigrationContext
from alembic.script import Script, ScriptDirectory
from sqlalchemy import Connection, inspect

from eventkit_migrations import UNRELEASED, VERSION_TABLE

from .database import Recorder, Schema, execute, of_scheme, schema_hash

_NAME = r"(?:UNLOGGED )?(?:UNIQUE )?(?:TABLE|INDEX|VIEW|TRIGGER) (?:IF EXISTS )?(?:\"\w+\"\.)?(\w+)"
_MADE, _DROPPED = re.compile(f"CREATE {_NAME}"), re.compile(f"DROP {_NAME}")


def current(connection: Connection, schema: Schema) -> str | None:
    """Return the revision of the database, known to this code or not; None without a schema.

    Raise `NotMigrated` if its tables are those of an unreleased version.
    """
    from eventkit.errors import NotMigrated

    revision = _context(connection, schema).get_current_revision()
    if revision in _names() and stored_hash(connection, schema) != schema_hash(schema.scheme, revision):
        raise NotMigrated(f"the database {UNRELEASED}")
    return revision


def stored_hash(connection: Connection, schema: Schema) -> str | None:
    """Return the hash of the tables that `keep_hashes` has stored, without a statement that can fail."""
    return _stored(connection, schema, "eventkit_identity", "schema_hash")


def stored_functions(connection: Connection, schema: Schema) -> str | None:
    """Return the hash of the functions that `keep_hashes` has stored, without a statement that can fail."""
    return _stored(connection, schema, *schema.functions_in)


def upgrade(connection: Connection, to: str, schema: Schema) -> None:
    """Run the revisions after the database's, up to *to*, and replace functions of another version."""
    context = _context(connection, schema)
    schema.lock(connection)
    schema.make_room(connection)
    at = _reached(connection, schema)
    for script in _history()[at : _position(to)]:
        script.module.upgrade(connection, schema)
        context.stamp(_scripts(), script.revision)
    finish(connection, _names()[at], _names()[max(at, _position(to))], schema)


def downgrade(connection: Connection, to: str, schema: Schema) -> None:
    """Undo the revisions of the database down to *to*; do nothing if it is there or below."""
    context = _context(connection, schema)
    schema.lock(connection)
    at = _reached(connection, schema)
    for script in reversed(_history()[_position(to) : at]):
        script.module.downgrade(connection, schema)
        context.stamp(_scripts(), _names()[_position(script.revision) - 1])
    if _position(to) < at:
        finish(connection, _names()[at], to, schema)


def finish(connection: Connection, before: str, after: str, schema: Schema) -> None:
    """Replace the functions if they are those of another version, and store the hashes, after the revisions."""
    if after == "base":
        return
    changed = schema.functions_hash is not None and stored_functions(connection, schema) != schema.functions_hash
    if changed and _in_column(schema):
        execute(connection, f"ALTER TABLE {VERSION_TABLE} ADD COLUMN IF NOT EXISTS functions_hash text", schema)
    if changed and (before != "base" or not _in_column(schema)):
        for statement in schema.functions(replace=True):
            execute(connection, statement, schema)
    if changed or before != after:
        keep_hashes(connection, after, schema)


def keep_hashes(connection: Connection | Recorder, revision: str, schema: Schema) -> None:
    """Store the hash of the tables at *revision*, and that of the functions."""
    value = schema_hash(schema.scheme, revision)
    execute(connection, f"UPDATE eventkit_identity SET schema_hash = '{value}'", schema)
    if _in_column(schema):
        execute(connection, f"UPDATE {VERSION_TABLE} SET functions_hash = '{schema.functions_hash}'", schema)


def script(at: str | None, to: str, schema: Schema, functions: str | None = None) -> str:
    """Return the transaction that takes a database from the revision *at* to *to*; empty if there is nothing to do.

    *functions* is the stored hash of its functions.
    """
    statements = between(at, to, schema, functions)
    return ";\n\n".join(["BEGIN", *statements, "COMMIT"]) + ";\n" if statements else ""


def write(context: MigrationContext, at: str, to: str, schema: Schema) -> None:
    """Write the statements from the revision *at* to *to* into the script of Alembic's offline mode."""
    for statement in between(at, to, schema, schema.functions_hash):
        context.impl.static_output(f"{statement};")


def between(at: str | None, to: str, schema: Schema, functions: str | None) -> list[str]:
    """Return the statements from the revision *at* to *to*, up or down, including that for the version table."""
    here, there = _position(at or "base"), _position(to)
    recorder = Recorder()
    for script in _history()[here:there]:
        script.module.upgrade(recorder, schema)
    for script in reversed(_history()[there:here]):
        script.module.downgrade(recorder, schema)
    known = functions == schema.functions_hash and (here == there or _in_column(schema))
    changed = bool(here and there) and not known
    if here == there and not changed:
        return []
    if changed:
        for statement in schema.functions(replace=True):
            execute(recorder, statement, schema)
    version = schema.prepared(VERSION_TABLE)
    first = [] if schema.name is None or here else [f'CREATE SCHEMA IF NOT EXISTS "{schema.name}"']
    last = []
    if not here:
        # SQLite keeps the text of a definition: this is exactly Alembic's.
        first.append(
            f"CREATE TABLE {version} (\n\tversion_num VARCHAR(32) NOT NULL, \n\t"
            f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num)\n)"
        )
        if _in_column(schema):
            first.append(f"ALTER TABLE {version} ADD COLUMN functions_hash text")
        first.append(f"INSERT INTO {version} (version_num) VALUES ('{_names()[there]}')")
    elif not there:
        last = [f"DELETE FROM {version}"]
    elif here != there:
        first.append(f"UPDATE {version} SET version_num = '{_names()[there]}'")
    if there:
        keep_hashes(recorder, _names()[there], schema)
    return [*first, *recorder.statements, *last]


def objects(scheme: str) -> list[str]:
    """Return the names of the objects that the revisions create and do not drop again."""
    recorder, schema = Recorder(), of_scheme(scheme)
    for script in _history():
        script.module.upgrade(recorder, schema)
    made: list[str] = []
    for statement in recorder.statements:
        if found := _MADE.match(statement):
            made.append(found[1])
        elif (found := _DROPPED.match(statement)) and found[1] in made:  # Queues make triggers, too.
            made.remove(found[1])
    return made


def _in_column(schema: Schema) -> bool:
    """Return whether the hash of the functions is in the version table, and not in a view."""
    return schema.functions_hash is not None and schema.functions_in[0] == VERSION_TABLE


def _stored(connection: Connection, schema: Schema, table: str, column: str) -> str | None:
    if not inspect(connection).has_table(table, schema.name):
        return None
    found = connection.exec_driver_sql(f"SELECT * FROM {schema.prepared(table)}").mappings().all()
    return found[0].get(column) if found else None


def _context(connection: Connection, schema: Schema) -> MigrationContext:
    options = {"version_table": VERSION_TABLE, "version_table_schema": schema.name}
    return MigrationContext.configure(connection, opts=options)


def _reached(connection: Connection, schema: Schema) -> int:
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

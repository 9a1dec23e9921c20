"""The environment of Alembic's own command.

For applications that already operate their databases with it, a section of their ``alembic.ini`` suffices::

    [eventkit]
    script_location = eventkit_migrations:
    sqlalchemy.url = sqlite:///shop.db

and then ``alembic --name eventkit upgrade head``.  With ``--sql`` it writes the script of ``eventkit migrate --sql``.
"""

from alembic import context
from alembic.util import CommandError

from eventkit_migrations import VERSION_TABLE, database, revisions, schemas

url = context.config.get_main_option("sqlalchemy.url")
if not url:
    raise CommandError("sqlalchemy.url is missing: set it in alembic.ini")

schema = database.schema(url)

if context.is_offline_mode():
    # Alembic gives one revision; it gives several only where a history has branches.
    at, to = str(context.get_starting_revision_argument() or "base"), str(context.get_revision_argument() or "base")
    context.configure(dialect_name="sqlite" if schema is None else "postgresql")
    context.get_context().impl.static_output(revisions.script(at, to, schema).rstrip())
else:
    with database.locked(url) as connection:
        revisions.make_room(connection, schema)
        before = revisions.current(connection, schema)
        context.configure(connection=connection, version_table=VERSION_TABLE, version_table_schema=schema)
        context.run_migrations(connection=connection, schema=schema)
        after = context.get_context().get_current_revision()
        if after != before:
            schemas.keep_hash(connection, after or "base", schema)

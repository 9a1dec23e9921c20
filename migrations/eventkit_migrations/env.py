"""The environment of Alembic's own command.

For applications that already operate their databases with it, a section of their ``alembic.ini`` suffices::

    [eventkit]
    script_location = eventkit_migrations:
    sqlalchemy.url = sqlite:///shop.db

and then ``alembic --name eventkit upgrade head``.  With ``--sql`` it writes the script of ``eventkit migrate --sql``.
"""

from alembic import context
from alembic.util import CommandError

from eventkit_migrations import VERSION_TABLE, database, revisions

url = context.config.get_main_option("sqlalchemy.url")
if not url:
    raise CommandError("sqlalchemy.url is missing: set it in alembic.ini")

schema = database.of(url)

if context.is_offline_mode():
    # Alembic gives one revision; it gives several only where a history has branches.
    at, to = str(context.get_starting_revision_argument() or "base"), str(context.get_revision_argument() or "base")
    context.configure(dialect_name=schema.dialect)
    context.get_context().impl.static_output(revisions.script(at, to, schema, schema.functions_hash).rstrip())
else:
    with schema.locked() as connection:
        schema.make_room(connection)
        before = revisions.current(connection, schema)
        context.configure(connection=connection, version_table=VERSION_TABLE, version_table_schema=schema.name)
        context.run_migrations(connection=connection, schema=schema)
        after = context.get_context().get_current_revision()
        if after != before:
            revisions.finish(connection, before or "base", after or "base", schema)

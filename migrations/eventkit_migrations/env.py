"""What Alembic's own command runs.

It is for those who already operate their databases with it; a section of their ``alembic.ini`` suffices::

    [eventkit]
    script_location = eventkit_migrations:
    sqlalchemy.url = sqlite:///shop.db

and then ``alembic --name eventkit upgrade head``.
"""

from alembic import context
from alembic.util import CommandError

from eventkit_migrations import VERSION_TABLE, database, revisions

if context.is_offline_mode():
    raise CommandError("eventkit's schema is changed on a connection: leave out --sql")

url = context.config.get_main_option("sqlalchemy.url")
if not url:
    raise CommandError("sqlalchemy.url is missing: say which database")

schema = database.schema(url)

with database.locked(url) as connection:
    revisions.make_room(connection, schema)
    context.configure(connection=connection, version_table=VERSION_TABLE, version_table_schema=schema)
    context.run_migrations(connection=connection, schema=schema)

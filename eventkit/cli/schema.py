"""``eventkit migrate`` and ``eventkit current``: the tables of eventkit."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from . import settings, show
from .options import Json, Url
from .refusals import Failed


def migrate(
    sql: Annotated[bool, typer.Option("--sql", help="Print the statements instead of executing them.")] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Create the tables, or bring them up to date.

    Data is kept, and any number of processes may do it at once.
    """
    import eventkit_migrations

    address = settings.url(url)
    with _one_line(address):
        if sql:
            script = eventkit_migrations.script(address)
            if not script and not json:
                show.note(f"the tables are at revision {eventkit_migrations.HEAD} already: there is nothing to execute")
                return
            show.answer(script, {"sql": script}, json)
            return
        before = eventkit_migrations.current(address)
        eventkit_migrations.upgrade(address)
        now = eventkit_migrations.current(address)
    text = f"the tables are at revision {now} already" if before == now else f"the tables are at revision {now} now"
    show.answer(text, {"before": before, "revision": now}, json)


def current(url: Url = None, json: Json = False) -> None:
    """The revision of the tables, or none."""
    import eventkit_migrations

    address = settings.url(url)
    with _one_line(address):
        found = eventkit_migrations.current(address)
    show.answer(found or "none", {"revision": found, "newest": eventkit_migrations.HEAD}, json)


@contextmanager
def _one_line(url: str) -> Iterator[None]:
    """An error of the database in its driver's own words; SQLAlchemy adds the statement and a link to them."""
    from eventkit_migrations import database
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as error:
        raise Failed(f"{database.shown(url)}: {getattr(error, 'orig', error)}") from error

"""The cost of events in a SQLAlchemy session on Postgres."""

from collections.abc import Iterator

from ..report import Table
from ..sessions import table
from ..settings import Settings
from .server import serving


def measure(settings: Settings) -> Iterator[Table]:
    """Measure sessions on Postgres."""
    with serving(settings) as server:

        def urls(number: int) -> tuple[str, str]:
            url = server.new_database()
            return url, url.replace("postgresql", "postgresql+psycopg", 1)

        yield table("SQLAlchemy sessions on Postgres", urls, settings, note=f"{server.note} ")

"""The service, on Postgres."""

from collections.abc import Iterator

from ..report import Table
from ..service import tables
from ..settings import Settings
from .server import serving


def measure(settings: Settings) -> Iterator[Table]:
    """Measure the service, with a database for each table."""
    with serving(settings) as server:
        yield from tables(settings, "Postgres: ", lambda name: server.new_database(), 15_000)

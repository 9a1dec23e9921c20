"""The pages of the dashboard beside a million tasks, on Postgres."""

from collections.abc import Iterator

from ..dashboard import pages
from ..report import Table
from ..settings import Settings
from .server import serving


def measure(settings: Settings) -> Iterator[Table]:
    """Measure pages on a server."""
    with serving(settings) as server:
        yield pages(settings, "Postgres: ", server.new_database())

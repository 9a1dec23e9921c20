"""Statistics of a large queue, on Postgres."""

from collections.abc import Iterator

from ..overview import looks
from ..report import Table
from ..settings import Settings
from .server import serving


def measure(settings: Settings) -> Iterator[Table]:
    """Measure the statistics of a server."""
    with serving(settings) as server:
        yield looks(settings, "Postgres: ", server.new_database(), server.note)

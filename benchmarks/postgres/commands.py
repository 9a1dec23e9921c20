"""The command line, on Postgres."""

from collections.abc import Iterator

from ..commands import files
from ..report import Table
from ..settings import Settings
from .server import serving

_LINES = 40_000


def measure(settings: Settings) -> Iterator[Table]:
    """Measure the import of a file into a server."""
    with serving(settings) as server:
        folder = settings.folder("postgres-commands")
        yield files(settings, "Postgres: ", server.new_database(), folder, _LINES)

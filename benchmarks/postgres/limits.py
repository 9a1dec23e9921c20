"""Locks, limits and results on Postgres."""

from collections.abc import Iterator

from ..limits import table, works
from ..report import Table
from ..settings import Settings
from .server import serving


def measure(settings: Settings) -> Iterator[Table]:
    """The table of locks and limits on Postgres."""
    with serving(settings) as server:
        urls = {flavour: server.new_database() for flavour in ("sync", "async")}
        title = "Locks, limits, results on Postgres"
        yield table(title, urls, works(2_000, 3_000), settings, note=f"{server.note} ")

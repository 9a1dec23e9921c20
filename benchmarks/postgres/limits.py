"""Locks, limits and results on Postgres."""

from collections.abc import Iterator

from ..limits import claims, table, works
from ..report import Table
from ..settings import Settings
from .server import serving


def measure(settings: Settings) -> Iterator[Table]:
    """Measure locks and limits on Postgres."""
    with serving(settings) as server:
        urls = {name: server.new_database() for name in ("sync", "async", "without", "with")}
        title = "Locks, limits, results on Postgres"
        yield table(title, urls, works(2_000, 3_000), settings, note=f"{server.note} ")
        yield claims("Claims in a queue with limits on Postgres", urls, settings, note=f"{server.note} ")

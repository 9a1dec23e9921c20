"""Ticks beside many schedules, on Postgres."""

from collections.abc import Iterator

from ..report import Table
from ..schedules import ticks
from ..settings import Settings
from .server import serving


def measure(settings: Settings) -> Iterator[Table]:
    """Measure ticks on a server."""
    with serving(settings) as server:
        yield ticks(settings, "Postgres: ", server.new_database(), server.note)

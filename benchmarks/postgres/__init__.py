"""Benchmarks on Postgres: eventkit beside the bare statements, and beside other queues.

Everything happens in one run on one machine, on a server with default settings and fsync on.
"""

from collections.abc import Callable, Iterator

from ..report import Table
from ..settings import Settings
from . import (
    bloat,
    commands,
    crew,
    dashboard,
    idling,
    limits,
    overview,
    pinned,
    schedules,
    service,
    sessions,
    throughput,
    waking,
    working,
)

GROUPS: dict[str, Callable[[Settings], Iterator[Table]]] = {
    "postgres-throughput": throughput.measure,
    "postgres-crew": crew.measure,
    "postgres-waking": waking.measure,
    "postgres-pinned": pinned.measure,
    "postgres-bloat": bloat.measure,
    "postgres-idling": idling.measure,
    "postgres-schedules": schedules.measure,
    "postgres-sessions": sessions.measure,
    "postgres-limits": limits.measure,
    "postgres-overview": overview.measure,
    "postgres-dashboard": dashboard.measure,
    "postgres-commands": commands.measure,
    "postgres-working": working.measure,
    "postgres-http": service.measure,
}

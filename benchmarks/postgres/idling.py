"""The cost of a hundred waiting consumers for the server: connections and statements."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg

from ..idling import AsyncWaiters, Waiters
from ..processes import Remote
from ..report import Table, percent, verdict
from ..settings import Settings
from .server import Server, serving

_NUMBER = 100


def measure(settings: Settings) -> Iterator[Table]:
    """Measure waiting consumers in one process, of each flavour."""
    seconds = settings.seconds(30)
    table = Table(
        f"Postgres, {_NUMBER} idle consumers in one process",
        (
            "flavour",
            "consumers wait for",
            "connections",
            f"statements in {seconds:g} s",
            "the most frequent, every",
            "processor, of a core",
            "bar",
            "reached",
        ),
    )
    with serving(settings, log_statement="all", log_line_prefix="%d ") as server:
        table.note = (
            "A third each waits in subscribe, work and listen. Connections according to pg_stat_activity, statements "
            f"as the server logs them, over {seconds:g} s beginning {settings.seconds(70):g} s after the last one "
            "began to wait, when the pool has closed idle connections. The same statement with other "
            f"parameters counts as another one. {server.note}"
        )
        for flavour, waiters in (("sync", Waiters), ("async", AsyncWaiters)):
            for apart in (False, True):
                url = server.new_database()
                name = url.rpartition("/")[2]
                with Remote(waiters, url, _NUMBER, apart) as crowd:
                    crowd.call("cost", settings.seconds(70))
                    before = len(_statements(server, name))
                    share, _ = crowd.call("cost", seconds)
                    asked = Counter(_statements(server, name)[before:])
                    connections = _connections(server, name)
                pause = seconds / max(asked.values(), default=1)
                table.add(
                    [
                        flavour,
                        f"{_NUMBER} names" if apart else "the same names",
                        str(connections),
                        str(asked.total()),
                        f"{pause:.1f} s",
                        percent(share),
                        "≤ 2 connections, no statement more often than every 5 s",
                        verdict(connections <= 2 and pause >= 5),
                    ]
                )
    yield table


def _connections(server: Server, name: str) -> int:
    with psycopg.connect(server.cluster.url) as connection:
        row = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s", (name,)).fetchone()
    assert row is not None
    return int(row[0])


def _statements(server: Server, name: str) -> list[str]:
    """Return the statements that the server executed in this database, with their parameters, from its log."""
    statements: list[str] = []
    ours = False
    with Path(server.cluster.folder, "log").open(errors="replace") as log:
        for line in log:
            if not line.startswith("\t"):
                ours = line.startswith(f"{name} ")
            if ours and line.startswith(f"{name} LOG:"):
                statements.append(line)
            elif ours:
                statements[-1] += line
    return statements

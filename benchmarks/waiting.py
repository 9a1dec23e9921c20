"""The cost of waiting: processor time, threads, memory, and connections and statements of a server."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import apsw

from .consumers import FLAVOURS, Wait
from .databases import Postgres, Settings, SQLite
from .processes import Process, Remote
from .report import Table, at_most, percent, verdict

_NUMBER = 100
_MOST_THREADS = 4
_WAYS = ("subscribe", "work", "listen")
_NAMES = {False: "the same names", True: f"{_NUMBER} names"}


def measure(settings: Settings, database: SQLite) -> Iterator[Table]:
    """Measure waiting consumers, with and without unrelated commits by another process."""
    yield _idle(settings, database)
    yield _busy(settings, database)


def _idle(settings: Settings, database: SQLite) -> Table:
    table = Table(
        "Idle consumers",
        "flavour | consumers | processor, of a core | threads beside the callers' | bar | reached",
        note=f"Over {settings.seconds(15):g} s, beginning {settings.seconds(7):g} s after the last one began to wait. "
        "The callers' own threads are the main one and, in the sync flavour, one for each consumer, or else one for "
        "the event loop.",
    )
    with ExitStack() as stack:
        remotes = {
            (flavour, number): stack.enter_context(Remote(FLAVOURS[flavour], database.new(), *_waits(number)))
            for flavour in FLAVOURS
            for number in (1, _NUMBER)
        }
        for seconds in (7, 15):
            for remote in remotes.values():
                remote.begin("cost", settings.seconds(seconds))
            costs = [remote.result() for remote in remotes.values()]
    for (flavour, number), (share, threads) in zip(remotes, costs, strict=True):
        good = verdict(share <= 0.001 and threads <= _MOST_THREADS)
        table.add(flavour, str(number), percent(share), str(threads), f"≤ 0.1 %, ≤ {_MOST_THREADS} threads", good)
    return table


def _busy(settings: Settings, database: SQLite) -> Table:
    table = Table(
        f"{_NUMBER} waiting consumers, 100 unrelated commits/s by another process",
        "flavour | consumers wait for | processor, of a core | commits/s | bar | reached",
        note="A third each waits in subscribe, work and listen: all for the same name, or each for one of its own.",
    )
    for flavour, consumers in FLAVOURS.items():
        for apart, names in _NAMES.items():
            url = database.new()
            with Remote(consumers, url, *_waits(_NUMBER, apart)) as waiting, Remote(Stranger, url) as stranger:
                waiting.ready()
                stranger.begin("commit", 100, settings.seconds(7))
                waiting.call("cost", settings.seconds(0.5))
                share, _ = waiting.call("cost", settings.seconds(6))
                rate = stranger.result()
            table.add(flavour, names, percent(share), f"{rate:.0f}", *at_most(share, 0.08, percent))
    return table


def measure_memory(settings: Settings, database: SQLite) -> Iterator[Table]:
    """Measure a process that has connected and waits in `listen`, and one that has only started."""
    table = Table(
        "Memory",
        "process | resident | bar | reached",
        note="The process migrates a new database itself, with SQLAlchemy and Alembic.",
    )
    with Remote(Process) as nothing:
        table.add("Python, with the code that starts it here", _megabytes(nothing.call("resident")), "–", "–")
    for flavour, consumers in FLAVOURS.items():
        url = database.new()
        for place in ("a new database", "an existing database"):
            with Remote(consumers, url, Wait("listen", "channel")) as remote:
                resident = remote.call("resident")
            table.add(f"{flavour} kit, {place}", _megabytes(resident), *at_most(resident, 60, "{} MB".format))
    yield table


def measure_server(settings: Settings, database: Postgres) -> Iterator[Table]:
    """Measure the cost of waiting consumers in one process, of each flavour, for a server."""
    seconds, before = settings.seconds(30), settings.seconds(70)
    table = Table(
        f"Postgres, {_NUMBER} idle consumers in one process",
        f"flavour | consumers wait for | connections | statements in {seconds:g} s | "
        "the most frequent, every | processor, of a core | bar | reached",
        note="A third each waits in subscribe, work and listen. Connections according to pg_stat_activity, statements "
        f"as the server logs them, over {seconds:g} s beginning {before:g} s after the last one began to wait, when "
        "the pool has closed idle connections; the four processes wait at the same time, for a database each. The "
        "same statement with other parameters counts as another one.",
    )
    with ExitStack() as stack:
        waiting = []
        for flavour, consumers in FLAVOURS.items():
            for apart, names in _NAMES.items():
                url = database.new()
                remote = stack.enter_context(Remote(consumers, url, *_waits(_NUMBER, apart)))
                waiting.append((flavour, names, url.rpartition("/")[2], remote))
        for *_, remote in waiting:
            remote.begin("cost", before)
        for *_, remote in waiting:
            remote.result()
        earlier = {name: len(_statements(database, name)) for _, _, name, _ in waiting}
        for *_, remote in waiting:
            remote.begin("cost", seconds)
        for flavour, names, name, remote in waiting:
            share, _ = remote.result()
            asked = Counter(_statements(database, name)[earlier[name] :])
            connections = database.ask(f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{name}'")
            pause = seconds / max(asked.values(), default=1)
            table.add(
                *(flavour, names, str(connections), str(asked.total()), f"{pause:.1f} s", percent(share)),
                "≤ 2 connections, no statement more often than every 5 s",
                verdict(connections <= 2 and pause >= 5),
            )
    yield table


class Stranger:
    """Another process with a table of its own in the same file."""

    def __init__(self, url: str) -> None:
        self._connection = apsw.Connection(url.removeprefix("sqlite:///"))
        self._connection.set_busy_timeout(5000)
        self._connection.execute("CREATE TABLE business (id INTEGER PRIMARY KEY, at)")

    def commit(self, rate: int, seconds: float) -> float:
        """Commit *rate* rows a second for *seconds*, and return the rate reached."""
        start = time.monotonic()
        done = 0
        while (now := time.monotonic()) < start + seconds:
            if done < (now - start) * rate:
                self._connection.execute("INSERT INTO business (at) VALUES (julianday('now'))")
                done += 1
            else:
                time.sleep(max(0.0, start + (done + 1) / rate - now))
        return done / seconds


def _waits(number: int, apart: bool = False) -> list[Wait]:
    return [Wait(_WAYS[place % 3], f"name-{place}" if apart else "name") for place in range(number)]


def _statements(database: Postgres, name: str) -> list[str]:
    """Return the statements that the server executed in this database, with their parameters, from its log."""
    statements: list[str] = []
    ours = False
    with Path(database.cluster.folder, "log").open(errors="replace") as log:
        for line in log:
            if not line.startswith("\t"):
                ours = line.startswith(f"{name} ")
            if ours and line.startswith(f"{name} LOG:"):
                statements.append(line)
            elif ours:
                statements[-1] += line
    return statements


def _megabytes(number: float) -> str:
    return f"{number:.1f} MB"

"""The delay from a call in one process to the handler in another, which sleeps."""

import asyncio
import random
import select
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from typing import Any

import msgspec
import psycopg
from eventkit_sqlite import watcher
from eventkit_sqlite.library import open_connection
from eventkit_sqlite.statements import STATEMENTS

import eventkit
from eventkit.operations.stream import ReadEvents

from .consumers import AsyncConsumers, Consumers, Receiver, ThreadReceiver, Wait
from .contestants import decode
from .databases import Database, Settings
from .peers_postgres import PgQueuerAsyncpg
from .processes import Remote
from .report import NO_BAR, Table, milliseconds, verdict
from .rounds import p99

_TURNS = 5
_NUMBER = {"SQLite": 500, "Postgres": 200}


class Sender:
    """A sender to receivers that wait in *way*."""

    def __init__(self, url: str, way: str) -> None:
        self._kit = eventkit.connect(url)
        calls: dict[str, Any] = {
            "subscribe": self._kit.stream("wake").publish,
            "work": self._kit.queue("wake").enqueue,
            "listen": self._kit.channel("wake").notify,
        }
        self._send = calls[way]

    def send(self, number: int, least: float, most: float) -> list[tuple[int, int]]:
        """Send *number* messages after pauses between *least* and *most*; return when calls began and returned."""
        moments = []
        for _ in range(number):
            time.sleep(random.uniform(least, most))
            before = time.monotonic_ns()
            self._send(None)
            moments.append((before, time.monotonic_ns()))
        return moments

    def close(self) -> None:
        """Close the kit."""
        self._kit.close()


class BareSender(Sender):
    """A sender that executes an INSERT with a NOTIFY in it."""

    def __init__(self, url: str, way: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._send = lambda payload: self._connection.execute(
            "WITH notified AS MATERIALIZED (SELECT pg_notify('wake', '')) "
            "INSERT INTO wake (payload) SELECT 'null' FROM notified"
        )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class PgQueuerSender(Sender):
    """A sender with pgqueuer's enqueue."""

    def __init__(self, url: str, way: str) -> None:
        self._peer = PgQueuerAsyncpg(url)
        self._send = lambda payload: self._peer.run(self._peer._queries.enqueue("wake", b"null"))

    def close(self) -> None:
        """Close the connection."""
        self._peer.close()


class InotifyReceiver(ThreadReceiver):
    """A receiver for a stream with only inotify and apsw, in one thread."""

    def wait(self, url: str) -> None:
        """Wait until the log grows and the version changes, and read."""
        eventkit.connect(url).close()
        path = url.removeprefix("sqlite:///").partition("?")[0]
        connection = open_connection("apsw", path, "NORMAL", 5)
        sql = STATEMENTS[ReadEvents.heading].sql
        version: Any = connection.execute("PRAGMA data_version").fetchall()
        log = watcher.open_descriptor()
        watcher.watch(log, path + "-wal", watcher.MODIFIED)
        poll = select.poll()
        poll.register(log, select.POLLIN)
        after = 0
        self._ready.set()
        while True:
            # The log is written just before the commit is visible, so polling continues for a while; a commit that
            # takes longer is found by a poll every few milliseconds.
            until = time.monotonic() + 0.001 if poll.poll(5) else 0.0
            watcher.drain(log)
            while (now := connection.execute("PRAGMA data_version").fetchall()) == version:
                if time.monotonic() > until:
                    break
            if now == version:
                continue
            version = now
            for row in connection.execute(sql, ("wake", after, 1000)).fetchall():
                after = row[0]
                decode(row[2])
                self.arrive()


class ListenReceiver(ThreadReceiver):
    """A receiver that listens, and deletes the rows that exist."""

    def wait(self, url: str) -> None:
        """Wait for notifications."""
        with psycopg.connect(url, autocommit=True) as listener, psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE wake (id bigint GENERATED ALWAYS AS IDENTITY, payload json)")
            listener.execute("LISTEN wake")
            self._ready.set()
            while True:
                select.select([listener.fileno()], [], [])
                listener.pgconn.consume_input()
                while listener.pgconn.notifies():
                    pass
                for _ in connection.execute("DELETE FROM wake RETURNING id").fetchall():
                    self.arrive()


class PgQueuerReceiver(ThreadReceiver):
    """A receiver with pgqueuer's worker."""

    def __init__(self, url: str, *waits: Wait) -> None:
        # A missing package raises here, and not in a thread that the caller waits for.
        import asyncpg  # noqa: F401
        import pgqueuer  # noqa: F401

        super().__init__(url)

    def wait(self, url: str) -> None:
        """Run the worker."""
        PgQueuerAsyncpg(url).close()
        asyncio.run(self._run(url))

    async def _run(self, url: str) -> None:
        import asyncpg
        import pgqueuer

        worker = pgqueuer.PgQueuer(pgqueuer.AsyncpgDriver(await asyncpg.connect(url)))

        @worker.entrypoint("wake")
        async def handle(job: Any) -> None:
            self.arrive()

        asyncio.get_running_loop().call_later(2, self._ready.set)
        await worker.qm.run()


_IDLE, _STEADY, _HELD = "idle", "40 a second", "while an unrelated transaction stays open"
_PAUSES = {"SQLite": (0.005, 0.02), _IDLE: (0.03, 0.09), _STEADY: (0.025, 0.025), _HELD: (0.03, 0.09)}
"""Seconds between two messages."""


class Row(msgspec.Struct, frozen=True):
    """The receiver, the sender, the situation, and the bars for the median and the 99th percentile of the delay."""

    name: str
    receiver: type[Receiver]
    sender: type[Sender]
    way: str
    when: str = "SQLite"
    bars: tuple[float, float | None] | None = None
    options: str = ""


_KITS: tuple[tuple[str, type[Receiver]], ...] = (("sync kit", Consumers), ("async kit", AsyncConsumers))
_ROWS = {
    "SQLite": (
        Row("bare", InotifyReceiver, Sender, "subscribe"),
        *(
            Row(name, kit, Sender, way, bars=(0.00012, 0.0015))
            for name, kit in _KITS
            for way in ("subscribe", "work", "listen")
        ),
        *(Row(f"{name}, polling", kit, Sender, "subscribe", options="?watch=poll") for name, kit in _KITS),
    ),
    "Postgres": (
        Row("bare NOTIFY to LISTEN", ListenReceiver, BareSender, "work", _IDLE),
        *(Row(name, kit, Sender, way, _IDLE, (0.001, 0.003)) for name, kit in _KITS for way in ("work", "subscribe")),
        Row("pgqueuer", PgQueuerReceiver, PgQueuerSender, "work", _IDLE),
        Row("bare NOTIFY to LISTEN", ListenReceiver, BareSender, "work", _STEADY),
        *(Row(name, kit, Sender, "work", _STEADY, (0.0015, None)) for name, kit in _KITS),
        Row("pgqueuer", PgQueuerReceiver, PgQueuerSender, "work", _STEADY),
        *(Row(name, kit, Sender, way, _HELD) for name, kit in _KITS for way in ("work", "subscribe")),
    ),
}
_TITLES = {
    "SQLite": "Cross-process wake",
    "Postgres": "Postgres, from the call to the handler in another process",
}
_NOTES = {
    "SQLite": "The pauses last 5 to 20 ms, so that the waiter sleeps. *bare* is a loop of inotify, `PRAGMA "
    "data_version` and the statement that reads the events. The bar is for the delay since the commit returned.",
    "Postgres": "*idle*: 30 to 90 ms apart. The unrelated transaction has an id and stays open from before the first "
    "of a turn until after the last. The bar is for the delay since before the call.",
}


def measure(settings: Settings, database: Database) -> Iterator[Table]:
    """Measure the delays of single messages to a sleeping receiver."""
    number = settings.count(_NUMBER[database.name], least=_TURNS) // _TURNS
    rows = _ROWS[database.name]
    if settings.quick and database.name == "SQLite":
        rows = tuple(row for row in rows if row.way == "subscribe" and not row.options)
    missing: dict[str, str] = {}
    delays: dict[Row, list[tuple[float, float]]] = {}
    with ExitStack() as stack:
        pairs: dict[Row, tuple[Remote, Remote, str]] = {}
        for row in rows:
            url = database.new(row.options)
            receiver = stack.enter_context(Remote(row.receiver, url, Wait(row.way, "wake")))
            sender = stack.enter_context(Remote(row.sender, url, row.way))
            try:
                receiver.ready()
                sender.ready()
                pairs[row] = receiver, sender, url
            except RuntimeError as error:
                if row.name != "pgqueuer":
                    raise
                missing[row.name] = f"{row.name} takes no part: {str(error).strip().splitlines()[-1]}."
        for _ in range(_TURNS):
            for row, (receiver, sender, url) in pairs.items():
                with psycopg.connect(url) if row.when == _HELD else nullcontext() as elsewhere:
                    if elsewhere is not None:
                        elsewhere.execute("CREATE TEMP TABLE unrelated AS SELECT pg_current_xact_id()")
                    sent = sender.call("send", number, *_PAUSES[row.when])
                    arrived = receiver.call("arrivals", number)
                delays.setdefault(row, []).extend(
                    ((moment - called) / 1e9, (moment - returned) / 1e9)
                    for (called, returned), moment in zip(sent, arrived, strict=True)
                )
    yield _table(database.name, delays, number * _TURNS, missing)


def _table(database: str, delays: dict[Row, list[tuple[float, float]]], number: int, missing: dict[str, str]) -> Table:
    columns = "receiver | in | median since before the call | p99 | bar | reached"
    table = Table(
        _TITLES[database],
        columns.replace("in |", "in | median since the commit returned | p99 |")
        if database == "SQLite"
        else f"when | {columns}",
        note=f"{number} messages a row, sent by another process, {number // _TURNS} at a time in turns. "
        f"{_NOTES[database]} The clock is CLOCK_MONOTONIC, which processes share. A handler may run before the "
        f"sender's call returns, which counts as less than zero. {' '.join(missing.values())}".strip(),
    )
    idle: dict[tuple[str, str], float] = {}
    for row, pairs in delays.items():
        called, returned = ([pair[place] for pair in pairs] for place in (0, 1))
        judged = returned if database == "SQLite" else called
        median, tail = statistics.median(judged), p99(judged)
        bar = NO_BAR
        if row.when == _HELD:
            bar = ("as idle", verdict(median <= 1.25 * idle[row.name, row.way]))
        elif row.bars is not None:
            least, most = row.bars
            text = f"≤ {least * 1000:g} ms" + ("" if most is None else f", p99 ≤ {most * 1000:g} ms")
            bar = (text, verdict(median <= least and (most is None or tail <= most)))
        if row.when == _IDLE:
            idle[row.name, row.way] = median
        cells = [row.name, row.way] if database == "SQLite" else [row.when, row.name, row.way]
        for values in (returned, called) if database == "SQLite" else (called,):
            shown = milliseconds(statistics.median(values))
            cells += [f"**{shown}**" if values is judged else shown, milliseconds(p99(values))]
        table.add(*cells, *bar)
    return table

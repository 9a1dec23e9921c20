"""The delay from a call in one process to the handler in another, through Postgres."""

import asyncio
import random
import select
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from typing import Any

import msgspec
import psycopg

import eventkit

from ..processes import Remote
from ..report import Table, milliseconds, verdict
from ..settings import Settings
from ..waking import AsyncWaiter, Receiver, Waiter
from .peers import why_not
from .server import serving

_BLOCKS = 5


class Sender:
    """A sender to receivers that wait in *way*, after pauses between *least* and *most* seconds."""

    def __init__(self, url: str, way: str) -> None:
        self._kit = eventkit.connect(url)
        calls: dict[str, Callable[[Any], Any]] = {
            "subscribe": self._kit.stream("wake").publish,
            "work": self._kit.queue("wake").enqueue,
        }
        self._send = calls[way]

    def send(self, number: int, least: float, most: float) -> list[int]:
        """Send *number* messages, and return when each call began."""
        moments = []
        for _ in range(number):
            time.sleep(random.uniform(least, most))
            moments.append(time.monotonic_ns())
            self._send(None)
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


class BareReceiver(Receiver):
    """A receiver that listens, and deletes the rows that exist."""

    def _wait(self, url: str, way: str) -> None:
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
                    self._arrivals.append(time.monotonic_ns())


class PgQueuerSender(Sender):
    """A sender with pgqueuer's enqueue."""

    def __init__(self, url: str, way: str) -> None:
        from .peers import PgQueuerAsyncpg

        self._peer = PgQueuerAsyncpg(url)
        self._send = lambda payload: self._peer._run(self._peer._queries.enqueue("wake", b"null"))

    def close(self) -> None:
        """Close the connection."""
        self._peer.close()


class PgQueuerReceiver(Receiver):
    """A receiver with pgqueuer's worker."""

    def __init__(self, url: str, way: str) -> None:
        # A missing package raises here, and not in a thread that the caller waits for.
        import asyncpg  # noqa: F401
        import pgqueuer  # noqa: F401

        super().__init__(url, way)

    def _wait(self, url: str, way: str) -> None:
        from .peers import PgQueuerAsyncpg

        PgQueuerAsyncpg(url).close()
        asyncio.run(self._run(url))

    async def _run(self, url: str) -> None:
        import asyncpg
        import pgqueuer

        worker = pgqueuer.PgQueuer(pgqueuer.AsyncpgDriver(await asyncpg.connect(url)))

        @worker.entrypoint("wake")
        async def handle(job: Any) -> None:
            self._arrivals.append(time.monotonic_ns())

        asyncio.get_running_loop().call_later(2, self._ready.set)
        await worker.qm.run()


class Row(msgspec.Struct, frozen=True):
    """The receiver, the sender, the pauses, and the bars for the median and the 99th percentile."""

    name: str
    receiver: type[Receiver]
    sender: type[Sender]
    way: str
    when: str
    bars: tuple[float, float | None] | None = None
    held: bool = False

    @property
    def pauses(self) -> tuple[float, float]:
        """Seconds between two messages."""
        return (0.025, 0.025) if self.when == "40 a second" else (0.05, 0.15)


_KITS = (("sync kit", Waiter), ("async kit", AsyncWaiter))
_ROWS = (
    Row("bare NOTIFY to LISTEN", BareReceiver, BareSender, "work", "idle"),
    *(
        Row(name, waiter, Sender, way, "idle", (0.001, 0.003))
        for name, waiter in _KITS
        for way in ("work", "subscribe")
    ),
    Row("pgqueuer", PgQueuerReceiver, PgQueuerSender, "work", "idle"),
    Row("bare NOTIFY to LISTEN", BareReceiver, BareSender, "work", "40 a second"),
    *(Row(name, waiter, Sender, "work", "40 a second", (0.0015, None)) for name, waiter in _KITS),
    Row("pgqueuer", PgQueuerReceiver, PgQueuerSender, "work", "40 a second"),
    *(
        Row(name, waiter, Sender, way, "while an unrelated transaction stays open", None, True)
        for name, waiter in _KITS
        for way in ("work", "subscribe")
    ),
)


def measure(settings: Settings) -> Iterator[Table]:
    """Measure the delays of single messages to a sleeping receiver."""
    number = settings.count(200, least=_BLOCKS) // _BLOCKS
    missing: list[str] = []
    delays: dict[Row, list[float]] = {row: [] for row in _ROWS}
    with serving(settings) as server, ExitStack() as stack:
        pairs: dict[Row, tuple[Remote, Remote, str]] = {}
        for row in _ROWS:
            url = server.new_database()
            receiver = stack.enter_context(Remote(row.receiver, url, row.way))
            sender = stack.enter_context(Remote(row.sender, url, row.way))
            try:
                receiver.ready()
                sender.ready()
                pairs[row] = receiver, sender, url
            except RuntimeError as error:
                missing.append(f"{row.name} takes no part: {why_not(error)}.")
        for _ in range(_BLOCKS):
            for row, (receiver, sender, url) in pairs.items():
                with psycopg.connect(url) if row.held else nullcontext() as elsewhere:
                    if elsewhere is not None:
                        elsewhere.execute("CREATE TEMP TABLE unrelated AS SELECT pg_current_xact_id()")
                    sent = sender.call("send", number, *row.pauses)
                    arrived = receiver.call("arrivals", number)
                    delays[row] += [(there - here) / 1e9 for here, there in zip(sent, arrived, strict=True)]
        yield _table(delays, number, f"{server.note} {' '.join(dict.fromkeys(missing))}")


def _table(delays: dict[Row, list[float]], number: int, note: str) -> Table:
    table = Table(
        "Postgres, from the call to the handler in another process",
        ("when", "receiver", "in", "median", "p99", "bar", "reached"),
        note=(
            f"{number * _BLOCKS} messages a row, from before the call, {number} at a time in turns; *idle*: 50 to "
            "150 ms apart. The unrelated transaction has an id and stays open from before the first of a turn until "
            f"after the last. {note}"
        ),
    )
    median_of = {
        (row.name, row.way): statistics.median(values)
        for row, values in delays.items()
        if row.when == "idle" and values
    }
    for row, values in delays.items():
        if not values:
            continue
        values.sort()
        median, p99 = statistics.median(values), values[max(0, -(-len(values) * 99 // 100) - 1)]
        judged = ("–", "–")
        if row.bars is not None:
            bar, tail = row.bars
            text = f"≤ {bar * 1000:g} ms" + ("" if tail is None else f", p99 ≤ {tail * 1000:g} ms")
            judged = (text, verdict(median <= bar and (tail is None or p99 <= tail)))
        elif row.held:
            judged = ("as idle", verdict(median <= 1.25 * median_of[row.name, row.way]))
        table.add([row.when, row.name, row.way, f"**{milliseconds(median)}**", milliseconds(p99), *judged])
    return table

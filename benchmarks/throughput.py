"""Throughput of tasks and events through one connection, as a fraction of the bare driver's and beside other queues."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from . import bare_postgres, bare_sqlite, peers_postgres, peers_sqlite
from .databases import Database, Settings
from .kits import AsyncKit, Kit
from .machine import version
from .processes import Remote, started
from .report import NO_BAR, Table, at_least, ratio, thousands
from .rounds import Result, contest


class Row(msgspec.Struct, frozen=True):
    """The work, its count and batch size, the fraction of bare to be reached, and the ratio to a peer."""

    title: str
    work: str
    count: int
    size: tuple[int, ...]
    bar: float | None
    peer: str = ""
    factor: float = 1.0

    @property
    def async_only(self) -> bool:
        """Whether only the async kit does this work, beside a bare loop."""
        return self.work == "consume"


ROWS = {
    "SQLite": (
        Row("enqueue, one per transaction", "enqueue", 5_000, (), 0.80),
        Row("enqueue_many of 100", "enqueue_many", 50_000, (100,), 0.80),
        Row("claim + ack, one by one", "claim", 2_000, (), 0.80),
        Row("claim + ack in batches of 32", "claim_many", 16_000, (32,), 0.75),
        Row("claim + ack in batches of 128", "claim_many", 25_600, (128,), 0.75),
        Row("publish, one per transaction", "publish", 5_000, (), 0.80),
        Row("publish_many of 100", "publish_many", 50_000, (100,), 0.80),
        Row("replay with read()", "read", 100_000, (), 0.65),
        Row("replay with subscribe()", "subscribe", 100_000, (), 0.65),
    ),
    "Postgres": (
        Row("enqueue, one per transaction", "enqueue", 2_000, (), 0.75, "pgqueuer", 1.3),
        Row("enqueue_many of 1,000", "enqueue_many", 30_000, (1000,), 0.8, "pgqueuer", 1.5),
        Row("claim + ack in batches of 128", "claim_many", 12_800, (128,), 0.85, "pgmq", 1.0),
        Row("no-op tasks through an async consumer", "consume", 10_000, (), None, "pgqueuer", 2.0),
        Row("publish, one per transaction", "publish", 2_000, (), None),
        Row("publish_many of 100", "publish_many", 40_000, (100,), None),
        Row("replay with read()", "read", 100_000, (), 0.6),
        Row("replay with subscribe()", "subscribe", 100_000, (), 0.6),
    ),
}
PEERS = {"SQLite": peers_sqlite.PEERS, "Postgres": peers_postgres.PEERS}
OWN: dict[str, dict[str, Callable[[str], Any]]] = {
    "SQLite": {"bare": bare_sqlite.Bare, "by hand": bare_sqlite.ByHand, "sync": Kit, "async": AsyncKit},
    "Postgres": {
        "bare": bare_postgres.Bare,
        "bare in a loop": bare_postgres.BareInLoop,
        "COPY": bare_postgres.Copying,
        "sync": Kit,
        "async": AsyncKit,
    },
}
NOTES = {
    "SQLite": (
        "Throughput",
        "apsw",
        "*Bare* runs the statements of eventkit's backend in the same transactions, on a connection with the "
        "same settings; the verdict refers to it. *By hand* is a minimal implementation for this work, on a "
        "connection with apsw's defaults: `executemany` of an INSERT that returns no ids, and a claim that ignores "
        "the settings of the queue; the single statements are the same. *async* awaits one call after the "
        "other, each with two thread switches. In replay, payloads are decoded on both sides.",
        "Peers",
        "In the same rounds, at the same durability. The peers guarantee less: huey's dequeue has no ack, "
        "litequeue and persist-queue have no leases, and none of the three has batches or streams; – "
        "means that there is no such call.",
    ),
    "Postgres": (
        "Postgres, one connection",
        "psycopg",
        "*Bare* runs plain statements on the same tables and indexes, without functions, marks or "
        "notifications; replay through a server-side cursor. Payloads are encoded and decoded on both sides. The "
        "async consumer, compared with a bare one of the same shape, claims 256 at a time, runs an asyncio task "
        "for each, and acks them in one call.",
        "Postgres, peers",
        "In the same rounds, with the peers' own defaults: "
        + ", ".join(f"{name} {version(name)}" for name in ("pgqueuer", "asyncpg", "procrastinate", "pgmq"))
        + ". pgmq is installed from the SQL in its Python client. oban and PgQue are not in the package index, "
        "absurd's package brings no tables.",
    ),
}


def measure(settings: Settings, database: Database) -> Iterator[Table]:
    """Measure throughput beside bare statements, and beside the peers."""
    peers = PEERS[database.name]
    factories = {name: (factory, database.new()) for name, factory in (OWN[database.name] | peers).items()}
    with started(factories, peers) as (parties, missing):
        for name in OWN[database.name]:
            if parties[name].call("can", "read"):
                parties[name].call("time", "publish_many", 10_000, 1000)
        rounds = settings.rounds if database.name == "SQLite" else settings.few_rounds
        results = [(row, _run(parties, row, settings.count(row.count), rounds)) for row in ROWS[database.name]]
    yield _beside_bare(database.name, results, parties)
    yield _beside_peers(database.name, results, parties, missing)


def _run(parties: dict[str, Remote], row: Row, count: int, rounds: int) -> Result:
    if row.async_only:  # In one slice a round, because some consumers start and stop slowly.
        return contest(parties, row.work, count, rounds=rounds, slices=1)
    unit = 1000 if row.work in ("read", "subscribe") else 1
    return contest(parties, row.work, count, *row.size, rounds=rounds, unit=unit)


def _beside_bare(database: str, results: list[tuple[Row, Result]], parties: dict[str, Remote]) -> Table:
    title, driver, note, _, _ = NOTES[database]
    by_hand = " | by hand /s | of by hand" if "by hand" in parties else ""
    columns = f"work | bare {driver} /s | eventkit /s | of bare (spread) | bar | reached{by_hand}"
    table = Table(title, f"{columns} | async /s | async of bare", note)
    for row, result in results:
        reference = "bare in a loop" if row.async_only else "bare"
        mine = result.ratio("sync", reference)
        cells = [thousands(result.rate(reference)), thousands(result.rate("sync")), ratio(mine)]
        cells += at_least(mine and mine.median, row.bar, "{:.2f}".format)
        if by_hand:
            cells += [thousands(result.rate("by hand")), ratio(result.ratio("sync", "by hand"))]
        table.add(row.title, *cells, thousands(result.rate("async")), ratio(result.ratio("async", reference)))
    return table


def _beside_peers(database: str, results: list[tuple[Row, Result]], parties: dict[str, Remote], missing: str) -> Table:
    *_, title, note = NOTES[database]
    columns = [*(["COPY"] if "COPY" in parties else []), *PEERS[database]]
    names = " | ".join(f"{name} /s" for name in columns)
    table = Table(title, f"work | eventkit /s | {names} | bar | reached", f"{note} {missing}".strip())
    for row, result in results:
        if any(hasattr(peer, row.work) for peer in PEERS[database].values()):
            mine = "async" if row.async_only else "sync"
            rates = (thousands(result.rate(name)) if name in parties else "does not load" for name in columns)
            best = _best(result, row.peer, mine)
            bar = at_least(best[1], row.factor, f"{{}} × {best[0]}".format) if best else NO_BAR
            table.add(row.title, thousands(result.rate(mine)), *rates, *bar)
    return table


def _best(result: Result, peer: str, mine: str) -> tuple[str, float] | None:
    """Return the faster one of the peers whose name begins like that, and eventkit's rate as a multiple of its."""
    names = [name for name in result.rates if peer and name.startswith(peer)]
    spreads = [(name, spread.median) for name in names if (spread := result.ratio(mine, name)) is not None]
    return min(spreads, key=lambda pair: pair[1], default=None)

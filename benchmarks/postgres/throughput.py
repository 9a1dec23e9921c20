"""Throughput of tasks and events through one connection, as a fraction of bare psycopg."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import msgspec

from ..machine import version
from ..processes import Remote
from ..report import Table, ratio, thousands, verdict
from ..rounds import SLICES, Contestant, Result, contest
from ..settings import Settings
from .bare import Bare, BareInLoop, Copying
from .kits import AsyncKit, Kit
from .peers import PEERS, why_not
from .server import serving


class Row(msgspec.Struct, frozen=True):
    """The work, its count, its batch size, the fraction of bare to be reached, and the ratio to a peer."""

    title: str
    work: str
    count: int
    arguments: tuple[int, ...]
    bar: float | None
    peer: str | None = None
    factor: float = 1.0
    unit: int = 1


ROWS = (
    Row("enqueue, one per transaction", "enqueue", 4_000, (), 0.75, "pgqueuer", 1.3),
    Row("enqueue_many of 1,000", "enqueue_many", 60_000, (1000,), 0.8, "pgqueuer", 1.5),
    Row("claim + ack in batches of 128", "claim_many", 12_800, (128,), 0.85, "pgmq", 1.0),
    Row("no-op tasks through an async consumer", "consume", 20_000, (), None, "pgqueuer", 2.0),
    Row("publish, one per transaction", "publish", 4_000, (), None),
    Row("publish_many of 100", "publish_many", 40_000, (100,), None),
    Row("replay with read()", "read", 100_000, (), 0.6, unit=1000),
    Row("replay with subscribe()", "subscribe", 100_000, (), 0.6, unit=1000),
)
OWN: Mapping[str, type[Contestant]] = {
    "bare": Bare,
    "bare in a loop": BareInLoop,
    "COPY": Copying,
    "sync": Kit,
    "async": AsyncKit,
}


def measure(settings: Settings) -> Iterator[Table]:
    """Measure throughput beside bare statements, and beside the peers."""
    with serving(settings) as server, ExitStack() as stack:
        parties: dict[str, Remote] = {}
        missing: dict[str, str] = {}
        for name, factory in {**OWN, **PEERS}.items():
            parties[name] = stack.enter_context(Remote(factory, server.new_database()))
        for name in list(parties):
            try:
                parties[name].ready()
            except RuntimeError as error:
                if name in OWN:
                    raise
                del parties[name]
                missing[name] = why_not(error)
        for name in ("bare", "COPY", "sync", "async"):
            parties[name].call("time", "publish_many", settings.count(20_000, least=10_000), 1000)
        results = [(row, _run(parties, row, settings)) for row in ROWS]
        yield _beside_bare(results, server.note)
        yield _beside_peers(results, missing)


def _run(parties: dict[str, Remote], row: Row, settings: Settings) -> Result:
    def prepare(party: Remote, size: int) -> None:
        if row.work == "claim_many":
            party.call("fill", size)

    if row.work == "consume":
        return _consume(parties, settings)
    unit = SLICES * (row.arguments[0] if row.arguments else row.unit)
    count = max(unit, settings.count(row.count) // unit * unit)
    able = {name: party for name, party in parties.items() if not (name == "COPY" and row.work != "enqueue_many")}
    rounds = min(5, settings.rounds)
    return contest(able, row.work, count, *row.arguments, rounds=rounds, prepare=prepare)


def _consume(parties: dict[str, Remote], settings: Settings) -> Result:
    """Measure consumers in one slice a round, because some start and stop slowly."""
    able = {name: party for name, party in parties.items() if party.call("can", "consume")}
    count = settings.count(20_000)
    rates: dict[str, list[float]] = {name: [] for name in able}
    for number in range(1 + min(3, settings.rounds)):
        for name, party in able.items():
            party.call("fill", count)
            seconds = party.call("time", "consume", count)
            if number:
                rates[name].append(count / seconds)
    return Result(rates)


def _beside_bare(results: list[tuple[Row, Result]], note: str) -> Table:
    table = Table(
        "Postgres, one connection",
        ("work", "bare psycopg /s", "eventkit /s", "of bare (spread)", "bar", "reached", "async /s", "async of bare"),
        note=f"{note} *Bare* runs plain statements on the same tables and indexes, without functions, marks or "
        "notifications; replay through a server-side cursor. Payloads are encoded and decoded on both sides. The "
        "async consumer, compared with a bare one of the same shape, claims 256 at a time, runs an asyncio task "
        "for each, and acks them in one call.",
    )
    for row, result in results:
        reference = "bare in a loop" if row.work == "consume" else "bare"
        mine = "async" if row.work == "consume" else "sync"
        spread = result.ratio(mine, reference)
        bar = ("–", "–")
        if row.bar is not None and spread is not None:
            bar = (f"≥ {row.bar:.2f}", verdict(spread.median >= row.bar))
        cells: list[str] = [
            row.title,
            thousands(result.rate(reference)),
            thousands(result.rate("sync")),
            ratio(spread) if mine == "sync" else "–",
            *bar,
            thousands(result.rate("async")),
            ratio(result.ratio("async", reference)),
        ]
        table.add(cells)
    return table


def _beside_peers(results: list[tuple[Row, Result]], missing: Mapping[str, Any]) -> Table:
    table = Table(
        "Postgres, peers", ("work", "eventkit /s", "COPY /s", *(f"{name} /s" for name in PEERS), "bar", "reached")
    )
    for row, result in results:
        if not any(hasattr(peer, row.work) for peer in PEERS.values()):
            continue
        mine = "async" if row.work == "consume" else "sync"
        best = _best(result, row.peer, mine)
        bar = ("–", "–") if best is None else (f"≥ {row.factor} × {best[0]}", verdict(best[1] >= row.factor))
        peers = ("does not load" if name in missing else thousands(result.rate(name)) for name in PEERS)
        table.add([row.title, thousands(result.rate(mine)), thousands(result.rate("COPY")), *peers, *bar])
    versions = ", ".join(f"{name} {version(name)}" for name in ("pgqueuer", "asyncpg", "procrastinate", "pgmq"))
    table.note = (
        f"In the same rounds, with the peers' own defaults: {versions}. pgmq is installed from the SQL in its Python "
        "client. oban and PgQue are not in the package index, absurd's package brings no tables. "
        + " ".join(f"{name} takes no part: {reason}." for name, reason in missing.items())
    )
    return table


def _best(result: Result, peer: str | None, mine: str) -> tuple[str, float] | None:
    """Return the faster one of the peers whose name begins like that, and eventkit's rate as a multiple of its."""
    spreads = [
        (name, spread.median)
        for name in result.rates
        if peer is not None and name.startswith(peer) and (spread := result.ratio(mine, name)) is not None
    ]
    return min(spreads, key=lambda pair: pair[1], default=None)

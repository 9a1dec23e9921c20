"""Throughput of tasks and events, as a fraction of bare apsw."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec

from .bare import Bare, ByHand
from .kits import AsyncKit, Kit
from .peers import PEERS, why_not
from .processes import Remote
from .report import Table, ratio, thousands, verdict
from .rounds import SLICES, Contestant, Result, contest
from .settings import Settings


class Row(msgspec.Struct, frozen=True):
    """The work, its count, its batch size, and the fraction of bare apsw to be reached."""

    title: str
    work: str
    count: int
    arguments: tuple[int, ...]
    bar: float
    unit: int = 1


ROWS = (
    Row("enqueue, one per transaction", "enqueue", 5_000, (), 0.80),
    Row("enqueue_many of 100", "enqueue_many", 50_000, (100,), 0.80),
    Row("claim + ack, one by one", "claim", 2_000, (), 0.80),
    Row("claim + ack in batches of 32", "claim_many", 16_000, (32,), 0.75),
    Row("claim + ack in batches of 128", "claim_many", 25_600, (128,), 0.75),
    Row("publish, one per transaction", "publish", 5_000, (), 0.80),
    Row("publish_many of 100", "publish_many", 50_000, (100,), 0.80),
    Row("replay with read()", "read", 100_000, (), 0.65, unit=1000),
    Row("replay with subscribe()", "subscribe", 100_000, (), 0.65, unit=1000),
)
KITS: dict[str, type[Contestant]] = {"bare": Bare, "by hand": ByHand, "sync": Kit, "async": AsyncKit}


def measure(settings: Settings) -> Iterator[Table]:
    """Measure throughput beside bare apsw, and that of the peers."""
    yield _beside_bare(settings)
    yield _beside_peers(settings)


def _beside_bare(settings: Settings) -> Table:
    table = Table(
        "Throughput",
        (
            "work",
            "bare apsw /s",
            "eventkit /s",
            "of bare (spread)",
            "bar",
            "reached",
            "by hand /s",
            "of by hand",
            "async /s",
            "async of bare",
        ),
        note=(
            "*Bare* runs the statements of eventkit's backend in the same transactions, on a connection with the "
            "same settings; the verdict refers to it. *By hand* is a minimal implementation for this work, on a "
            "connection with apsw's defaults: `executemany` of an INSERT that returns no ids, and a claim that ignores "
            "the settings of the queue; the single statements are the same. *async* awaits one call after the "
            "other, each with two thread switches. In replay, payloads are decoded on both sides."
        ),
    )
    with _contestants(settings.folder("throughput"), KITS) as (contestants, _):
        for remote in contestants.values():
            remote.call("time", "publish_many", 10_000, 100)
        for row in ROWS:
            result = _run(contestants, row, settings.count(row.count), settings.rounds)
            table.add(_cells(row, result))
    return table


def _beside_peers(settings: Settings) -> Table:
    table = Table("Peers", ("work", "eventkit /s", *PEERS))
    with _contestants(settings.folder("peers"), {"sync": Kit, **PEERS}) as (contestants, missing):
        for row in ROWS:
            if any(hasattr(peer, row.work) for peer in PEERS.values()):
                count = settings.count(row.count // 4)
                result = _run(contestants, row, count, 1 if settings.quick else 3)
                table.add(
                    [
                        row.title,
                        thousands(result.rate("sync")),
                        *("does not load" if name in missing else thousands(result.rate(name)) for name in PEERS),
                    ]
                )
    table.note = (
        "In the same minutes, at the same durability. The peers guarantee less: huey's dequeue has no ack, "
        "litequeue and persist-queue have no leases, and none of the three has batches or streams; – "
        "means that there is no such call. "
        + " ".join(f"{name} takes no part: {reason}." for name, reason in missing.items())
    )
    return table


def _run(contestants: dict[str, Remote], row: Row, count: int, rounds: int) -> Result:
    def prepare(contestant: Remote, size: int) -> None:
        if row.work.startswith("claim"):
            contestant.call("fill", size)

    unit = SLICES * (row.arguments[0] if row.arguments else row.unit)
    return contest(
        contestants, row.work, max(unit, count // unit * unit), *row.arguments, rounds=rounds, prepare=prepare
    )


def _cells(row: Row, result: Result) -> list[str]:
    mine = result.ratio("sync", "bare")
    assert mine is not None
    return [
        row.title,
        thousands(result.rate("bare")),
        thousands(result.rate("sync")),
        ratio(mine),
        f"≥ {row.bar:.2f}",
        verdict(mine.median >= row.bar),
        thousands(result.rate("by hand")),
        ratio(result.ratio("sync", "by hand")),
        thousands(result.rate("async")),
        ratio(result.ratio("async", "bare")),
    ]


@contextmanager
def _contestants(
    folder: str, factories: dict[str, Callable[[str], Any]]
) -> Iterator[tuple[dict[str, Remote], dict[str, str]]]:
    """Provide the contestants that could be started, and the reasons for the others."""
    contestants: dict[str, Remote] = {}
    missing: dict[str, str] = {}
    with ExitStack() as stack:
        for name, factory in factories.items():
            contestants[name] = stack.enter_context(Remote(factory, folder))
        for name in list(contestants):
            try:
                contestants[name].ready()
            except RuntimeError as error:
                if name in KITS:
                    raise
                del contestants[name]
                missing[name] = why_not(name, error)
        yield contestants, missing

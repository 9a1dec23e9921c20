"""Eight concurrent connections, each in a process of its own: the rate as a fraction of the bare statements'."""

from collections.abc import Iterator, Mapping

from .bare_postgres import Bare, Notifying
from .consumers import AsyncConsumers, Wait
from .contestants import Contestant
from .databases import SLOW_DISK, Postgres, Settings, postgres
from .kits import Kit
from .peers_postgres import PgQueuer, Procrastinate
from .processes import Remote, started
from .report import Table, at_least, ratio, thousands
from .rounds import Result, contest

_NUMBER = 8
_SUBSCRIBERS = 10
_PEERS: Mapping[str, type[Contestant]] = {"pgqueuer": PgQueuer, "procrastinate": Procrastinate}
_OWN: Mapping[str, type[Contestant]] = {"bare": Bare, "bare with a NOTIFY": Notifying, "eventkit": Kit}


def measure(settings: Settings, database: Postgres) -> Iterator[Table]:
    """Measure enqueueing on a fast and on a slow disk, and publishing with and without live subscribers."""
    table = Table(
        f"Postgres, {_NUMBER} connections",
        "work | bare /s | bare with a NOTIFY /s | eventkit /s | of bare (spread) | bar | reached",
        note=f"{_NUMBER} processes with a connection each, and the server, share the machine's cores, which are the "
        "bottleneck: the contestant that needs less of them is faster. *workers busy*: no worker waits for the tasks "
        f"at that time. *{_SUBSCRIBERS} live subscribers* are asyncio tasks of one further process, with a consumer "
        "each, which follow eventkit's stream and save their offsets; beside the bare INSERT there are none. *1 ms "
        "fsync*: `commit_delay = 1000` and `commit_siblings = 0`.",
    )
    peers = Table(
        f"Postgres, {_NUMBER} connections, peers", f"work | eventkit /s | {' | '.join(f'{name} /s' for name in _PEERS)}"
    )
    _enqueue(settings, database, "enqueue one per transaction, workers busy", 4_000, 0.75, table, peers)
    _publish(settings, database, table)
    with postgres(settings, **SLOW_DISK) as slow:
        _enqueue(settings, slow, "the same, 1 ms fsync", 2_400, 0.8, table, peers)
    yield table
    yield peers


def _enqueue(
    settings: Settings, database: Postgres, title: str, count: int, bar: float, table: Table, peers: Table
) -> None:
    factories = {name: (factory, database.new()) for name, factory in (_OWN | _PEERS).items()}
    with started(factories, _PEERS, _NUMBER) as (parties, missing):
        result = contest(parties, "enqueue", settings.count(count), rounds=settings.few_rounds, unit=_NUMBER)
    _add(table, title, result, bar)
    peers.add(title, *(thousands(result.rate(name)) for name in ("eventkit", *_PEERS)))
    peers.note = missing


def _publish(settings: Settings, database: Postgres, table: Table) -> None:
    factories = {"bare": (Bare, database.new()), "eventkit": (Kit, database.new())}
    rounds, count = settings.few_rounds, settings.count
    with started(factories, number=_NUMBER) as (parties, _):
        result = contest(parties, "publish_many", count(80_000), 100, rounds=rounds, unit=100 * _NUMBER)
        _add(table, "publish_many of 100", result, 0.6)
        result = contest(parties, "publish", count(8_000), rounds=rounds, unit=_NUMBER)
        _add(table, "publish one per transaction, no subscriber", result, None)
        waits = [Wait("subscribe", "topic", f"subscriber-{place}") for place in range(_SUBSCRIBERS)]
        with Remote(AsyncConsumers, factories["eventkit"][1], *waits) as subscribers:
            subscribers.ready()
            # In one slice a round: subscribers need some time to detect that a stream is busy or quiet.
            result = contest(parties, "publish", count(12_000), rounds=rounds, slices=1, unit=_NUMBER)
            if not subscribers.call("arrivals", 1):
                raise AssertionError("the subscribers lag behind")
    _add(table, f"publish one per transaction, {_SUBSCRIBERS} live subscribers", result, 0.7)


def _add(table: Table, title: str, result: Result, bar: float | None) -> None:
    spread = result.ratio("eventkit", "bare")
    rates = (thousands(result.rate(name)) for name in _OWN)
    table.add(title, *rates, ratio(spread), *at_least(spread and spread.median, bar, "{:.2f}".format))

"""Eight concurrent connections, each in a process of its own: the rate as a fraction of the bare statements'."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

from ..processes import Remote
from ..report import Table, ratio, thousands, verdict
from ..rounds import SLICES, Contestant, Result, contest
from ..settings import Settings
from .bare import Bare, Notifying
from .kits import Kit, Subscribers
from .peers import PgQueuer, Procrastinate
from .server import SLOW_DISK, Server, serving
from .team import Team

_SIZE = 8
_SUBSCRIBERS = 10
_ENQUEUERS: Mapping[str, type[Contestant]] = {
    "bare": Bare,
    "bare with a NOTIFY": Notifying,
    "eventkit": Kit,
    "pgqueuer": PgQueuer,
    "procrastinate": Procrastinate,
}


def measure(settings: Settings) -> Iterator[Table]:
    """Measure enqueueing on a fast and on a slow disk, and publishing with and without live subscribers."""
    table = Table(
        f"Postgres, {_SIZE} connections",
        ("work", "bare /s", "bare with a NOTIFY /s", "eventkit /s", "of bare (spread)", "bar", "reached"),
    )
    peers = Table(f"Postgres, {_SIZE} connections, peers", ("work", "eventkit /s", "pgqueuer /s", "procrastinate /s"))
    with serving(settings) as server:
        table.note = (
            f"{server.note} {_SIZE} processes with a connection each, and the server, share the machine's cores, which "
            "are the bottleneck: the contestant that needs less of them is faster. *workers busy*: no worker waits for "
            f"the tasks at that time. *{_SUBSCRIBERS} live subscribers* are asyncio tasks of one further process, "
            "with a consumer each, which follow eventkit's topic and save their offsets; beside the bare INSERT "
            "there are none. *1 ms fsync*: `commit_delay = 1000` and `commit_siblings = 0`."
        )
        with ExitStack() as stack:
            result = _enqueue(stack, server, settings)
        _add(table, "enqueue one per transaction, workers busy", result, 0.75)
        peers.add(["enqueue one per transaction", *(thousands(result.rate(name)) for name in _PEERS)])
        with ExitStack() as stack:
            _publish(stack, server, settings, table)
    with serving(settings, **SLOW_DISK) as slow, ExitStack() as stack:
        result = _enqueue(stack, slow, settings)
        _add(table, "the same, 1 ms fsync", result, 0.8)
        peers.add(["the same, 1 ms fsync", *(thousands(result.rate(name)) for name in _PEERS)])
    yield table
    yield peers


_PEERS = ("eventkit", "pgqueuer", "procrastinate")


def _enqueue(stack: ExitStack, server: Server, settings: Settings) -> Result:
    able: dict[str, Remote | Team] = {}
    for name, factory in _ENQUEUERS.items():
        team = stack.enter_context(Team(factory, _SIZE, server.new_database()))
        try:
            team.ready()
            able[name] = team
        except RuntimeError:
            if name not in ("pgqueuer", "procrastinate"):
                raise
    return contest(able, "enqueue", _count(settings, 8_000), rounds=min(5, settings.rounds))


def _publish(stack: ExitStack, server: Server, settings: Settings, table: Table) -> None:
    databases = {name: server.new_database() for name in ("bare", "eventkit")}
    teams: dict[str, Remote | Team] = {
        name: stack.enter_context(Team(factory, _SIZE, databases[name]))
        for name, factory in (("bare", Bare), ("eventkit", Kit))
    }
    for team in teams.values():
        team.ready()
    rounds = min(5, settings.rounds)
    result = contest(teams, "publish_many", _count(settings, 80_000, 100), 100, rounds=rounds)
    _add(table, "publish_many of 100", result, 0.6)
    result = contest(teams, "publish", _count(settings, 8_000), rounds=rounds)
    _add(table, "publish one per transaction, no subscriber", result, None)
    with Remote(Subscribers, databases["eventkit"], _SUBSCRIBERS) as subscribers:
        subscribers.ready()
        # In one slice a round: subscribers need some time to detect that a topic is busy or quiet.
        result = contest(teams, "publish", _count(settings, 24_000), rounds=rounds, slices=1)
        if not subscribers.call("count"):
            raise AssertionError("the subscribers lag behind")
        _add(table, f"publish one per transaction, {_SUBSCRIBERS} live subscribers", result, 0.7)


def _count(settings: Settings, count: int, size: int = 1) -> int:
    unit = SLICES * _SIZE * size
    return max(unit, settings.count(count) // unit * unit)


def _add(table: Table, title: str, result: Result, bar: float | None) -> None:
    spread = result.ratio("eventkit", "bare")
    assert spread is not None
    judged = ("–", "–") if bar is None else (f"≥ {bar:.2f}", verdict(spread.median >= bar))
    rates = (thousands(result.rate(name)) for name in ("bare", "bare with a NOTIFY", "eventkit"))
    table.add([title, *rates, ratio(spread), *judged])

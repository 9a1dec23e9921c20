"""A worker on Postgres, beside pgqueuer's."""

from collections.abc import Iterator
from contextlib import ExitStack

from ..processes import Remote
from ..report import Table, ratio, thousands, verdict
from ..settings import Settings
from ..working import AppWorker, beginnings, race, starts
from .peers import PgQueuerAsyncpg
from .server import serving

_TIMES = 2.0
_SOON = 0.0012


class PgQueuerWorker(PgQueuerAsyncpg):
    """pgqueuer, on asyncpg, in batches of 256."""

    async def work(self, count: int) -> None:
        """Run a worker until the queue is empty."""
        await self.consume(count)


def measure(settings: Settings) -> Iterator[Table]:
    """Measure no-op tasks, and the delay to the start of one."""
    table = Table(
        "Postgres: Worker: no-op tasks in one process",
        ("slots", "eventkit /s", "pgqueuer (asyncpg) /s", "of pgqueuer (spread)", "bar", "reached"),
    )
    with serving(settings) as server:
        with ExitStack() as stack:
            workers: dict[str, Remote] = {
                name: stack.enter_context(Remote(AppWorker, server.new_database(), slots, prefetch))
                for name, slots, prefetch in (("100", 100, 0), ("1,000 and 1,000 ahead", 1_000, 1_000))
            }
            names = list(workers)
            try:
                peer = stack.enter_context(Remote(PgQueuerWorker, server.new_database()))
                peer.ready()
                workers["pgqueuer"] = peer
            except RuntimeError:
                pass
            result = race(workers, settings)
        for name in names:
            spread = result.ratio(name, "pgqueuer")
            judged = "–" if spread is None else verdict(spread.median >= _TIMES)
            bar = f"≥ {_TIMES:g} × pgqueuer"
            row = [name, thousands(result.rate(name)), thousands(result.rate("pgqueuer")), ratio(spread), bar, judged]
            table.add(row)
        table.note = f"As on SQLite; pgqueuer drains its queue in batches of 256. {server.note}"
        yield table
        yield beginnings(settings, "Postgres: ", server.new_database(), _SOON)
        yield starts(settings, "Postgres: ", server.new_database())

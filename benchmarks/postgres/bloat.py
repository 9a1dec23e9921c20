"""Some minutes of steady load, mostly beside an open transaction: the latency of claims, and table sizes."""

import statistics
import time
from collections.abc import Iterator
from itertools import islice

import msgspec
import psycopg

import eventkit

from ..payloads import payloads
from ..processes import Remote
from ..report import Table, milliseconds, thousands, verdict
from ..settings import Settings
from .pinned import begin_old
from .server import serving

_RATE = 2_000
"""Tasks a second."""

_TICKS = 20
_BATCH = 50
"""The number of parts in which a second's tasks are enqueued, and of tasks claimed at once."""

_SIZES = """
SELECT
    pg_relation_size('eventkit.eventkit_task'),
    pg_relation_size('eventkit.eventkit_task_ready'),
    pg_indexes_size('eventkit.eventkit_task'),
    pg_total_relation_size('eventkit.eventkit_low_water'),
    (SELECT n_dead_tup FROM pg_stat_user_tables WHERE schemaname = 'eventkit' AND relname = 'eventkit_task')
"""


class Period(msgspec.Struct, frozen=True):
    """The latencies of claims in a period, and the number of finished tasks."""

    seconds: float
    done: int
    claims: list[float]


class Steady:
    """A process that enqueues, claims and acks tasks at a fixed rate."""

    def __init__(self, url: str) -> None:
        self._kit = eventkit.connect(url)
        self._queue = self._kit.queue("work")
        self._source = payloads(10**9)

    def run(self, seconds: float) -> Period:
        """Work for *seconds*, at most at the rate of enqueueing."""
        claims, done = [], 0
        begun = time.perf_counter()
        tick = begun
        while time.perf_counter() - begun < seconds:
            self._queue.enqueue_many(islice(self._source, _RATE // _TICKS))
            for _ in range(_RATE // _TICKS // _BATCH):
                start = time.perf_counter()
                tasks = self._queue.claim("worker", _BATCH)
                claims.append(time.perf_counter() - start)
                done += len(self._queue.ack_many(tasks))
            tick += 1 / _TICKS
            time.sleep(max(0.0, tick - time.perf_counter()))
        return Period(time.perf_counter() - begun, done, claims)

    def close(self) -> None:
        """Close the kit."""
        self._kit.close()


def measure(settings: Settings) -> Iterator[Table]:
    """Measure a minute alone, three beside an old transaction, and one after it."""
    minute = settings.seconds(60)
    table = Table(
        f"Postgres, {_RATE:,} tasks a second for five minutes",
        (
            "minute",
            "old transaction",
            "tasks /s",
            "claim, median",
            "99th percentile",
            "table MB",
            "ready index MB",
            "all indexes MB",
            "low marks MB",
            "dead rows",
            "bar",
            "reached",
        ),
    )
    with serving(settings) as server:
        url = server.new_database()
        with (
            Remote(Steady, url) as worker,
            psycopg.connect(url) as old,
            psycopg.connect(url, autocommit=True) as ask,
        ):
            worker.call("run", minute / 20)
            first = 0.0
            for number in range(1, 6):
                if number == 2:
                    begin_old(old)
                if number == 5:
                    old.rollback()
                period = worker.call("run", minute)
                median = statistics.median(period.claims)
                first = first or median
                [sizes] = ask.execute(_SIZES).fetchall()
                *bytes_, dead = sizes
                table.add(
                    [
                        str(number),
                        "open" if number in (2, 3, 4) else "none",
                        thousands(period.done / period.seconds),
                        milliseconds(median),
                        milliseconds(statistics.quantiles(period.claims, n=100)[98]),
                        *(f"{size / 1e6:.1f}" for size in bytes_),
                        thousands(dead),
                        "–" if number == 1 else "≤ 2 × the first",
                        "–" if number == 1 else verdict(median <= 2 * first),
                    ]
                )
        table.note = (
            f"A task is enqueued with {_RATE // _TICKS - 1} others, claimed and acked with {_BATCH - 1}. "
            f"One transaction elsewhere, with an id and a snapshot, stays open from the second minute to the fourth. "
            f"Dead rows according to the server's statistics. {server.note}"
        )
    yield table

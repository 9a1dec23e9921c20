"""A database that is stopped and started again under a worker: J8."""

import asyncio
import time
from typing import Any

import own_cluster
import pytest
import working
from clusters import Cluster
from working import until

import eventkit
from eventkit import App, Disconnected
from eventkit.conformance import proves
from eventkit.worker.lifecycle import Recovery, settings_of
from eventkit.worker.metrics import Metrics

cluster, url, nothing_is_left = own_cluster.cluster, own_cluster.url, own_cluster.nothing_is_left

QUICK = {"db_retry_initial_ms": 100, "db_retry_max_ms": 500}


@pytest.mark.parametrize(("seconds", "attempts"), [(2, 60), pytest.param(30, 400, marks=pytest.mark.slow)])
@proves("J8")
def test_a_server_that_is_started_again_costs_nothing(cluster: Cluster, url: str, seconds: int, attempts: int) -> None:
    """It costs no task, and the worker, which is under load, retries with pauses."""
    app, runs = App(url), list[int]()

    @app.task
    async def note(number: int) -> None:
        runs.append(number)
        await asyncio.sleep(0.01)

    @app.task
    async def slow(number: int) -> None:
        await asyncio.sleep(seconds / 2)
        runs.append(number)

    with eventkit.connect(url) as kit, working.working(app, concurrency=20, **QUICK) as worker:
        queue = kit.queue("default")
        queue.enqueue_many([{"task": "slow", "args": {"number": -number}} for number in range(1, 6)])
        queue.enqueue_many([{"task": "note", "args": {"number": number}} for number in range(300)])
        until(lambda: len(runs) > 20)
        cluster.stop("immediate")
        time.sleep(seconds)
        cluster.start()
        until(lambda: queue.size() == 0)
        queue.enqueue({"task": "note", "args": {"number": 1000}})
        until(lambda: 1000 in runs)
        assert {*runs} == {*range(-5, 300)} - {0} | {0, 1000}
        # Only tasks claimed when the server stopped may be done twice.
        assert len(runs) <= 306 + 20
        assert worker.metrics.failures.of().value < attempts


@proves("J8")
def test_a_worker_that_begins_before_its_database_waits_for_it(cluster: Cluster, url: str) -> None:
    cluster.stop()
    app, runs = App(f"{url}&busy_timeout=0.2"), list[int]()

    @app.task
    async def note() -> None:
        runs.append(1)

    with working.working(app, **QUICK):
        time.sleep(0.5)
        cluster.start()
        with eventkit.connect(url) as kit:
            kit.queue("default").enqueue({"task": "note"})
            until(lambda: runs == [1])


@proves("J8")
def test_pauses_double_up_to_the_longest() -> None:
    """A call raises after the allowed number of attempts."""
    settings = settings_of({"db_retry_initial_ms": 100, "db_retry_max_ms": 500, "db_retry_max_attempts": 2})
    recovery, asked = Recovery(settings, Metrics()), list[int]()
    for failed, longest in ((1, 0.1), (2, 0.2), (3, 0.4), (4, 0.5), (5000, 0.5)):
        assert longest / 2 <= recovery.pause(failed) <= longest

    async def ask() -> Any:
        asked.append(1)
        raise Disconnected("away")

    with pytest.raises(Disconnected):
        asyncio.run(recovery.through(ask))
    assert len(asked) == 3

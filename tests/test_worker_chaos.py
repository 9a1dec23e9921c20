"""Faults in a worker's environment, from which it recovers by itself: J5, J6, J8.

A server that is away is in ``test_worker_recovery``, one that crashes under load in ``test_worker_soak``.
"""

import resource
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import fleet_app
import own_cluster
import psycopg
import pytest
from clusters import Cluster
from fleet import LEASE, SLOTS, Fleet, accepted, drained, eventually, fleet
from own_cluster import ask, ours

import eventkit
from eventkit import EventKit
from eventkit.conformance import proves

cluster, postgres, nothing_is_left = own_cluster.cluster, own_cluster.url, own_cluster.nothing_is_left

pytestmark = pytest.mark.slow

OURS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'eventkit'"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a database of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/chaos.db"
    given: str = request.getfixturevalue("postgres")
    return given


def recovers(url: str, folder: Path, fault: Callable[[Fleet, EventKit], None], workers: int = 2) -> Fleet:
    """Run *fault* against busy workers; check that all tasks are done, including those enqueued afterwards."""
    with eventkit.connect(url) as kit, fleet(url, folder, workers) as those:
        queue = kit.queue("default")
        queue.configure(keep_done=86_400)
        queue.enqueue_many([fleet_app.nap.new(number=n, seconds=0.2) for n in range(300)])
        queue.enqueue_many([fleet_app.block.new(number=n, seconds=0.2) for n in range(300, 400)])
        eventually(lambda: those.count() > 50, "the workers are busy")
        fault(those, kit)
        accepted(lambda: queue.enqueue_many([fleet_app.nap.new(number=n, seconds=0) for n in range(400, 450)]))
        drained(kit, "default")
        those.stop()
        print(those.check(kit, 450, lost_claims=20))
        return those


@proves("J8")
def test_connections_that_are_ended(cluster: Cluster, postgres: str, tmp_path: Path) -> None:
    """All connections are ended, again and again."""

    def terminate(workers: Fleet, kit: EventKit) -> None:
        until = time.monotonic() + 5
        while time.monotonic() < until:
            for pid in ours(cluster):
                ask(cluster, f"SELECT pg_terminate_backend({pid})")

    recovers(postgres, tmp_path, terminate)


@proves("J8")
def test_a_server_without_free_connections(cluster: Cluster, postgres: str, tmp_path: Path) -> None:
    """Another client holds them all, for longer than leases last."""

    def hog(workers: Fleet, kit: EventKit) -> None:
        hogs: list[psycopg.Connection[tuple[object, ...]]] = []

        def take_all() -> bool:
            with suppress(psycopg.OperationalError):
                while True:
                    hogs.append(psycopg.connect(cluster.url, autocommit=True))
            for (pid,) in hogs[0].execute(OURS).fetchall():
                hogs[0].execute("SELECT pg_terminate_backend(%s)", [pid])
            return all("has no connection left" in member.log for member in workers.members)

        try:
            eventually(take_all, "no other client has a connection")
            until = time.monotonic() + 2 * LEASE
            while time.monotonic() < until:
                take_all()
        finally:
            for one in hogs:
                one.close()

    allowed = ask(cluster, "SHOW max_connections")[0][0]
    cluster.configure(max_connections=20)
    recovers(postgres, tmp_path, hog)
    cluster.configure(max_connections=allowed)


@proves("J8")
def test_a_pool_without_free_connections(postgres: str, tmp_path: Path) -> None:
    """The functions themselves hold them all and wait for more, for longer than the timeout of calls."""
    small = f"{postgres}&max_size=2&busy_timeout=1"

    def hold(workers: Fleet, kit: EventKit) -> None:
        holds = [fleet_app.hold.options(priority=10).new(number=n, seconds=2) for n in range(10)]
        kit.queue("default").enqueue_many(holds)

    those = recovers(small, tmp_path, hold)
    assert any("raise max_size" in member.log for member in those.past)


@proves("J8")
def test_a_lock_on_the_tables(cluster: Cluster, postgres: str, tmp_path: Path) -> None:
    """A migration takes such a lock."""

    def lock(workers: Fleet, kit: EventKit) -> None:
        schema = postgres.partition("schema=")[2]
        with psycopg.connect(cluster.url) as other:
            other.execute(f"LOCK TABLE {schema}.eventkit_task".encode())
            time.sleep(8)

    recovers(postgres, tmp_path, lock)


@proves("J8")
def test_a_writer_that_does_not_end(tmp_path: Path) -> None:
    """It holds the file's lock for longer than the timeout of calls and the leases."""

    def lock(workers: Fleet, kit: EventKit) -> None:
        with kit.transaction() as tx:
            kit.stream("other").publish("a long transaction", tx=tx)
            time.sleep(8)

    recovers(f"sqlite:///{tmp_path}/chaos.db", tmp_path, lock)


@proves("J8")
def test_files_that_may_not_grow(tmp_path: Path) -> None:
    """As on a full disk: writes of the workers are soon refused, for longer than leases last.

    Their logs and output stay far below the limit.
    """

    def limit(workers: Fleet, kit: EventKit) -> None:
        limits = [resource.prlimit(member.process.pid, resource.RLIMIT_FSIZE) for member in workers.members]
        for member, (_, hard) in zip(workers.members, limits, strict=True):
            resource.prlimit(member.process.pid, resource.RLIMIT_FSIZE, (500_000, hard))
        eventually(lambda: all("free space" in member.log for member in workers.members), "all are refused")
        time.sleep(2 * LEASE)
        for member, given in zip(workers.members, limits, strict=True):
            resource.prlimit(member.process.pid, resource.RLIMIT_FSIZE, given)

    recovers(f"sqlite:///{tmp_path}/chaos.db", tmp_path, limit)


@proves("J2", "J6")
def test_a_worker_that_stands_still_for_longer_than_its_leases(url: str, tmp_path: Path) -> None:
    """Others retry its tasks; its own late answers do not count."""

    def stand_still(workers: Fleet, kit: EventKit) -> None:
        still, _ = workers.members
        queue = kit.queue("default")
        queue.enqueue_many([fleet_app.nap.options(priority=10).new(number=n, seconds=1) for n in range(2 * SLOTS)])
        eventually(lambda: had_by(workers, still.name), "it is busy")
        still.process.send_signal(signal.SIGSTOP)
        had = had_by(workers, still.name)
        eventually(lambda: all(attempts > 1 for attempts in again(workers, had)), "others do what it had")
        still.process.send_signal(signal.SIGCONT)

    def had_by(workers: Fleet, name: str) -> list[int]:
        runs = workers.runs()
        return [id for id, attempts in runs.items() if attempts[max(attempts)][::2] == (name, False)]

    def again(workers: Fleet, ids: list[int]) -> list[int]:
        runs = workers.runs()
        return [max(runs[id]) for id in ids]

    those = recovers(url, tmp_path, stand_still)
    assert "had run out" in those.past[0].log or "was lost" in those.past[0].log


@proves("J6")
@pytest.mark.parametrize(
    ("name", "runs", "attempts", "reason"), [("poison", 3, 3, "exhausted"), ("poison_once", 1, 2, "failed")]
)
def test_a_task_that_takes_its_worker_along(
    url: str, tmp_path: Path, name: str, runs: int, attempts: int, reason: str
) -> None:
    """The task is dead when its attempts are used up, or at once, and all others are done."""
    poison = getattr(fleet_app, name)
    with eventkit.connect(url) as kit, fleet(url, tmp_path, 2) as workers:
        queue = kit.queue("default")
        queue.configure(keep_done=86_400)
        naps = [fleet_app.nap.new(number=n, seconds=0.1) for n in range(200)]
        queue.enqueue_many([*naps[:100], poison.new(number=-1), *naps[100:]])
        deaths = 0

        def over() -> bool:
            nonlocal deaths
            deaths += workers.revive()
            return queue.size() == 0

        eventually(over, "all is done, or dead")
        workers.stop()
        [dead] = queue.tasks("dead")
    said = workers.runs()
    assert (dead.payload["task"], dead.attempt, dead.reason) == (name, attempts, reason)
    assert ("CRASHED" in (dead.error or "")) == (reason == "failed")
    assert deaths == len(said.pop(dead.id)) == runs
    assert {run.number for attempts in said.values() for run in attempts.values() if run.ended} == {*range(200)}

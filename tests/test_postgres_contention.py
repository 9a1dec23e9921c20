"""Q2, Q5 and Q13 with concurrent writers: no deadlock, and bounds that hold in every isolation level."""

import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from eventkit_postgres.statements import fetch, statements
from psycopg import IsolationLevel
from psycopg.sql import SQL, Identifier

import eventkit
from eventkit.conformance.processes import spawn
from eventkit.conformance.threads import ack_batches, eventually, in_thread, line_up, work_on
from eventkit.conformance.urls import with_options
from eventkit.operations.finish import ReleaseMany
from eventkit.operations.queue import Purge
from eventkit.plans import run

ISOLATIONS = [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE]
RETRIED = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)


def _table(url: str, name: str = "eventkit_task") -> Identifier:
    [schema] = parse_qs(urlsplit(url).query)["schema"]
    return Identifier(schema, name)


@pytest.fixture
def deadlocks(postgres: str) -> Callable[[], int]:
    """Return the deadlocks that the server resolved since the test began; the library hides them by a retry."""

    def count() -> int:
        with psycopg.connect(postgres) as driver:
            [(found,)] = driver.execute(
                "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
            ).fetchall()
            return int(found)

    before = count()
    return lambda: count() - before


def test_batches_acked_in_any_order_do_not_deadlock(postgres_url: str, deadlocks: Callable[[], int]) -> None:
    """The server counts no deadlock, not even one hidden by a retry."""
    with eventkit.connect(postgres_url) as kit:
        queue = kit.queue("jobs")
        queue.enqueue_many([eventkit.NewTask(n, priority=n % 7, key=None if n % 5 else str(n)) for n in range(1000)])
        tasks = queue.claim("worker", 1000)
    random.Random(1).shuffle(tasks)
    with (
        spawn(ack_batches, postgres_url, 2, tasks, 1) as one,
        spawn(ack_batches, postgres_url, 2, tasks[::-1], 2) as two,
    ):
        pass
    assert len(one.result() + two.result()) == 1000
    assert deadlocks() == 0


@pytest.mark.parametrize("seconds", [2, pytest.param(30, marks=pytest.mark.slow)])
def test_nothing_done_with_many_tasks_deadlocks(
    postgres_url: str, deadlocks: Callable[[], int], seconds: float
) -> None:
    """Acks, purges, requeues, lapses and claims of the same tasks run at once."""
    with eventkit.connect(postgres_url) as kit:
        kit.queue("jobs").enqueue_many(range(200))
    for process in [spawn(work_on, postgres_url, 4, seconds, seed) for seed in range(4)]:
        process.join()
    assert deadlocks() == 0


def _in_transactions(url: str, racers: int, seed: int, seconds: float, what: str) -> tuple[int, int]:
    """Do *what* in transactions of every isolation level; return the number of successes, and the most seen at once."""
    chance = random.Random(seed)
    done = most = 0
    with eventkit.connect(url) as kit, psycopg.connect(url.partition("?")[0]) as driver:
        queue = kit.queue("jobs")
        line_up(kit, racers)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            driver.isolation_level = chance.choice(ISOLATIONS)
            handed: Any = None
            with suppress(*RETRIED, eventkit.QueueFull):
                driver.execute("SELECT 1")
                time.sleep(chance.random() * 0.005)
                if what == "enqueue":
                    handed = [queue.enqueue(None, priority=chance.randrange(3), tx=driver)]
                elif what == "claim":
                    handed = queue.claim("worker", 2, tx=driver)
                else:
                    handed = queue.receive(2, tx=driver)
                time.sleep(chance.random() * 0.002)
                driver.commit()
                done += len(handed)
            if driver.info.transaction_status:
                driver.rollback()
                handed = None
            if what == "enqueue":
                most = max(most, queue.size())
                if chance.random() < 0.4:
                    queue.receive()
            elif what == "claim":
                most = max(most, queue.stats().running)
                time.sleep(chance.random() * 0.002)
                for task in handed or ():
                    queue.retry(task, delay=0) if chance.random() < 0.5 else queue.release(task)
                if chance.random() < 0.3:
                    queue.enqueue(None, priority=chance.randrange(3))
    return done, most


@pytest.mark.parametrize("seconds", [2, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("what", ["enqueue", "claim"])
def test_no_race_exceeds_a_bound(postgres_url: str, what: str, seconds: float) -> None:
    """Neither max_size nor max_running is exceeded, in transactions of any isolation level."""
    with eventkit.connect(postgres_url) as kit:
        kit.queue("jobs").configure(max_size=5 if what == "enqueue" else None, max_running=3)
        kit.queue("jobs").enqueue_many(range(5))
        processes = [spawn(_in_transactions, postgres_url, 4, seed, seconds, what) for seed in range(4)]
        answers = [process.result() for process in processes]
        assert max(most for _, most in answers) == (5 if what == "enqueue" else 3)
        assert sum(done for done, _ in answers) > 10


def test_no_race_exceeds_a_rate(postgres_url: str) -> None:
    """The rate holds in transactions of any isolation level."""
    with eventkit.connect(postgres_url) as kit:
        kit.queue("jobs").enqueue_many(range(1000))
        kit.queue("jobs").configure(rate=20, burst=5)
        began = time.monotonic()
        processes = [spawn(_in_transactions, postgres_url, 4, seed, 2, "receive") for seed in range(4)]
        taken = sum(process.result()[0] for process in processes)
        assert 10 < taken == 1000 - kit.queue("jobs").size()
        assert taken <= 5 + 20 * (time.monotonic() - began)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_claim_whose_snapshot_is_old_does_not_exceed_max_running(
    postgres_url: str, isolation: IsolationLevel
) -> None:
    """The claim counts the tasks that others run now, or fails to serialize."""
    with eventkit.connect(postgres_url) as kit, psycopg.connect(postgres_url.partition("?")[0]) as driver:
        queue = kit.queue("jobs")
        queue.configure(max_running=1)
        queue.enqueue("low")
        assert queue.release(queue.claim("another")[0])
        # A claim that stores where ready tasks begin would also fail to serialize.
        driver.execute(SQL("UPDATE {} SET raise_at = 'infinity'").format(_table(postgres_url, "eventkit_low_water")))
        driver.commit()
        driver.isolation_level = isolation
        driver.execute("SELECT 1")
        queue.enqueue("high", priority=1)
        assert [task.payload for task in queue.claim("another")] == ["high"]
        claimed: list[Any] = []
        with suppress(psycopg.errors.SerializationFailure):
            claimed = queue.claim("worker", tx=driver)
        driver.rollback()
        assert claimed == []


_IN_BATCHES: dict[str, Callable[[Any, list[Any], Any], object]] = {
    "ack_many": lambda queue, tasks, tx: queue.ack_many(tasks),
    "ack_many with keys": lambda queue, tasks, tx: queue.ack_many(tasks),
    "ack_many in a transaction": lambda queue, tasks, tx: queue.ack_many(tasks, tx=tx),
    "release": lambda queue, tasks, tx: queue._execute(ReleaseMany([(task.id, task.token) for task in tasks])),
}


@pytest.mark.parametrize("count", [20, 300])
@pytest.mark.parametrize("what", _IN_BATCHES)
def test_batches_are_locked_in_the_order_of_their_ids(postgres_url: str, what: str, count: int) -> None:
    """A call blocked at one of them has locked those below it and none above, in any order of storage."""
    base = postgres_url.partition("?")[0]
    with (
        eventkit.connect(with_options(postgres_url, busy_timeout=60)) as kit,
        psycopg.connect(base) as holder,
        psycopg.connect(base) as observer,
        psycopg.connect(base) as caller,
    ):
        queue = kit.queue("jobs")
        queue.enqueue_many(
            [eventkit.NewTask(n, priority=n % 7, key=str(n) if "keys" in what else None) for n in range(1000)]
        )
        claimed = [task for _ in range(50) for task in queue.claim("worker", 20)]
        tasks = random.Random(1).sample(claimed, count)
        observer.execute("ANALYZE")
        observer.commit()
        ids = sorted(task.id for task in tasks)
        middle = ids[count // 2]
        table = _table(postgres_url)
        holder.execute(SQL("SELECT FROM {} WHERE id = %s FOR UPDATE").format(table), (middle,))
        call = in_thread(_IN_BATCHES[what], queue, tasks, caller)
        waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'transactionid'"
        eventually(lambda: observer.execute(waiting).fetchall())
        free = observer.execute(SQL("SELECT id FROM {} FOR UPDATE SKIP LOCKED").format(table)).fetchall()
        observer.rollback()
        holder.rollback()
        call.result(60)
        locked = set(ids) - {id for (id,) in free}
        assert locked == {id for id in ids if id <= middle}


def test_what_another_transaction_has_in_hand_is_left_to_it(postgres_url: str) -> None:
    """A purge and a requeue skip the task and do not wait for it."""
    with eventkit.connect(postgres_url) as kit:
        queue = kit.queue("jobs")
        queue.enqueue_many([eventkit.NewTask(n, key=str(n)) for n in range(3)])
        with kit.transaction() as tx:
            assert queue.claim("worker", tx=tx)
            assert queue.purge() == 2
        assert queue.purge("running") == 1
        queue.enqueue_many(range(3))
        tasks = queue.claim("worker", 3)
        for task in tasks:
            queue.fail(task, "broken")
        with kit.transaction() as tx:
            tx.execute(SQL("SELECT FROM {} LIMIT 1 FOR UPDATE").format(_table(postgres_url)))
            assert queue.requeue() == 2
        assert queue.requeue() == 1


def test_a_key_that_comes_while_a_queue_is_purged_stays_reserved(postgres_url: str) -> None:
    """A task enqueued between the steps of a purge is left for the next one, which reserves its key too."""
    [schema] = parse_qs(urlsplit(postgres_url).query)["schema"]
    known = statements(schema)
    with eventkit.connect(postgres_url) as kit, psycopg.connect(postgres_url.partition("?")[0]) as driver:
        queue = kit.queue("jobs")
        early = queue.enqueue("early", key="early")

        def step(operation: Any) -> Any:
            if isinstance(operation, Purge):
                queue.enqueue("late", key="late")
            return fetch(driver, known, operation)

        assert run(Purge("jobs", "ready", None).plan(), step) == 1
        driver.commit()
        [late] = queue.tasks()
        assert queue.purge("ready") == 1
        for key, id in (("early", early.id), ("late", late.id)):
            assert queue.enqueue("again", key=key) == (id, False)

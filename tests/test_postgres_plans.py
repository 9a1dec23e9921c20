"""How claims run: the planner's choices, and their first steps."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from eventkit_postgres.address import parse
from eventkit_postgres.session import options
from eventkit_postgres.statements import parameters, statements
from psycopg.sql import SQL, Literal

import eventkit
from eventkit import NewTask
from eventkit.conformance import proves
from eventkit.conformance.threads import eventually
from eventkit.operations import Operation, claim, finish
from eventkit.operations.claim import Take

CROWD = 5_000


def looks(plan: dict[str, Any]) -> Iterator[int]:
    """Return how many rows each step of *plan* read by the index of ready tasks, except the claimed ones."""
    if plan.get("Index Name") == "eventkit_task_ready":
        yield plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    if plan["Node Type"] != "LockRows":
        for part in plan.get("Plans", []):
            yield from looks(part)


def test_a_claim_that_was_planned_for_an_empty_queue_suits_a_full_one(postgres_url: str) -> None:
    """Expiring tasks among the ready ones are found by the moment; the others are not read for it."""
    asked = Take("work", "one", 10, None, 1)
    place, _, schema = postgres_url.rpartition("?schema=")
    with eventkit.connect(postgres_url) as kit, psycopg.connect(place, autocommit=True) as ask:
        ask.execute(f"ALTER TABLE {schema}.eventkit_task SET (autovacuum_enabled = off)")
        queue = kit.queue("work")
        ask.execute("SET plan_cache_mode = force_generic_plan")
        statement = statements(schema)["Take"]
        ask.execute(f"PREPARE asked AS {statement.sql}")
        values = SQL(", ").join(map(Literal, parameters(statement, asked)))
        explain = SQL("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE asked ({})").format(values)
        ask.execute(explain)
        queue.enqueue_many(range(CROWD))
        queue.claim("two")
        [[[explained]]] = ask.execute(explain).fetchall()
    assert max(looks(explained["Plan"]), default=0) <= 100


@proves("Q24")
def test_an_ordered_claim_reads_few_tasks_of_a_table_that_was_never_analyzed(postgres_url: str) -> None:
    """The first task of a group is found in the index of groups, not among all ids."""
    [schema] = parse_qs(urlsplit(postgres_url).query)["schema"]
    with eventkit.connect(postgres_url) as kit, kit.transaction() as setup:
        setup.execute(f"ALTER TABLE {schema}.eventkit_task SET (autovacuum_enabled = off)")
    with eventkit.connect(postgres_url) as kit:
        queue = kit.queue("jobs")
        queue.configure(ordered=True)
        queue.enqueue_many([NewTask(n, group=f"group {n % 1000}") for n in range(CROWD)])
        with kit.transaction() as tx:
            assert len(queue.claim("worker", 32, tx=tx)) == 32
            [(read,)] = tx.execute(
                "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables"
                f" WHERE schemaname = '{schema}' AND relname = 'eventkit_task'"
            ).fetchall()
    assert read < CROWD


def test_a_worker_that_slept_claims_at_once(postgres_url: str) -> None:
    """The next claim refreshes where ready tasks begin; a sleeper that woke does so first."""
    [schema] = parse_qs(urlsplit(postgres_url).query)["schema"]
    driver = psycopg.connect(postgres_url.partition("?")[0], autocommit=True, options=f"-c search_path={schema}")

    def raised(asleep: bool) -> bool:
        """Return whether a claim refreshes where ready tasks begin, when that is due."""
        queue.enqueue("task")
        driver.execute("DELETE FROM eventkit_sleeper")
        if asleep:
            until = "clock_timestamp() + interval '1 min'"
            driver.execute(f"INSERT INTO eventkit_sleeper VALUES ('task:jobs', 1, 1, {until})".encode())
        due = "UPDATE eventkit_low_water SET raise_at = clock_timestamp() - interval '10 ms' RETURNING raise_at"
        before = driver.execute(due).fetchall()
        assert len(queue.claim("worker")) == 1
        return driver.execute("SELECT raise_at FROM eventkit_low_water").fetchall() != before

    with driver, eventkit.connect(postgres_url) as kit:
        queue = kit.queue("jobs")
        assert queue.claim("worker") == []
        assert raised(asleep=False)
        # A refresh that has been due for a second is made by any claim; a busy machine may take that long.
        eventually(lambda: not raised(asleep=True))
        assert raised(asleep=False)


def by_id(held: list[finish.Held]) -> list[Operation[Any]]:
    """Return statements that find tasks by their ids: those held, in the queue "work", or the best ones there."""
    [id, token] = held[0]
    return [
        Take("work", "one", 10, None, 1),
        claim.Promote("due", 10),
        claim.Ack(id, token),
        claim.AckMany(held),
        claim.Finish([(*each, None) for each in held]),
        finish.Retry(id, token, 1000, None),
        finish.Fail(id, token, "error"),
        finish.Release(id, token),
        finish.ReleaseMany(held),
        finish.Snooze(id, token, 1000),
        finish.Extend(id, token, 1000),
        finish.ExtendMany(held, 1000),
    ]


@contextmanager
def beside_an_old_transaction(url: str) -> Iterator[tuple[str, psycopg.Connection[Any], eventkit.EventKit]]:
    """Yield a schema, a connection and a kit, while another transaction keeps dead rows and autovacuum is off."""
    [schema] = parse_qs(urlsplit(url).query)["schema"]
    place = url.partition("?")[0]
    old = psycopg.connect(place)
    ask = psycopg.connect(place, autocommit=True, **options(parse(url), place))
    with old, ask, eventkit.connect(url) as kit:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT pg_current_xact_id()")
        ask.execute(f"ALTER TABLE {schema}.eventkit_task SET (autovacuum_enabled = off)".encode())
        yield schema, ask, kit


def test_tasks_are_found_by_id_although_there_were_none_when_the_planner_last_counted(postgres_url: str) -> None:
    """Between two batches, the indexes may hold many dead rows that an old transaction could still see."""
    with beside_an_old_transaction(postgres_url) as (schema, ask, kit):
        queue = kit.queue("work")
        queue.enqueue_many(range(CROWD))
        while tasks := queue.claim("two", 1000):
            queue.ack_many(tasks)
        ask.execute(f"ANALYZE {schema}.eventkit_task".encode())
        kit.queue("due").enqueue("task", delay=0.001)
        queue.enqueue_many(range(20))
        held = [(task.id, task.token) for task in queue.claim("two", 10)]
        looked_at = {}
        for generic in ("force_generic_plan", "force_custom_plan"):
            ask.execute(f"SET plan_cache_mode = {generic}".encode())
            for operation in by_id(held[::-1]):
                statement = statements(schema)[operation.heading]
                values = SQL(", ").join(map(Literal, parameters(statement, operation)))
                ask.execute(f"PREPARE asked AS {statement.sql}".encode())
                explain = SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE asked ({})").format(values)
                blocks = []
                for _ in range(3):
                    ask.execute("BEGIN")
                    [[[explained]]] = ask.execute(explain).fetchall()
                    ask.execute("ROLLBACK")
                    blocks.append(explained["Plan"]["Shared Hit Blocks"])
                ask.execute("DEALLOCATE asked")
                # Planning a function's statements, at first and after each ANALYZE, reads many other blocks.
                looked_at[operation.heading, generic] = min(blocks)
    assert {name: blocks for name, blocks in looked_at.items() if blocks > CROWD // 10} == {}


def test_claims_find_what_was_put_where_they_do_not_look(postgres_url: str) -> None:
    """From time to time a claim reads all ready tasks, including priorities that had none before."""
    [schema] = parse_qs(urlsplit(postgres_url).query)["schema"]
    driver = psycopg.connect(postgres_url.partition("?")[0], autocommit=True, options=f"-c search_path={schema}")
    found: list[int] = []

    def claims_something() -> bool:
        found.extend(task.payload for task in queue.claim("worker", 10))
        return bool(found)

    with driver, eventkit.connect(postgres_url) as kit:
        queue = kit.queue("jobs")
        queue.enqueue("task")
        assert queue.ack(queue.claim("worker")[0])
        driver.execute(
            "INSERT INTO eventkit_task (queue, payload, priority, run_at) "
            "SELECT 'jobs', to_json(p), p, now() - interval '1 hour' FROM unnest(ARRAY[0, 5, -3, 7]) AS p"
        )
        eventually(claims_something)
    assert found == [7, 5, 0, -3]


def by_wake_index(plan: dict[str, Any]) -> int:
    """Return how many blocks the steps of *plan* read by the index of timed changes."""
    own = plan["Shared Hit Blocks"] if plan.get("Index Name") == "eventkit_task_wake" else 0
    return own or sum(by_wake_index(part) for part in plan.get("Plans", []))


@proves("Q18")
@pytest.mark.parametrize("how", [{}, {"delay": 0.001}, {"expires": 3}], ids=["leases", "delays", "expiries"])
def test_moments_that_have_passed_are_not_walked_past(postgres_url: str, how: dict[str, float]) -> None:
    """Beside an old transaction, neither claims nor waiters read the dead rows of earlier tasks.

    Their leases, which were short, delays and expiries are in one index.
    """
    with beside_an_old_transaction(postgres_url) as (schema, ask, kit):
        queue = kit.queue("work")
        queue.enqueue_many(NewTask(number, **how) for number in range(4 * CROWD))
        time.sleep(0.01)
        while tasks := queue.claim("two", 1000, lease=2):
            assert len(queue.ack_many(tasks)) == len(tasks)
        time.sleep(3.2)
        claims, probed = [], []
        for number in range(21):
            queue.enqueue(number, **how)
            time.sleep(0.01)
            for operation in (claim.TasksAhead("work"), Take("work", "one", 1, 1000, 1)):
                statement = statements(schema)[operation.heading]
                values = SQL(", ").join(map(Literal, parameters(statement, operation)))
                ask.execute(f"PREPARE asked AS {statement.sql}".encode())
                explain = SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE asked ({})").format(values)
                [[[explained]]] = ask.execute(explain).fetchall()
                ask.execute("DEALLOCATE asked")
                if isinstance(operation, Take):
                    claims.append(explained["Plan"]["Shared Hit Blocks"])
                else:
                    probed.append(by_wake_index(explained["Plan"]))
        # The first claim, and one from time to time, looks up again where leases begin to end.
        assert (sorted(claims)[10] < 150, sorted(probed)[10] < 50) == (True, True), (claims, probed)
        held = {task.id for task in queue.tasks("running", limit=21)}
        time.sleep(1.1)
        assert {task.id for task in queue.claim("three", 21)} == held, "leases that end are found all the same"

"""How claims are carried out: what the planner makes of them, and what they do first."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
from eventkit_postgres.statements import parameters, statements
from psycopg.sql import SQL, Literal

import eventkit
from eventkit.conformance.threads import eventually
from eventkit.operations.claim import Take

CROWD = 5_000


def looks(plan: dict[str, Any]) -> Iterator[int]:
    """How many rows each step of *plan* looked at by the index of what is ready, but for what is taken."""
    if plan.get("Index Name") == "eventkit_task_ready":
        yield plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    if plan["Node Type"] != "LockRows":
        for part in plan.get("Plans", []):
            yield from looks(part)


def test_a_claim_that_was_planned_for_an_empty_queue_suits_a_full_one(postgres_url: str) -> None:
    """What expires among what is ready is found by the moment; the rest is not looked at for it."""
    asked = Take("work", "one", 10, None, 1)
    place, _, schema = postgres_url.rpartition("?schema=")
    with eventkit.connect(postgres_url) as kit, psycopg.connect(place, autocommit=True) as ask:
        ask.execute(f"ALTER TABLE {schema}.eventkit_task SET (autovacuum_enabled = off)")
        queue = kit.queue("work")
        ask.execute("SET plan_cache_mode = force_generic_plan")
        statement = statements(schema)[Take]
        ask.execute(f"PREPARE asked AS {statement.sql}")
        values = SQL(", ").join(map(Literal, parameters(statement, asked)))
        explain = SQL("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE asked ({})").format(values)
        ask.execute(explain)
        queue.enqueue_many(range(CROWD))
        queue.claim("two")
        [[[explained]]] = ask.execute(explain).fetchall()
    assert max(looks(explained["Plan"]), default=0) <= 100


def test_whoever_was_asleep_claims_at_once(postgres_url: str) -> None:
    """Where ready tasks begin is looked at anew by the claim after that, and first by whoever was awake."""
    [schema] = parse_qs(urlsplit(postgres_url).query)["schema"]
    driver = psycopg.connect(postgres_url.partition("?")[0], autocommit=True, options=f"-c search_path={schema}")

    def raised(asleep: bool) -> bool:
        """Whether a claim looks at where ready tasks begin, when that is due."""
        queue.enqueue("task")
        driver.execute("DELETE FROM eventkit_sleeper")
        if asleep:
            until = "clock_timestamp() + interval '1 min'"
            driver.execute(f"INSERT INTO eventkit_sleeper VALUES ('task:jobs', 1, 1, {until})".encode())
        due = "UPDATE eventkit_low SET raise_at = clock_timestamp() - interval '10 ms' RETURNING raise_at"
        before = driver.execute(due).fetchall()
        assert len(queue.claim("worker")) == 1
        return driver.execute("SELECT raise_at FROM eventkit_low").fetchall() != before

    with driver, eventkit.connect(postgres_url) as kit:
        queue = kit.queue("jobs")
        assert queue.claim("worker") == []
        assert raised(asleep=False)
        # What has been due for a second is seen to by everybody; a machine that is busy may take as long.
        eventually(lambda: not raised(asleep=True))
        assert raised(asleep=False)

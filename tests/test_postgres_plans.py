"""What the planner makes of the statements, where what it knew when it planned is not so any more."""

from collections.abc import Iterator
from typing import Any

import psycopg
from eventkit_postgres.statements import parameters, statements
from psycopg.sql import SQL, Literal

import eventkit
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

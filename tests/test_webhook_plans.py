"""Indexes of webhooks: listing them costs the same with any number of other tasks and other webhooks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
from eventkit_postgres.statements import parameters
from eventkit_postgres.statements import statements as of_postgres
from eventkit_sqlite.statements import STATEMENTS as OF_SQLITE
from eventkit_sqlite.statements import bound
from psycopg.sql import SQL, Literal

import eventkit
from eventkit.codec import Codec
from eventkit.conformance.clauses import proves
from eventkit.operations.queue import ListWebhooks, ListWebhooksOf
from eventkit.webhooks import Webhook

OTHERS = 3_000
LISTS: list[tuple[Any, str, int]] = [
    (ListWebhooks(None, 10, 0), "eventkit_task_job", 10),
    (ListWebhooks("ready", 10, 0), "eventkit_task_job", 10),
    (ListWebhooksOf("calls", 10, Codec(), None, 0), "eventkit_task_queue_job", 2),
    (ListWebhooksOf("calls", 10, Codec(), "ready", 0), "eventkit_task_queue_job", 2),
]


def fill(kit: eventkit.EventKit) -> None:
    """Add two webhooks of a queue, after many tasks of that queue and many webhooks of others."""
    webhook = Webhook(callback_url="https://example.com/").task_payload
    kit.queue("calls").enqueue_many(range(OTHERS))
    for n in range(30):
        kit.queue(f"others-{n}").enqueue_many([webhook] * (OTHERS // 30))
    kit.queue("calls").enqueue_many([webhook] * 2)


@proves("E14")
def test_sqlite_finds_webhooks_by_their_index(tmp_path: Path) -> None:
    """The plan sorts nothing."""
    path = tmp_path / "webhooks.db"
    with eventkit.connect(f"sqlite:///{path}") as kit:
        fill(kit)
    database = apsw.Connection(str(path))
    for asked, index, found in LISTS:
        statement = OF_SQLITE[asked.heading]
        values = bound(statement, statement.values(asked))
        assert len(database.execute(statement.sql, values).fetchall()) == found
        steps = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {statement.sql}", values)]
        assert any(index in step.split() for step in steps), steps
        assert not [step for step in steps if "TEMP B-TREE" in step], steps
    database.close()


def looks(plan: dict[str, Any]) -> Iterator[tuple[str | None, int]]:
    """Return how *plan* reads tasks: the index, and the number of rows."""
    parts = plan.get("Plans", [])
    if plan.get("Relation Name") == "eventkit_task":
        # A bitmap has a step of its own for the index.
        index = plan.get("Index Name") or next((part.get("Index Name") for part in parts), None)
        yield index, plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    for part in parts:
        yield from looks(part)


@proves("E14")
def test_postgres_finds_webhooks_by_their_index(postgres_url: str) -> None:
    """It reads no more of them than it shows."""
    place, _, schema = postgres_url.rpartition("?schema=")
    with eventkit.connect(postgres_url) as kit, psycopg.connect(place, autocommit=True) as ask:
        fill(kit)
        ask.execute(SQL("ANALYZE {}.eventkit_task").format(SQL(schema)))
        ask.execute("SET plan_cache_mode = force_generic_plan")
        for asked, index, found in LISTS:
            statement = of_postgres(schema)[asked.heading]
            ask.execute(f"PREPARE asked AS {statement.sql}")
            values = SQL(", ").join(map(Literal, parameters(statement, asked)))
            [[[plan]]] = ask.execute(SQL("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE asked ({})").format(values)).fetchall()
            ask.execute("DEALLOCATE asked")
            assert list(looks(plan["Plan"])) == [(index, found)]

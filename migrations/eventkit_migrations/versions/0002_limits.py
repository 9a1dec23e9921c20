"""Codes of failures, limits for producers, strict keys, and limits over several queues.

The statements are in ``schema_0002.sql`` of each backend.  What the columns do not show:

* ``eventkit_task.code`` is a short name for why the last run failed; ``eventkit_task_now`` shows it by the clock.
* ``eventkit_queue.enqueue_tokens`` is the content of the bucket of ``enqueue_rate`` at ``enqueue_refilled_at``.
* ``eventkit_key.payload`` is that of a deleted task in a queue with ``strict_keys``, which compares payloads.
* ``eventkit_cluster_limit`` has a row for each queue of a limit; its rows have the same ``max_running``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventkit_migrations.database import Recorder, Schema, execute

if TYPE_CHECKING:
    from sqlalchemy import Connection

revision = "0002"
down_revision = "0001"


def upgrade(connection: Connection | Recorder, schema: Schema) -> None:
    for statement in schema.around_functions(schema.tables(revision)):
        execute(connection, statement, schema)


def downgrade(connection: Connection | Recorder, schema: Schema) -> None:
    for statement in schema.around_functions(schema.dropped(revision)):
        execute(connection, statement, schema)

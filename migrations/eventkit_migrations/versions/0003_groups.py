"""Groups of tasks.

The statements are in ``schema_0003.sql`` of each backend.  What the columns do not show:

* ``eventkit_task.group_key``, formerly ``lane``, is the group of a task; in queues that are fair or limit their groups,
  the tasks without one have the group ``''``.
* ``eventkit_task.turn`` is the place of a task in the order of a fair queue, in nanoseconds of virtual time.
* ``eventkit_task.held`` marks a scheduled task that waits for its group: the end of another task of the group makes it
  ready.  Two triggers on the table do that, for tasks whose ``blocks`` says that others wait for them.  Before the
  column goes, all held tasks become due.
* ``eventkit_group_rate`` has the bucket of each group of a queue with ``group_rate``: the tokens that tasks have taken,
  and those that tasks which are put off have *reserved*; it is full again at *until*.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventkit_migrations.database import Recorder, Schema, execute

if TYPE_CHECKING:
    from sqlalchemy import Connection

revision = "0003"
down_revision = "0002"


def upgrade(connection: Connection | Recorder, schema: Schema) -> None:
    for statement in schema.around_functions(schema.tables(revision)):
        execute(connection, statement, schema)


def downgrade(connection: Connection | Recorder, schema: Schema) -> None:
    for statement in schema.around_functions(schema.dropped(revision)):
        execute(connection, statement, schema)

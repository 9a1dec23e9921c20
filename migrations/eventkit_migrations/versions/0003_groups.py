"""Groups of tasks, and consumer groups of streams.

The statements are in ``schema_0003.sql`` of each backend.  What the columns do not show:

* A partition of a group belongs to the member whose lease has the same ``token``; the row of the partition has the
  position that the token fences.  A member's lease is a row of ``eventkit_consumer_lease`` whose ``partition`` is the
  number of the member, from 1; in that of a consumer without a group it is 0.
* ``eventkit_consumer_group.generation`` changes when a member has to look again at how partitions are shared.
* ``eventkit_consumer_parked`` has the events of a group that wait: a failed one until ``due``, and those of its key
  after it, whose ``due`` is NULL.
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

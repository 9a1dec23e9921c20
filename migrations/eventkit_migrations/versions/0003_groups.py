"""Groups: several members share the events of a stream, in order for each key.

The statements are in ``schema_0003.sql`` of each backend.  What the columns do not show:

* A partition of a group belongs to the member whose lease has the same ``token``; the row of the partition has the
  position that the token fences.  A member's lease is a row of ``eventkit_consumer_lease`` whose ``partition`` is the
  number of the member, from 1; in that of a consumer without a group it is 0.
* ``eventkit_consumer_group.generation`` changes when a member has to look again at how partitions are shared.
* ``eventkit_consumer_parked`` has the events of a group that wait: a failed one until ``due``, and those of its key
  after it, whose ``due`` is NULL.
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

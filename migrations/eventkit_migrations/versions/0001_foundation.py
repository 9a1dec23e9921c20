"""Streams, queues, channels, schedules and all else: the tables, which are in ``schema_0001.sql`` of each backend.

Tables of SQLite are STRICT, which SQLite supports since 3.37: otherwise an INSERT of text as a time succeeds, and a
reader of the row fails.  Unlike a CHECK, STRICT refuses the row in ``INSERT OR IGNORE`` too.

Times are integers of milliseconds since 1970 in UTC.  The defaults use
``julianday`` because ``unixepoch('subsec')`` is NULL before SQLite 3.42, and any client may insert.

What the columns do not show:

* ``eventkit_task.wake_at`` is the time at which the row changes by itself: a scheduled task becomes due,
  a lease ends, a ready task expires.  NULL where nothing will happen.  One index over it answers
  "what is due?" and "when to check again?" for all three.
* ``eventkit_task.max_attempts`` NULL means the current setting of the queue.
* ``eventkit_task.lapsed`` means that the last run ended because its lease ran out.
* ``eventkit_identity`` has one row, created with the tables: readers that store offsets compare its id to detect
  another database.  ``schema_hash`` is that of the statements that created the tables (`database.schema_hash`).
* ``eventkit_topic.pruned_to`` is the highest offset ever pruned from the topic.  This table,
  ``eventkit_channel``, ``eventkit_inbox_settings`` (consumers with an inbox) and ``eventkit_queue`` store how
  long rows are kept, in milliseconds, and how many; NULL means no limit.  A channel without a row keeps
  notifications for a day.
* ``eventkit_task_now`` shows tasks in the state they have by the clock: a task that is due but was not promoted yet
  is ready, or dead if it expired or its last attempt's lease ran out.
* ``eventkit_task.lane`` is a key that several tasks may share: an ordinary claim ignores it, that of an outbox hands
  out the tasks of a lane in order.  The latter holds tasks back that must wait for their turn: such a task is
  scheduled, although its ``run_at`` has come, and at ``wake_at`` a claim checks it again if it was not released before.
* ``eventkit_task.job`` means that the task is the call of a URL, which is how its payload begins; partial indexes
  list these among any number of other tasks.
* ``eventkit_queue.history`` means that each step of the queue's tasks is an event.  Triggers on ``eventkit_task``
  write those events and exist while any queue needs them: ``history.sql`` of each backend creates and drops them.
* ``eventkit_rate.per`` is the length of a fixed window, and 0 for a token bucket; ``amount`` is the count of the
  window, or the content of the bucket at its last use; after ``until`` the row has no meaning.
* ``eventkit_result.id`` is JSON: a task's number, or a string in quotes.
* ``eventkit_key`` holds the keys of deleted tasks until the reservation ends; a trigger enforces it for plain
  INSERTs too.
* ``eventkit_staged_rows`` holds the staged rows of several processes, a chunk for one topic or queue in a row,
  until one process moves them to their table; ``eventkit_written_batch`` has the last batch of each writer, so
  that none is moved twice.  On Postgres a chunk is arrays and not JSON; a crash of the server loses it, and
  the batch is written again.
* ``eventkit_lake`` has the location of the files of each archived topic, and the offset up to which they are
  complete; ``format`` is the table format that lists them there as well, or ``parquet`` without one.  ``epoch`` counts
  the writers, and fences earlier ones.  A file is current while its row in ``eventkit_lake_file`` has no
  ``retired_at``; a retired one stays for its readers.
* ``eventkit_rollup`` holds hourly sums of each measure of a topic or a queue (``subject``); a latency is counted
  under its bucket.
* ``eventkit_api_key`` has the keys of the service's callers: ``hash`` of the secret, and ``former`` of the one
  before while that is valid.  ``scopes`` is a JSON array.
* ``eventkit_session`` has the sessions of browsers: the hash of its id, the key, and the hash of the secret that
  began it.  ``copy`` and ``export`` leave it out.
* ``eventkit_worker`` has a row for each running worker, which updates it every ten seconds; ``queues`` is JSON.
* The index ``eventkit_event_task`` finds the history of one task.
* ``eventkit_schedule.next_at`` is the time of the next fire; NULL while the schedule is paused.  ``timed_at`` is when
  it was set: if that is after now, a clock that was ahead has set it, and a tick sets it again.
* ``eventkit_lock.ttl`` is the length in milliseconds for which the lock was taken or renewed.  A lock that ends later
  than that from now was taken by a clock that was ahead, and the next attempt to take it shortens it.

On Postgres times are ``timestamptz`` in whole milliseconds, payloads are ``json`` (``jsonb`` would reorder keys
and refuse NULs), and steps that need a certain order around a commit are in functions, which any migration may
replace; the tables use some, so they are created first.  There ``eventkit_key`` holds a key
from the enqueue on, and ``eventkit_sleeper`` lists the listeners to notify.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventkit_migrations.database import Recorder, Schema, execute

if TYPE_CHECKING:
    from sqlalchemy import Connection

revision = "0001"
down_revision = None


def upgrade(connection: Connection | Recorder, schema: Schema) -> None:
    for statement in (*schema.functions(), *schema.tables(revision)):
        execute(connection, statement, schema)


def downgrade(connection: Connection | Recorder, schema: Schema) -> None:
    for statement in (*schema.dropped(revision), *schema.functions_dropped()):
        execute(connection, statement, schema)

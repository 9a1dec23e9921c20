"""Streams, queues, channels and schedules: all tables of SQLite, in one file because one revision creates them.

Tables are STRICT, which SQLite supports since 3.37: otherwise an INSERT of text as a time succeeds, and a reader of
the row fails.  Unlike a CHECK, STRICT refuses the row in ``INSERT OR IGNORE`` too.

Times are integers of milliseconds since 1970 in UTC.  The defaults use
``julianday`` because ``unixepoch('subsec')`` is NULL before SQLite 3.42, and any client may insert.

What the columns do not show:

* ``eventkit_task.wake_at`` is the time at which the row changes by itself: a scheduled task becomes due,
  a lease ends, a ready task expires.  NULL where nothing will happen.  One index over it answers
  "what is due?" and "when to check again?" for all three.
* ``eventkit_task.max_attempts`` NULL means the current setting of the queue.
* ``eventkit_task.lapsed`` means that the last run ended because its lease ran out.
* ``eventkit_identity`` has one row, created with the tables: readers that store offsets compare its id to detect
  another database.  ``schema_hash`` is that of the statements that created the tables (`schemas.schema_hash`).
* ``eventkit_topic.pruned_to`` is the highest offset ever pruned from the topic.  This table, ``eventkit_channel``,
  ``eventkit_recipient`` (consumers with an inbox) and ``eventkit_queue`` store how long rows are kept, in milliseconds,
  and how many; NULL means no limit.  A channel without a row keeps notifications for a day.
* ``eventkit_task_now`` shows tasks in the state they have by the clock: a task that is due but was not promoted yet
  is ready, or dead if it expired or its last attempt's lease ran out.
* ``eventkit_task.lane`` is a key that several tasks may share: an ordinary claim ignores it, that of an outbox hands
  out the tasks of a lane in order.  The latter holds tasks back that must wait for their turn: such a task is
  scheduled, although its ``run_at`` has come, and at ``wake_at`` a claim checks it again if it was not released before.
* ``eventkit_task.job`` means that the task is the call of a URL, which is how its payload begins; partial indexes
  list these among any number of other tasks.
* ``eventkit_queue.history`` means that each step of the queue's tasks is an event.  Triggers on ``eventkit_task``
  write those events and exist while any queue needs them: ``queue.sql`` of each backend creates and drops them.
* ``eventkit_rate.per`` is the length of a fixed window, and 0 for a token bucket; ``amount`` is the count of the
  window, or the content of the bucket at its last use; after ``until`` the row has no meaning.
* ``eventkit_result.id`` is JSON: a task's number, or a string in quotes.
* ``eventkit_key`` holds the keys of deleted tasks until the reservation ends; a trigger enforces it for plain
  INSERTs too.
* ``eventkit_staged`` holds the staged rows of several processes, a chunk for one topic or queue in a row, until one
  process moves them to their table; ``eventkit_written`` has the last batch of each writer, so that none is moved
  twice.  On Postgres a chunk is arrays and not JSON; a crash of the server loses it, and the batch is written again.
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
and refuse NULs), and steps that need a certain order around a commit are in functions, in ``0001_postgres.sql``;
the functions that replace calls of the library are in ``0001_postgres_calls.sql``.  There ``eventkit_key`` holds
a key from the enqueue on, and ``eventkit_sleeper`` lists the listeners to notify.
"""

from __future__ import annotations

import re
from importlib.resources import files
from inspect import cleandoc
from typing import TYPE_CHECKING

from eventkit_migrations.schemas import execute

if TYPE_CHECKING:
    from sqlalchemy import Connection

revision = "0001"
down_revision = None

NOW = "CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)"

MOMENT = "CHECK ({} BETWEEN -62135596800000 AND 253402300799999)"
"""The range of `datetime`: the years 1 to 9999."""

SQLITE_UPGRADE = (
    """
    CREATE TABLE eventkit_identity (
        id TEXT NOT NULL PRIMARY KEY,
        schema_hash TEXT,
        incomplete TEXT
    ) WITHOUT ROWID, STRICT
    """,
    "INSERT INTO eventkit_identity (id) VALUES (lower(hex(randomblob(16))))",
    f"""
    CREATE TABLE eventkit_event (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        topic TEXT NOT NULL,
        key TEXT,
        payload TEXT NOT NULL,
        headers TEXT,
        dedup TEXT,
        created_at INTEGER NOT NULL DEFAULT ({NOW}) {MOMENT.format("created_at")}
    ) STRICT
    """,
    "CREATE INDEX eventkit_event_topic ON eventkit_event (topic, id)",
    "CREATE UNIQUE INDEX eventkit_event_dedup ON eventkit_event (topic, dedup) WHERE dedup IS NOT NULL",
    "CREATE INDEX eventkit_event_task ON eventkit_event (key, id) WHERE topic = 'eventkit.tasks'",
    """
    CREATE TABLE eventkit_topic (
        name TEXT NOT NULL PRIMARY KEY,
        pruned_to INTEGER NOT NULL DEFAULT 0,
        retain INTEGER,
        max_keep INTEGER,
        keep_unconsumed INTEGER NOT NULL DEFAULT 1
    ) WITHOUT ROWID, STRICT
    """,
    f"""
    CREATE TABLE eventkit_consumer (
        topic TEXT NOT NULL,
        name TEXT NOT NULL,
        position INTEGER NOT NULL,
        updated_at INTEGER NOT NULL DEFAULT ({NOW}),
        PRIMARY KEY (topic, name)
    ) WITHOUT ROWID, STRICT
    """,
    """
    CREATE TABLE eventkit_consumer_lease (
        topic TEXT NOT NULL,
        consumer TEXT NOT NULL,
        partition INTEGER NOT NULL,
        holder TEXT NOT NULL,
        token INTEGER NOT NULL,
        until INTEGER NOT NULL,
        PRIMARY KEY (topic, consumer, partition)
    ) WITHOUT ROWID, STRICT
    """,
    f"""
    CREATE TABLE eventkit_task (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        queue TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'ready',
        priority INTEGER NOT NULL DEFAULT 0,
        run_at INTEGER NOT NULL DEFAULT ({NOW}) {MOMENT.format("run_at")},
        wake_at INTEGER {MOMENT.format("wake_at")},
        expires_at INTEGER {MOMENT.format("expires_at")},
        attempt INTEGER NOT NULL DEFAULT 0 CHECK (attempt BETWEEN 0 AND 2147483646),
        lapsed INTEGER NOT NULL DEFAULT 0,
        max_attempts INTEGER,
        token INTEGER,
        key TEXT,
        lane TEXT,
        payload TEXT NOT NULL,
        headers TEXT,
        enqueued_at INTEGER NOT NULL DEFAULT ({NOW}) {MOMENT.format("enqueued_at")},
        worker TEXT,
        claimed_at INTEGER,
        finished_at INTEGER,
        reason TEXT,
        error TEXT,
        result TEXT,
        job INTEGER GENERATED ALWAYS AS (substr(payload, 1, 27) = '{{"task":"eventkit.webhook",') VIRTUAL
    ) STRICT
    """,
    """
    CREATE INDEX eventkit_task_ready ON eventkit_task (queue, priority DESC, run_at, id)
    WHERE state = 'ready'
    """,
    "CREATE INDEX eventkit_task_wake ON eventkit_task (queue, state, wake_at) WHERE wake_at IS NOT NULL",
    """
    CREATE INDEX eventkit_task_finished ON eventkit_task (queue, state, finished_at)
    WHERE finished_at IS NOT NULL
    """,
    """
    CREATE UNIQUE INDEX eventkit_task_key ON eventkit_task (queue, key)
    WHERE key IS NOT NULL AND state <> 'done'
    """,
    "CREATE INDEX eventkit_task_lane ON eventkit_task (queue, lane, state, id) WHERE lane IS NOT NULL",
    "CREATE INDEX eventkit_task_job ON eventkit_task (id) WHERE job",
    "CREATE INDEX eventkit_task_queue_job ON eventkit_task (queue, id) WHERE job",
    """
    CREATE TABLE eventkit_queue (
        name TEXT NOT NULL PRIMARY KEY,
        paused INTEGER NOT NULL DEFAULT 0,
        max_attempts INTEGER,
        lease INTEGER,
        retry TEXT,
        max_size INTEGER,
        rate REAL,
        burst REAL,
        max_running INTEGER,
        keep_done INTEGER,
        keep_dead INTEGER,
        key_ttl INTEGER,
        dead_letter_to TEXT,
        history INTEGER,
        tokens REAL,
        refilled_at INTEGER
    ) WITHOUT ROWID, STRICT
    """,
    """
    CREATE TABLE eventkit_key (
        queue TEXT NOT NULL,
        key TEXT NOT NULL,
        task_id INTEGER NOT NULL,
        reserved_until INTEGER NOT NULL,
        PRIMARY KEY (queue, key)
    ) WITHOUT ROWID, STRICT
    """,
    "CREATE INDEX eventkit_key_until ON eventkit_key (reserved_until)",
    f"""
    CREATE TRIGGER eventkit_task_reserved BEFORE INSERT ON eventkit_task WHEN NEW.key IS NOT NULL
    BEGIN
        SELECT RAISE(IGNORE) FROM eventkit_key
        WHERE queue = NEW.queue AND key = NEW.key AND reserved_until > {NOW};
    END
    """,
    f"""
    CREATE TABLE eventkit_notification (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        channel TEXT NOT NULL,
        payload TEXT NOT NULL,
        headers TEXT,
        created_at INTEGER NOT NULL DEFAULT ({NOW}) {MOMENT.format("created_at")}
    ) STRICT
    """,
    "CREATE INDEX eventkit_notification_channel ON eventkit_notification (channel, id)",
    """
    CREATE TABLE eventkit_channel (
        name TEXT NOT NULL PRIMARY KEY,
        retain INTEGER DEFAULT 86400000,
        max_keep INTEGER
    ) WITHOUT ROWID, STRICT
    """,
    f"""
    CREATE TABLE eventkit_inbox (
        consumer TEXT NOT NULL,
        message_id TEXT NOT NULL,
        seen_at INTEGER NOT NULL DEFAULT ({NOW}),
        PRIMARY KEY (consumer, message_id)
    ) WITHOUT ROWID, STRICT
    """,
    "CREATE INDEX eventkit_inbox_seen ON eventkit_inbox (consumer, seen_at)",
    """
    CREATE TABLE eventkit_recipient (
        name TEXT NOT NULL PRIMARY KEY,
        retain INTEGER
    ) WITHOUT ROWID, STRICT
    """,
    """
    CREATE TABLE eventkit_schedule (
        name TEXT NOT NULL PRIMARY KEY,
        timing TEXT NOT NULL,
        zone TEXT NOT NULL,
        queue TEXT NOT NULL,
        payload TEXT NOT NULL,
        headers TEXT,
        priority INTEGER NOT NULL,
        expires INTEGER,
        max_attempts INTEGER,
        catch_up TEXT NOT NULL,
        next_at INTEGER,
        last_at INTEGER,
        fired INTEGER NOT NULL DEFAULT 0,
        skipped INTEGER NOT NULL DEFAULT 0,
        timed_at INTEGER
    ) WITHOUT ROWID, STRICT
    """,
    "CREATE INDEX eventkit_schedule_next ON eventkit_schedule (next_at)",
    "CREATE INDEX eventkit_schedule_timed ON eventkit_schedule (timed_at)",
    """
    CREATE TABLE eventkit_lock (
        name TEXT NOT NULL PRIMARY KEY,
        fence INTEGER NOT NULL,
        token INTEGER,
        holder TEXT,
        ttl INTEGER NOT NULL,
        expires_at INTEGER
    ) WITHOUT ROWID, STRICT
    """,
    """
    CREATE TABLE eventkit_rate (
        name TEXT NOT NULL,
        per INTEGER NOT NULL,
        amount REAL NOT NULL,
        counted_at INTEGER NOT NULL,
        until INTEGER NOT NULL,
        PRIMARY KEY (name, per)
    ) WITHOUT ROWID, STRICT
    """,
    "CREATE INDEX eventkit_rate_until ON eventkit_rate (until)",
    """
    CREATE TABLE eventkit_result (
        id TEXT NOT NULL PRIMARY KEY,
        value TEXT NOT NULL,
        expires_at INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE INDEX eventkit_result_expires ON eventkit_result (expires_at)",
    f"""
    CREATE TABLE eventkit_staged (
        id INTEGER PRIMARY KEY,
        writer TEXT NOT NULL,
        batch INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        part INTEGER NOT NULL,
        position INTEGER NOT NULL,
        name TEXT NOT NULL,
        rows TEXT NOT NULL,
        staged_at INTEGER NOT NULL DEFAULT ({NOW})
    ) STRICT
    """,
    "CREATE INDEX eventkit_staged_batch ON eventkit_staged (writer, batch, part, position)",
    "CREATE INDEX eventkit_staged_age ON eventkit_staged (staged_at)",
    f"""
    CREATE TABLE eventkit_written (
        writer TEXT NOT NULL PRIMARY KEY,
        batch INTEGER NOT NULL,
        written_at INTEGER NOT NULL DEFAULT ({NOW}),
        expires_at INTEGER
    ) WITHOUT ROWID, STRICT
    """,
    "CREATE INDEX eventkit_written_expires ON eventkit_written (expires_at) WHERE expires_at IS NOT NULL",
    f"""
    CREATE TABLE eventkit_lake (
        topic TEXT NOT NULL PRIMARY KEY,
        location TEXT NOT NULL,
        format TEXT NOT NULL,
        epoch INTEGER NOT NULL,
        covered INTEGER NOT NULL,
        updated_at INTEGER NOT NULL DEFAULT ({NOW})
    ) WITHOUT ROWID, STRICT
    """,
    """
    CREATE TABLE eventkit_lake_file (
        topic TEXT NOT NULL,
        path TEXT NOT NULL,
        date TEXT NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        rows INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        oldest INTEGER NOT NULL,
        newest INTEGER NOT NULL,
        retired_at INTEGER,
        PRIMARY KEY (topic, path)
    ) WITHOUT ROWID, STRICT
    """,
    f"""
    CREATE TABLE eventkit_pipeline (
        name TEXT NOT NULL PRIMARY KEY,
        source TEXT NOT NULL,
        sink TEXT NOT NULL,
        state TEXT NOT NULL,
        batch INTEGER,
        rows INTEGER NOT NULL DEFAULT 0,
        lag INTEGER,
        error TEXT,
        started_at INTEGER NOT NULL DEFAULT ({NOW}),
        updated_at INTEGER NOT NULL DEFAULT ({NOW})
    ) WITHOUT ROWID, STRICT
    """,
    f"""
    CREATE TABLE eventkit_worker (
        name TEXT NOT NULL PRIMARY KEY,
        queues TEXT NOT NULL,
        slots INTEGER NOT NULL,
        running INTEGER NOT NULL,
        started_at INTEGER NOT NULL DEFAULT ({NOW}),
        seen_at INTEGER NOT NULL DEFAULT ({NOW})
    ) WITHOUT ROWID, STRICT
    """,
    """
    CREATE TABLE eventkit_rollup (
        subject TEXT NOT NULL,
        name TEXT NOT NULL,
        hour INTEGER NOT NULL,
        measure TEXT NOT NULL,
        amount INTEGER NOT NULL,
        PRIMARY KEY (subject, name, hour, measure)
    ) WITHOUT ROWID, STRICT
    """,
    f"""
    CREATE TABLE eventkit_api_key (
        id TEXT NOT NULL PRIMARY KEY,
        name TEXT NOT NULL,
        hash TEXT NOT NULL,
        scopes TEXT NOT NULL,
        rate REAL,
        burst REAL,
        quota INTEGER,
        created_at INTEGER NOT NULL DEFAULT ({NOW}),
        expires_at INTEGER,
        revoked_at INTEGER,
        former TEXT,
        former_until INTEGER
    ) WITHOUT ROWID, STRICT
    """,
    """
    CREATE TABLE eventkit_session (
        id TEXT NOT NULL PRIMARY KEY,
        key TEXT NOT NULL,
        secret TEXT NOT NULL,
        expires_at INTEGER NOT NULL
    ) WITHOUT ROWID, STRICT
    """,
    f"""
    CREATE VIEW eventkit_task_now AS
    SELECT
        t.id, t.queue,
        CASE
            WHEN t.wake_at > {NOW} OR t.wake_at IS NULL THEN t.state
            WHEN t.expires_at <= {NOW} THEN 'dead'
            WHEN t.state = 'leased' AND t.attempt >= coalesce(t.max_attempts, q.max_attempts, 3) THEN 'dead'
            ELSE 'ready'
        END AS state,
        t.payload, coalesce(t.key, t.lane) AS key, t.headers, t.priority, t.attempt,
        coalesce(t.max_attempts, q.max_attempts, 3) AS max_attempts,
        t.run_at, t.enqueued_at, t.expires_at,
        CASE WHEN t.state = 'leased' AND t.wake_at > {NOW} THEN t.wake_at END AS lease_expires_at,
        t.worker, t.claimed_at, t.finished_at,
        CASE
            WHEN t.wake_at > {NOW} OR t.wake_at IS NULL THEN t.reason
            WHEN t.expires_at <= {NOW} THEN 'expired'
            WHEN t.state = 'leased' AND t.attempt >= coalesce(t.max_attempts, q.max_attempts, 3) THEN 'exhausted'
            ELSE t.reason
        END AS reason,
        t.error, t.result,
        t.state AS stored_state, t.wake_at, t.lane, t.job
    FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
    """,
)

SQLITE_DOWNGRADE = (
    "DROP VIEW eventkit_task_now",
    "DROP TABLE eventkit_session",
    "DROP TABLE eventkit_api_key",
    "DROP TABLE eventkit_rollup",
    "DROP TABLE eventkit_worker",
    "DROP TABLE eventkit_pipeline",
    "DROP TABLE eventkit_lake_file",
    "DROP TABLE eventkit_lake",
    "DROP TABLE eventkit_written",
    "DROP TABLE eventkit_staged",
    "DROP TABLE eventkit_result",
    "DROP TABLE eventkit_rate",
    "DROP TABLE eventkit_lock",
    "DROP TABLE eventkit_schedule",
    "DROP TABLE eventkit_recipient",
    "DROP TABLE eventkit_inbox",
    "DROP TABLE eventkit_channel",
    "DROP TABLE eventkit_notification",
    "DROP TABLE eventkit_key",
    "DROP TABLE eventkit_queue",
    "DROP TABLE eventkit_task",
    "DROP TABLE eventkit_consumer_lease",
    "DROP TABLE eventkit_consumer",
    "DROP TABLE eventkit_topic",
    "DROP TABLE eventkit_event",
    "DROP TABLE eventkit_identity",
)

POSTGRES_UPGRADE = tuple(
    statement
    for file in ("0001_postgres.sql", "0001_postgres_calls.sql")
    for statement in files("eventkit_migrations").joinpath("versions", file).read_text("utf-8").split("\n\n")
    if not all(line.startswith("--") for line in statement.splitlines())
)

POSTGRES_DOWNGRADE = (
    "DROP VIEW eventkit_task_now",
    "DROP TABLE eventkit_session, eventkit_api_key, eventkit_rollup, eventkit_worker, eventkit_pipeline, "
    "eventkit_lake_file, eventkit_lake",
    "DROP TABLE eventkit_written, eventkit_staged, eventkit_result, eventkit_rate, eventkit_lock",
    "DROP TABLE eventkit_schedule, eventkit_recipient, eventkit_inbox, eventkit_channel, eventkit_notification, "
    "eventkit_key, eventkit_queue, eventkit_task, eventkit_consumer_lease, eventkit_consumer, eventkit_topic, "
    "eventkit_event, eventkit_sleeper, eventkit_low, eventkit_identity",
    *(
        f"DROP FUNCTION {name}"
        for name in re.findall(r"^CREATE FUNCTION (\w+)", "\n".join(POSTGRES_UPGRADE), re.MULTILINE)
        if name not in ("eventkit_result_save", "eventkit_result_get")
    ),
    *(
        f"DROP FUNCTION eventkit_result_save({id}, json, double precision), eventkit_result_get({id})"
        for id in ("text", "bigint")
    ),
    "DROP SEQUENCE eventkit_event_id_seq, eventkit_notification_id_seq, eventkit_task_id_seq",
)

UPGRADE = {"sqlite": SQLITE_UPGRADE, "postgresql": POSTGRES_UPGRADE}
DOWNGRADE = {"sqlite": SQLITE_DOWNGRADE, "postgresql": POSTGRES_DOWNGRADE}


def upgrade(connection: Connection, schema: str | None) -> None:
    for statement in UPGRADE[connection.dialect.name]:
        # SQLite stores the text of a definition unchanged, and shows it in .schema.
        execute(connection, cleandoc(statement), schema)


def downgrade(connection: Connection, schema: str | None) -> None:
    for statement in DOWNGRADE[connection.dialect.name]:
        execute(connection, statement, schema)

-- The tables of revision 0001.  Statements are separated by blank lines.

CREATE TABLE eventkit_identity (
    id TEXT NOT NULL PRIMARY KEY,
    schema_hash TEXT,
    incomplete TEXT
) WITHOUT ROWID, STRICT

INSERT INTO eventkit_identity (id) VALUES (lower(hex(randomblob(16))))

CREATE TABLE eventkit_event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    topic TEXT NOT NULL,
    key TEXT,
    payload TEXT NOT NULL,
    headers TEXT,
    dedup TEXT,
    created_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)) CHECK (created_at BETWEEN -62135596800000 AND 253402300799999)
) STRICT

CREATE INDEX eventkit_event_topic ON eventkit_event (topic, id)

CREATE UNIQUE INDEX eventkit_event_dedup ON eventkit_event (topic, dedup) WHERE dedup IS NOT NULL

CREATE INDEX eventkit_event_task ON eventkit_event (key, id) WHERE topic = 'eventkit.tasks'

CREATE TABLE eventkit_topic (
    name TEXT NOT NULL PRIMARY KEY,
    pruned_to INTEGER NOT NULL DEFAULT 0,
    keep INTEGER,
    keep_count INTEGER,
    keep_unconsumed INTEGER NOT NULL DEFAULT 1
) WITHOUT ROWID, STRICT

CREATE TABLE eventkit_consumer (
    topic TEXT NOT NULL,
    name TEXT NOT NULL,
    position INTEGER NOT NULL,
    updated_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)),
    PRIMARY KEY (topic, name)
) WITHOUT ROWID, STRICT

CREATE TABLE eventkit_consumer_lease (
    topic TEXT NOT NULL,
    consumer TEXT NOT NULL,
    partition INTEGER NOT NULL,
    holder TEXT NOT NULL,
    token INTEGER NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (topic, consumer, partition)
) WITHOUT ROWID, STRICT

CREATE TABLE eventkit_task (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'ready',
    priority INTEGER NOT NULL DEFAULT 0,
    run_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)) CHECK (run_at BETWEEN -62135596800000 AND 253402300799999),
    wake_at INTEGER CHECK (wake_at BETWEEN -62135596800000 AND 253402300799999),
    expires_at INTEGER CHECK (expires_at BETWEEN -62135596800000 AND 253402300799999),
    attempt INTEGER NOT NULL DEFAULT 0 CHECK (attempt BETWEEN 0 AND 2147483646),
    lapsed INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER,
    token INTEGER,
    key TEXT,
    lane TEXT,
    payload TEXT NOT NULL,
    headers TEXT,
    enqueued_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)) CHECK (enqueued_at BETWEEN -62135596800000 AND 253402300799999),
    worker TEXT,
    claimed_at INTEGER,
    finished_at INTEGER,
    reason TEXT,
    error TEXT,
    result TEXT,
    job INTEGER GENERATED ALWAYS AS (substr(payload, 1, 27) = '{"task":"eventkit.webhook",') VIRTUAL
) STRICT

CREATE INDEX eventkit_task_ready ON eventkit_task (queue, priority DESC, run_at, id)
WHERE state = 'ready'

CREATE INDEX eventkit_task_wake ON eventkit_task (queue, state, wake_at) WHERE wake_at IS NOT NULL

CREATE INDEX eventkit_task_finished ON eventkit_task (queue, state, finished_at)
WHERE finished_at IS NOT NULL

CREATE UNIQUE INDEX eventkit_task_key ON eventkit_task (queue, key)
WHERE key IS NOT NULL AND state <> 'done'

CREATE INDEX eventkit_task_lane ON eventkit_task (queue, lane, state, id) WHERE lane IS NOT NULL

CREATE INDEX eventkit_task_job ON eventkit_task (id) WHERE job

CREATE INDEX eventkit_task_queue_job ON eventkit_task (queue, id) WHERE job

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

CREATE TABLE eventkit_key (
    queue TEXT NOT NULL,
    key TEXT NOT NULL,
    task_id INTEGER NOT NULL,
    reserved_until INTEGER NOT NULL,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID, STRICT

CREATE INDEX eventkit_key_until ON eventkit_key (reserved_until)

CREATE TRIGGER eventkit_task_reserved BEFORE INSERT ON eventkit_task WHEN NEW.key IS NOT NULL
BEGIN
    SELECT RAISE(IGNORE) FROM eventkit_key
    WHERE queue = NEW.queue AND key = NEW.key AND reserved_until > CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER);
END

CREATE TABLE eventkit_notification (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL,
    payload TEXT NOT NULL,
    headers TEXT,
    created_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)) CHECK (created_at BETWEEN -62135596800000 AND 253402300799999)
) STRICT

CREATE INDEX eventkit_notification_channel ON eventkit_notification (channel, id)

CREATE TABLE eventkit_channel (
    name TEXT NOT NULL PRIMARY KEY,
    keep INTEGER DEFAULT 86400000,
    keep_count INTEGER
) WITHOUT ROWID, STRICT

CREATE TABLE eventkit_inbox (
    consumer TEXT NOT NULL,
    message_id TEXT NOT NULL,
    seen_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)),
    PRIMARY KEY (consumer, message_id)
) WITHOUT ROWID, STRICT

CREATE INDEX eventkit_inbox_seen ON eventkit_inbox (consumer, seen_at)

CREATE TABLE eventkit_inbox_settings (
    name TEXT NOT NULL PRIMARY KEY,
    keep INTEGER
) WITHOUT ROWID, STRICT

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

CREATE INDEX eventkit_schedule_next ON eventkit_schedule (next_at)

CREATE INDEX eventkit_schedule_timed ON eventkit_schedule (timed_at)

CREATE TABLE eventkit_lock (
    name TEXT NOT NULL PRIMARY KEY,
    fence INTEGER NOT NULL,
    token INTEGER,
    holder TEXT,
    ttl INTEGER NOT NULL,
    expires_at INTEGER
) WITHOUT ROWID, STRICT

CREATE TABLE eventkit_rate (
    name TEXT NOT NULL,
    per INTEGER NOT NULL,
    amount REAL NOT NULL,
    counted_at INTEGER NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (name, per)
) WITHOUT ROWID, STRICT

CREATE INDEX eventkit_rate_until ON eventkit_rate (until)

CREATE TABLE eventkit_result (
    id TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT

CREATE INDEX eventkit_result_expires ON eventkit_result (expires_at)

CREATE TABLE eventkit_staged_rows (
    id INTEGER PRIMARY KEY,
    writer TEXT NOT NULL,
    batch INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    part INTEGER NOT NULL,
    position INTEGER NOT NULL,
    name TEXT NOT NULL,
    rows TEXT NOT NULL,
    staged_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER))
) STRICT

CREATE INDEX eventkit_staged_rows_batch ON eventkit_staged_rows (writer, batch, part, position)

CREATE INDEX eventkit_staged_rows_age ON eventkit_staged_rows (staged_at)

CREATE TABLE eventkit_written_batch (
    writer TEXT NOT NULL PRIMARY KEY,
    batch INTEGER NOT NULL,
    written_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)),
    expires_at INTEGER
) WITHOUT ROWID, STRICT

CREATE INDEX eventkit_written_batch_expires ON eventkit_written_batch (expires_at) WHERE expires_at IS NOT NULL

CREATE TABLE eventkit_lake (
    topic TEXT NOT NULL PRIMARY KEY,
    location TEXT NOT NULL,
    format TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    covered INTEGER NOT NULL,
    updated_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER))
) WITHOUT ROWID, STRICT

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

CREATE TABLE eventkit_pipeline (
    name TEXT NOT NULL PRIMARY KEY,
    source TEXT NOT NULL,
    sink TEXT NOT NULL,
    state TEXT NOT NULL,
    batch INTEGER,
    rows INTEGER NOT NULL DEFAULT 0,
    lag INTEGER,
    error TEXT,
    started_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)),
    updated_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER))
) WITHOUT ROWID, STRICT

CREATE TABLE eventkit_worker (
    name TEXT NOT NULL PRIMARY KEY,
    queues TEXT NOT NULL,
    slots INTEGER NOT NULL,
    running INTEGER NOT NULL,
    started_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)),
    seen_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER))
) WITHOUT ROWID, STRICT

CREATE TABLE eventkit_rollup (
    subject TEXT NOT NULL,
    name TEXT NOT NULL,
    hour INTEGER NOT NULL,
    measure TEXT NOT NULL,
    amount INTEGER NOT NULL,
    PRIMARY KEY (subject, name, hour, measure)
) WITHOUT ROWID, STRICT

CREATE TABLE eventkit_api_key (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    hash TEXT NOT NULL,
    scopes TEXT NOT NULL,
    rate REAL,
    burst REAL,
    quota INTEGER,
    created_at INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER)),
    expires_at INTEGER,
    revoked_at INTEGER,
    former TEXT,
    former_until INTEGER
) WITHOUT ROWID, STRICT

CREATE TABLE eventkit_session (
    id TEXT NOT NULL PRIMARY KEY,
    key TEXT NOT NULL,
    secret TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID, STRICT

CREATE VIEW eventkit_task_now AS
SELECT
    t.id, t.queue,
    CASE
        WHEN t.wake_at > CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) OR t.wake_at IS NULL THEN t.state
        WHEN t.expires_at <= CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) THEN 'dead'
        WHEN t.state = 'leased' AND t.attempt >= coalesce(t.max_attempts, q.max_attempts, 3) THEN 'dead'
        ELSE 'ready'
    END AS state,
    t.payload, coalesce(t.key, t.lane) AS key, t.headers, t.priority, t.attempt,
    coalesce(t.max_attempts, q.max_attempts, 3) AS max_attempts,
    t.run_at, t.enqueued_at, t.expires_at,
    CASE WHEN t.state = 'leased' AND t.wake_at > CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) THEN t.wake_at END AS lease_expires_at,
    t.worker, t.claimed_at, t.finished_at,
    CASE
        WHEN t.wake_at > CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) OR t.wake_at IS NULL THEN t.reason
        WHEN t.expires_at <= CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) THEN 'expired'
        WHEN t.state = 'leased' AND t.attempt >= coalesce(t.max_attempts, q.max_attempts, 3) THEN 'exhausted'
        ELSE t.reason
    END AS reason,
    t.error, t.result,
    t.state AS stored_state, t.wake_at, t.lane, t.job
FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue

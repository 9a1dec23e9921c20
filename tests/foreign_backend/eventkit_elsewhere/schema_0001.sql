-- The tables of revision 0001.  Statements are separated by blank lines; :now is the time in milliseconds.

CREATE TABLE eventkit_identity (
    id TEXT NOT NULL PRIMARY KEY,
    schema_hash TEXT,
    incomplete TEXT
) WITHOUT ROWID, STRICT

INSERT INTO eventkit_identity (id) VALUES (lower(hex(randomblob(16))))

CREATE TABLE elsewhere_event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    topic TEXT NOT NULL,
    key TEXT,
    payload TEXT NOT NULL,
    headers TEXT,
    dedup TEXT,
    created_at INTEGER NOT NULL DEFAULT (:now)
) STRICT

CREATE INDEX elsewhere_event_topic ON elsewhere_event (topic, id)

CREATE UNIQUE INDEX elsewhere_event_dedup ON elsewhere_event (topic, dedup) WHERE dedup IS NOT NULL

CREATE TABLE elsewhere_topic (
    name TEXT NOT NULL PRIMARY KEY,
    pruned_to INTEGER NOT NULL DEFAULT 0,
    keep INTEGER,
    keep_count INTEGER,
    keep_unconsumed INTEGER NOT NULL DEFAULT 1
) WITHOUT ROWID, STRICT

CREATE TABLE elsewhere_consumer (
    topic TEXT NOT NULL,
    name TEXT NOT NULL,
    position INTEGER NOT NULL,
    updated_at INTEGER NOT NULL DEFAULT (:now),
    PRIMARY KEY (topic, name)
) WITHOUT ROWID, STRICT

CREATE TABLE elsewhere_consumer_lease (
    topic TEXT NOT NULL,
    consumer TEXT NOT NULL,
    partition INTEGER NOT NULL,
    holder TEXT NOT NULL,
    token INTEGER NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (topic, consumer, partition)
) WITHOUT ROWID, STRICT

CREATE TABLE elsewhere_task (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'ready',
    priority INTEGER NOT NULL DEFAULT 0,
    run_at INTEGER NOT NULL DEFAULT (:now),
    wake_at INTEGER,
    expires_at INTEGER,
    attempt INTEGER NOT NULL DEFAULT 0 CHECK (attempt BETWEEN 0 AND 2147483646),
    lapsed INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER,
    token INTEGER,
    key TEXT,
    payload TEXT NOT NULL,
    headers TEXT,
    enqueued_at INTEGER NOT NULL DEFAULT (:now),
    worker TEXT,
    claimed_at INTEGER,
    finished_at INTEGER,
    reason TEXT,
    error TEXT,
    result TEXT
) STRICT

CREATE INDEX elsewhere_task_ready ON elsewhere_task (queue, priority DESC, run_at, id)
WHERE state = 'ready'

CREATE INDEX elsewhere_task_wake ON elsewhere_task (queue, state, wake_at) WHERE wake_at IS NOT NULL

CREATE INDEX elsewhere_task_finished ON elsewhere_task (queue, state, finished_at)
WHERE finished_at IS NOT NULL

CREATE UNIQUE INDEX elsewhere_task_key ON elsewhere_task (queue, key)
WHERE key IS NOT NULL AND state <> 'done'

CREATE TABLE elsewhere_queue (
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
    tokens REAL,
    refilled_at INTEGER
) WITHOUT ROWID, STRICT

CREATE TABLE elsewhere_key (
    queue TEXT NOT NULL,
    key TEXT NOT NULL,
    task_id INTEGER NOT NULL,
    reserved_until INTEGER NOT NULL,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID, STRICT

CREATE INDEX elsewhere_key_until ON elsewhere_key (reserved_until)

CREATE TRIGGER elsewhere_task_reserved BEFORE INSERT ON elsewhere_task WHEN NEW.key IS NOT NULL
BEGIN
    SELECT RAISE(IGNORE) FROM elsewhere_key
    WHERE queue = NEW.queue AND key = NEW.key AND reserved_until > :now;
END

CREATE TABLE elsewhere_notification (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL,
    payload TEXT NOT NULL,
    headers TEXT,
    created_at INTEGER NOT NULL DEFAULT (:now)
) STRICT

CREATE INDEX elsewhere_notification_channel ON elsewhere_notification (channel, id)

CREATE TABLE elsewhere_channel (
    name TEXT NOT NULL PRIMARY KEY,
    keep INTEGER DEFAULT 86400000,
    keep_count INTEGER
) WITHOUT ROWID, STRICT

CREATE TABLE elsewhere_schedule (
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

CREATE INDEX elsewhere_schedule_next ON elsewhere_schedule (next_at)

CREATE INDEX elsewhere_schedule_timed ON elsewhere_schedule (timed_at)

CREATE TABLE elsewhere_lock (
    name TEXT NOT NULL PRIMARY KEY,
    fence INTEGER NOT NULL,
    token INTEGER,
    holder TEXT,
    ttl INTEGER NOT NULL,
    expires_at INTEGER
) WITHOUT ROWID, STRICT

CREATE TABLE elsewhere_rate (
    name TEXT NOT NULL,
    per INTEGER NOT NULL,
    amount REAL NOT NULL,
    counted_at INTEGER NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (name, per)
) WITHOUT ROWID, STRICT

CREATE INDEX elsewhere_rate_until ON elsewhere_rate (until)

CREATE TABLE elsewhere_result (
    id TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT

CREATE INDEX elsewhere_result_expires ON elsewhere_result (expires_at)

CREATE VIEW elsewhere_task_now AS
SELECT
    t.id, t.queue,
    CASE
        WHEN t.wake_at > :now OR t.wake_at IS NULL THEN t.state
        WHEN t.expires_at <= :now THEN 'dead'
        WHEN t.state = 'leased' AND t.attempt >= coalesce(t.max_attempts, q.max_attempts, 3) THEN 'dead'
        ELSE 'ready'
    END AS state,
    t.payload, t.key AS key, t.headers, t.priority, t.attempt,
    coalesce(t.max_attempts, q.max_attempts, 3) AS max_attempts,
    t.run_at, t.enqueued_at, t.expires_at,
    CASE WHEN t.state = 'leased' AND t.wake_at > :now THEN t.wake_at END AS lease_expires_at,
    t.worker, t.claimed_at, t.finished_at,
    CASE
        WHEN t.wake_at > :now OR t.wake_at IS NULL THEN t.reason
        WHEN t.expires_at <= :now THEN 'expired'
        WHEN t.state = 'leased' AND t.attempt >= coalesce(t.max_attempts, q.max_attempts, 3) THEN 'exhausted'
        ELSE t.reason
    END AS reason,
    t.error, t.result,
    t.state AS stored_state, t.wake_at
FROM elsewhere_task AS t LEFT JOIN elsewhere_queue AS q ON q.name = t.queue

-- The changes of revision 0002.  Statements are separated by blank lines.

ALTER TABLE eventkit_task ADD COLUMN code TEXT

ALTER TABLE eventkit_queue ADD COLUMN max_bytes INTEGER

ALTER TABLE eventkit_queue ADD COLUMN strict_keys INTEGER

ALTER TABLE eventkit_queue ADD COLUMN enqueue_rate REAL

ALTER TABLE eventkit_queue ADD COLUMN enqueue_burst REAL

ALTER TABLE eventkit_queue ADD COLUMN enqueue_tokens REAL

ALTER TABLE eventkit_queue ADD COLUMN enqueue_refilled_at INTEGER

ALTER TABLE eventkit_key ADD COLUMN payload TEXT

CREATE TABLE eventkit_cluster_limit (
    name TEXT NOT NULL,
    queue TEXT NOT NULL,
    max_running INTEGER NOT NULL,
    PRIMARY KEY (queue, name)
) WITHOUT ROWID, STRICT

DROP VIEW eventkit_task_now

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
    t.state AS stored_state, t.wake_at, t.lane, t.job,
    CASE
        WHEN t.wake_at > CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) OR t.wake_at IS NULL THEN t.code
        WHEN t.expires_at <= CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) THEN 'EXPIRED'
        WHEN t.state = 'leased' AND t.attempt >= coalesce(t.max_attempts, q.max_attempts, 3) THEN 'LEASE_LOST'
        ELSE t.code
    END AS code
FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue

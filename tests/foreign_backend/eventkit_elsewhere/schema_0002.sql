-- The changes of revision 0002.  Statements are separated by blank lines; :now is the time in milliseconds.

ALTER TABLE elsewhere_task ADD COLUMN code TEXT

ALTER TABLE elsewhere_queue ADD COLUMN max_bytes INTEGER

ALTER TABLE elsewhere_queue ADD COLUMN strict_keys INTEGER

ALTER TABLE elsewhere_queue ADD COLUMN enqueue_rate REAL

ALTER TABLE elsewhere_queue ADD COLUMN enqueue_burst REAL

ALTER TABLE elsewhere_queue ADD COLUMN enqueue_tokens REAL

ALTER TABLE elsewhere_queue ADD COLUMN enqueue_refilled_at INTEGER

ALTER TABLE elsewhere_key ADD COLUMN payload TEXT

DROP VIEW elsewhere_task_now

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
    t.state AS stored_state, t.wake_at,
    CASE
        WHEN t.wake_at > :now OR t.wake_at IS NULL THEN t.code
        WHEN t.expires_at <= :now THEN 'EXPIRED'
        WHEN t.state = 'leased' AND t.attempt >= coalesce(t.max_attempts, q.max_attempts, 3) THEN 'LEASE_LOST'
        ELSE t.code
    END AS code
FROM elsewhere_task AS t LEFT JOIN elsewhere_queue AS q ON q.name = t.queue

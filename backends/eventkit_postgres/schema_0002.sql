-- The changes of revision 0002.  Statements are separated by blank lines.

ALTER TABLE eventkit_task ADD COLUMN code text

ALTER TABLE eventkit_queue ADD COLUMN max_bytes bigint

ALTER TABLE eventkit_queue ADD COLUMN strict_keys boolean

ALTER TABLE eventkit_queue ADD COLUMN enqueue_rate double precision

ALTER TABLE eventkit_queue ADD COLUMN enqueue_burst double precision

ALTER TABLE eventkit_queue ADD COLUMN enqueue_tokens double precision

ALTER TABLE eventkit_queue ADD COLUMN enqueue_refilled_at timestamptz

ALTER TABLE eventkit_key ADD COLUMN payload json

CREATE TABLE eventkit_cluster_limit (
    name text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    max_running bigint NOT NULL,
    PRIMARY KEY (queue, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)

-- Replaced, not dropped, so that grants and the views of an application stay.
CREATE OR REPLACE VIEW eventkit_task_now AS
SELECT
    t.id, t.queue,
    CASE
        WHEN t.wake_at > date_trunc('milliseconds', statement_timestamp()) OR t.wake_at IS NULL THEN t.state
        WHEN t.expires_at <= date_trunc('milliseconds', statement_timestamp()) THEN 'dead'
        WHEN t.state = 'leased' AND t.attempt >= coalesce(t.max_attempts, q.max_attempts, 3) THEN 'dead'
        ELSE 'ready'
    END AS state,
    t.payload, coalesce(t.key, t.lane) AS key, t.headers, t.priority, t.attempt,
    coalesce(t.max_attempts, q.max_attempts, 3) AS max_attempts,
    t.run_at, t.enqueued_at, t.expires_at,
    CASE
        WHEN t.state = 'leased' AND t.wake_at > date_trunc('milliseconds', statement_timestamp()) THEN t.wake_at
    END AS lease_expires_at,
    t.worker, t.claimed_at, t.finished_at,
    CASE
        WHEN t.wake_at > date_trunc('milliseconds', statement_timestamp()) OR t.wake_at IS NULL THEN t.reason
        WHEN t.expires_at <= date_trunc('milliseconds', statement_timestamp()) THEN 'expired'
        WHEN t.state = 'leased' AND t.attempt >= coalesce(t.max_attempts, q.max_attempts, 3) THEN 'exhausted'
        ELSE t.reason
    END AS reason,
    t.error, t.result,
    t.state AS stored_state, t.wake_at, t.lane, t.job,
    CASE
        WHEN t.wake_at > date_trunc('milliseconds', statement_timestamp()) OR t.wake_at IS NULL THEN t.code
        WHEN t.expires_at <= date_trunc('milliseconds', statement_timestamp()) THEN 'EXPIRED'
        WHEN t.state = 'leased' AND t.attempt >= coalesce(t.max_attempts, q.max_attempts, 3) THEN 'LEASE_LOST'
        ELSE t.code
    END AS code
FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue

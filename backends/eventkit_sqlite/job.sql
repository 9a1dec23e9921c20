-- Jobs: tasks marked as such in the payload.

-- name: GetJob
SELECT
    id, queue, state, CAST(payload AS BLOB), CAST(key AS BLOB), CAST(headers AS BLOB), priority, attempt, max_attempts,
    run_at, enqueued_at, expires_at, lease_expires_at, worker, claimed_at, finished_at, reason, error, result
FROM eventkit_task_now
WHERE id = :id AND job

-- name: ListJobs
SELECT
    id, queue, state, CAST(payload AS BLOB), CAST(key AS BLOB), CAST(headers AS BLOB), priority, attempt, max_attempts,
    run_at, enqueued_at, expires_at, lease_expires_at, worker, claimed_at, finished_at, reason, error, result
FROM eventkit_task_now
WHERE job AND (:state IS NULL OR state = :state)
ORDER BY id
LIMIT :limit OFFSET :skip

-- name: ListJobsOf
SELECT
    id, queue, state, CAST(payload AS BLOB), CAST(key AS BLOB), CAST(headers AS BLOB), priority, attempt, max_attempts,
    run_at, enqueued_at, expires_at, lease_expires_at, worker, claimed_at, finished_at, reason, error, result
FROM eventkit_task_now
WHERE job AND queue = :queue AND (:state IS NULL OR state = :state)
ORDER BY id
LIMIT :limit OFFSET :skip

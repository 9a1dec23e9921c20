-- Jobs: tasks marked as such in the payload.

-- name: GetJob
SELECT
    id, queue, state, payload::text, key, headers::text, priority, attempt, max_attempts,
    eventkit_ms(run_at), eventkit_ms(enqueued_at), eventkit_ms(expires_at), eventkit_ms(lease_expires_at),
    worker, eventkit_ms(claimed_at), eventkit_ms(finished_at), reason, error, result::text
FROM eventkit_task_now
WHERE id = :id AND job

-- name: ListJobs
SELECT
    id, queue, state, payload::text, key, headers::text, priority, attempt, max_attempts,
    eventkit_ms(run_at), eventkit_ms(enqueued_at), eventkit_ms(expires_at), eventkit_ms(lease_expires_at),
    worker, eventkit_ms(claimed_at), eventkit_ms(finished_at), reason, error, result::text
FROM eventkit_task_now
WHERE job AND (:state::text IS NULL OR state = :state)
ORDER BY id
LIMIT :limit OFFSET :skip

-- name: ListJobsOf
SELECT
    id, queue, state, payload::text, key, headers::text, priority, attempt, max_attempts,
    eventkit_ms(run_at), eventkit_ms(enqueued_at), eventkit_ms(expires_at), eventkit_ms(lease_expires_at),
    worker, eventkit_ms(claimed_at), eventkit_ms(finished_at), reason, error, result::text
FROM eventkit_task_now
WHERE job AND queue = :queue AND (:state::text IS NULL OR state = :state)
ORDER BY id
LIMIT :limit OFFSET :skip

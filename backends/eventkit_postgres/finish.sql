-- Ending claims.  The token and the lease fence every statement that takes a token: once wake_at has passed,
-- the worker has lost the task, even if no other process has promoted it yet.
--
-- A statement that makes a task claimable, or makes room, wakes the queue (eventkit_wake).  Several rows are locked in
-- the order of their ids, so that no two batches wait for each other.  A released task has been due for a while, so
-- claims must scan from further back (eventkit_low_water).
--
-- From old statistics the planner may assume an almost empty table, and scan a whole index, dead entries included, for
-- each id.  `IS TRUE` after the comparison of wake_at rules out the index of leased tasks; an array of ids, or a
-- subquery for each, rules out a join over the whole primary key.

-- A queue with bounds takes the longer way, because a process may wait for room.
-- name: Ack
DELETE FROM eventkit_task
WHERE
    id = :id AND token = :token AND state = 'leased' AND (wake_at > :now) IS TRUE AND key IS NULL
    AND NOT EXISTS (
        SELECT 1 FROM eventkit_queue
        WHERE name = queue AND (keep_done IS NOT NULL OR max_size IS NOT NULL OR max_running IS NOT NULL)
    )
    AND NOT EXISTS (SELECT 1 FROM eventkit_cluster_limit AS l WHERE l.queue = eventkit_task.queue)
RETURNING id

-- name: AckMany
DELETE FROM eventkit_task AS t
WHERE
    t.id = ANY (:held.0::bigint[])
    AND ((t.id, t.token) IN (SELECT * FROM unnest(:held.0::bigint[], :held.1::bigint[]))) IS TRUE
    AND t.state = 'leased' AND (t.wake_at > :now) IS TRUE AND t.key IS NULL
    AND NOT EXISTS (
        SELECT 1 FROM eventkit_queue
        WHERE name = t.queue AND (keep_done IS NOT NULL OR max_size IS NOT NULL OR max_running IS NOT NULL)
    )
    AND NOT EXISTS (SELECT 1 FROM eventkit_cluster_limit AS l WHERE l.queue = t.queue)
RETURNING t.id

-- name: Finish
SELECT * FROM eventkit_finish(:held.0::bigint[], :held.1::bigint[], :held.2::text[])

-- name: Remove
SELECT eventkit_remove(:ids::bigint[])

-- step: ForgetKeys
SELECT eventkit_forget_keys(:limit)

-- name: Fail
SELECT 1 WHERE eventkit_mark_dead(:id, :token, :reason, :error, :code)

-- name: SettleDead
SELECT eventkit_settle_dead(:ids::bigint[])

-- name: Retry
SELECT 1 WHERE eventkit_retry_held(:id, :token, :delay, :error, :code)

-- name: Release
WITH released AS (
    UPDATE eventkit_task
    SET state = 'ready', attempt = attempt - 1, wake_at = eventkit_wakes_at(NULL, expires_at, :now), token = NULL
    WHERE id = :id AND token = :token AND state = 'leased' AND (wake_at > :now) IS TRUE
    RETURNING queue, priority, run_at
)
INSERT INTO eventkit_low_water (queue, priority, run_at)
SELECT queue, priority, run_at
FROM released
WHERE eventkit_wake('task', queue)
RETURNING queue

-- name: Snooze
UPDATE eventkit_task
SET
    state = CASE WHEN :delay > 0 THEN 'scheduled' ELSE 'ready' END,
    attempt = attempt - 1,
    run_at = :now + :delay::bigint * interval '1 ms',
    wake_at = eventkit_wakes_at(:now + :delay::bigint * interval '1 ms', expires_at, :now),
    token = NULL, lapsed = false
WHERE id = :id AND token = :token AND state = 'leased' AND (wake_at > :now) IS TRUE
RETURNING eventkit_wake('task', queue)

-- part: with_held
WITH held AS MATERIALIZED (
    SELECT t.id
    FROM
        (SELECT * FROM unnest(:held.0::bigint[], :held.1::bigint[]) AS h (id, token) ORDER BY id) AS h
        CROSS JOIN LATERAL (
            SELECT id FROM eventkit_task
            WHERE id = h.id AND token = h.token AND state = 'leased' AND (wake_at > :now) IS TRUE
            FOR UPDATE
        ) AS t
)

-- name: ReleaseMany
:with_held,
released AS (
    UPDATE eventkit_task
    SET state = 'ready', attempt = attempt - 1, wake_at = eventkit_wakes_at(NULL, expires_at, :now), token = NULL
    WHERE id = ANY (ARRAY(SELECT id FROM held))
    RETURNING queue, priority, run_at
)
INSERT INTO eventkit_low_water (queue, priority, run_at)
SELECT queue, priority, min(run_at)
FROM released
WHERE eventkit_wake('task', queue)
GROUP BY queue, priority

-- name: Extend
SELECT 1 WHERE eventkit_extend_held(:id, :token, :lease)

-- name: ExtendMany
:with_held
UPDATE eventkit_task
SET wake_at = greatest(wake_at, :now + :lease::bigint * interval '1 ms')
WHERE id = ANY (ARRAY(SELECT id FROM held))
RETURNING id

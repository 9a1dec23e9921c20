-- Ending claims.  The token and the lease fence every statement that takes a token: once wake_at has passed,
-- the worker has lost the task, even if no other process has promoted it yet.
--
-- A statement that makes a task claimable, or makes room, wakes the queue (eventkit_stir).  Several rows are locked in
-- the order of their ids, so that no two batches wait for each other.  A released task has been due for a while, so
-- claims must scan from further back (eventkit_low).
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
RETURNING t.id

-- name: Finish
WITH
held AS MATERIALIZED (
    SELECT t.id, h.result::json
    FROM
        (SELECT * FROM unnest(:held.0::bigint[], :held.1::bigint[], :held.2::text[]) AS h (id, token, result) ORDER BY id) AS h
        CROSS JOIN LATERAL (
            SELECT id FROM eventkit_task
            WHERE id = h.id AND token = h.token AND state = 'leased' AND (wake_at > :now) IS TRUE
            FOR UPDATE
        ) AS t
),
done AS (
    UPDATE eventkit_task AS t
    SET state = 'done', result = held.result, finished_at = :now, wake_at = NULL, token = NULL
    FROM held
    WHERE t.id = held.id AND t.id = ANY (ARRAY(SELECT id FROM held))
    RETURNING t.id, t.queue
)
SELECT id, (SELECT q.keep_done FROM eventkit_queue AS q WHERE q.name = done.queue) IS NOT NULL
FROM done
WHERE eventkit_stir('task', queue)

-- Deletes one more than the call has finished, so that the backlog shrinks.
-- name: ForgetDone
DELETE FROM eventkit_task
WHERE id = ANY (ARRAY(
    SELECT t.id
    FROM
        eventkit_queue AS q CROSS JOIN LATERAL (
            SELECT d.id FROM eventkit_task AS d
            WHERE
                d.queue = q.name AND d.state = 'done' AND d.finished_at IS NOT NULL
                AND d.finished_at <= :now - q.keep_done * interval '1 ms'
            LIMIT 1 + cardinality(:ids::bigint[])
            FOR UPDATE SKIP LOCKED
        ) AS t
    WHERE q.name IN (SELECT queue FROM eventkit_task WHERE id = ANY (:ids::bigint[]))
    LIMIT 1 + cardinality(:ids::bigint[])
))

-- name: Revoke
UPDATE eventkit_task
SET token = NULL
WHERE id = :id

-- name: Remove
DELETE FROM eventkit_task
WHERE id = ANY (:ids::bigint[])
RETURNING eventkit_stir('task', queue)

-- name: ReserveKeys
UPDATE eventkit_key AS k
SET reserved_until = t.enqueued_at + coalesce(q.key_ttl, 86400000) * interval '1 ms'
FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
WHERE t.id = ANY (:ids::bigint[]) AND k.queue = t.queue AND k.key = t.key AND k.task_id = t.id

-- name: ForgetKeys
DELETE FROM eventkit_key
WHERE (queue, key) IN (
    SELECT queue, key FROM eventkit_key
    WHERE reserved_until <= :now
    ORDER BY reserved_until
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
RETURNING 1

-- The claim itself detects poison, so it still holds the lease, however short.
-- name: Bury
UPDATE eventkit_task
SET
    state = 'dead', reason = :reason, error = :error, finished_at = :now, wake_at = NULL, token = NULL, lapsed = false
WHERE id = :id AND token = :token AND state = 'leased' AND (wake_at > :now OR :reason = 'poison')
RETURNING queue, lane, eventkit_stir('task', queue)

-- name: CopyDead
WITH
dead AS MATERIALIZED (
    SELECT t.id, t.queue, t.payload, t.headers, t.priority, q.dead_letter_to
    FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
    WHERE t.id = ANY (:ids::bigint[]) AND t.state = 'dead'
),
copies AS (
    INSERT INTO eventkit_task (queue, payload, headers, priority)
    SELECT dead_letter_to, payload, headers, priority
    FROM dead
    WHERE dead_letter_to IS NOT NULL
    RETURNING queue, priority
),
opened AS (
    INSERT INTO eventkit_low (queue, priority)
    SELECT DISTINCT queue, priority
    FROM copies AS c
    WHERE NOT EXISTS (SELECT FROM eventkit_low AS l WHERE l.queue = c.queue AND l.priority = c.priority)
)
SELECT eventkit_stir('task', queue)
FROM (SELECT queue FROM dead UNION SELECT queue FROM copies) AS changed
UNION ALL
SELECT eventkit_stir('result', id::text)
FROM dead

-- name: ReadHeld
SELECT t.attempt, coalesce(t.max_attempts, q.max_attempts, 3), q.retry
FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
WHERE t.id = :id AND t.token = :token AND t.state = 'leased' AND (t.wake_at > :now) IS TRUE
FOR UPDATE OF t

-- name: Postpone
UPDATE eventkit_task
SET
    state = CASE WHEN :delay > 0 THEN 'scheduled' ELSE 'ready' END,
    run_at = :now + :delay::bigint * interval '1 ms',
    wake_at = eventkit_wakes_at(:now + :delay::bigint * interval '1 ms', expires_at, :now),
    error = :error, token = NULL, lapsed = false
WHERE id = :id AND token = :token
RETURNING eventkit_stir('task', queue)

-- name: Release
WITH released AS (
    UPDATE eventkit_task
    SET state = 'ready', attempt = attempt - 1, wake_at = eventkit_wakes_at(NULL, expires_at, :now), token = NULL
    WHERE id = :id AND token = :token AND state = 'leased' AND (wake_at > :now) IS TRUE
    RETURNING queue, priority, run_at
)
INSERT INTO eventkit_low (queue, priority, run_at)
SELECT queue, priority, run_at
FROM released
WHERE eventkit_stir('task', queue)
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
RETURNING eventkit_stir('task', queue)

-- name: ReleaseMany
WITH
held AS MATERIALIZED (
    SELECT t.id
    FROM
        (SELECT * FROM unnest(:held.0::bigint[], :held.1::bigint[]) AS h (id, token) ORDER BY id) AS h
        CROSS JOIN LATERAL (
            SELECT id FROM eventkit_task
            WHERE id = h.id AND token = h.token AND state = 'leased' AND (wake_at > :now) IS TRUE
            FOR UPDATE
        ) AS t
),
released AS (
    UPDATE eventkit_task
    SET state = 'ready', attempt = attempt - 1, wake_at = eventkit_wakes_at(NULL, expires_at, :now), token = NULL
    WHERE id = ANY (ARRAY(SELECT id FROM held))
    RETURNING queue, priority, run_at
)
INSERT INTO eventkit_low (queue, priority, run_at)
SELECT queue, priority, min(run_at)
FROM released
WHERE eventkit_stir('task', queue)
GROUP BY queue, priority

-- A shortened lease ends before the time that waiters know.
-- name: Extend
WITH held AS MATERIALIZED (
    SELECT id, wake_at FROM eventkit_task
    WHERE id = :id AND token = :token AND state = 'leased' AND (wake_at > :now) IS TRUE
    FOR UPDATE
)
UPDATE eventkit_task AS t
SET wake_at = :now + :lease::bigint * interval '1 ms'
FROM held
WHERE t.id = held.id AND t.id = ANY (ARRAY(SELECT id FROM held))
RETURNING CASE WHEN t.wake_at < held.wake_at THEN eventkit_stir('task', queue) END

-- name: ExtendMany
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
UPDATE eventkit_task
SET wake_at = greatest(wake_at, :now + :lease::bigint * interval '1 ms')
WHERE id = ANY (ARRAY(SELECT id FROM held))
RETURNING id

-- Inspecting, clearing and configuring queues.
--
-- The view eventkit_task_now shows a due task in the state that Promote would give it.

-- name: GetTask
SELECT
    id, queue, state, payload::text, key, headers::text, priority, attempt, max_attempts,
    eventkit_ms(run_at), eventkit_ms(enqueued_at), eventkit_ms(expires_at), eventkit_ms(lease_expires_at),
    worker, eventkit_ms(claimed_at), eventkit_ms(finished_at), reason, error, result::text
FROM eventkit_task_now
WHERE queue = :queue AND id = :id

-- name: FindQueues
SELECT id, queue
FROM eventkit_task
WHERE id = ANY (:ids::bigint[])

-- name: ListTasks
SELECT
    id, queue, state, payload::text, key, headers::text, priority, attempt, max_attempts,
    eventkit_ms(run_at), eventkit_ms(enqueued_at), eventkit_ms(expires_at), eventkit_ms(lease_expires_at),
    worker, eventkit_ms(claimed_at), eventkit_ms(finished_at), reason, error, result::text
FROM eventkit_task_now
WHERE queue = :queue AND id > :after AND (:state::text IS NULL OR state = :state)
ORDER BY id
LIMIT :limit

-- Each half uses one index: ready tasks, and tasks due to become ready.
-- name: PeekTasks
SELECT
    id, queue, state, payload::text, key, headers::text, priority, attempt, max_attempts,
    eventkit_ms(run_at), eventkit_ms(enqueued_at), eventkit_ms(expires_at), eventkit_ms(lease_expires_at),
    worker, eventkit_ms(claimed_at), eventkit_ms(finished_at), reason, error, result::text
FROM (
    (
        SELECT * FROM eventkit_task_now
        WHERE queue = :queue AND stored_state = 'ready' AND state = 'ready'
        ORDER BY priority DESC, run_at, id
        LIMIT :limit
    )
    UNION ALL
    SELECT * FROM eventkit_task_now
    WHERE queue = :queue AND stored_state IN ('scheduled', 'leased') AND wake_at <= :now AND state = 'ready'
) AS best
ORDER BY priority DESC, best.run_at, id
LIMIT :limit

-- name: ListDead
SELECT
    id, queue, state, payload::text, key, headers::text, priority, attempt, max_attempts,
    eventkit_ms(run_at), eventkit_ms(enqueued_at), eventkit_ms(expires_at), eventkit_ms(lease_expires_at),
    worker, eventkit_ms(claimed_at), eventkit_ms(finished_at), reason, error, result::text
FROM eventkit_task_now
WHERE queue = :queue AND stored_state = 'dead' AND finished_at IS NOT NULL
ORDER BY eventkit_task_now.finished_at DESC, id DESC
LIMIT :limit

-- name: ListDeadByError
SELECT reason, error, count(*), eventkit_ms(min(finished_at)), eventkit_ms(max(finished_at)), max(id)
FROM eventkit_task
WHERE queue = :queue AND state = 'dead' AND finished_at IS NOT NULL
GROUP BY reason, error
ORDER BY count(*) DESC, max(id) DESC
LIMIT :limit

-- name: ReadStats
SELECT scheduled, ready, leased, dead, done, due, due_ready, was_ready, due_dead, age, paused
FROM eventkit_counts(:queue, :limit)

-- name: ReadSize
SELECT eventkit_size(:queue)

-- name: ReadNextDue
SELECT eventkit_ms(min(moment))
FROM (
    SELECT min(run_at) AS moment FROM eventkit_task WHERE queue = :queue AND state = 'ready'
    UNION ALL
    SELECT min(wake_at) FROM eventkit_task WHERE queue = :queue AND state = 'scheduled' AND wake_at IS NOT NULL
    UNION ALL
    SELECT min(wake_at) FROM eventkit_task WHERE queue = :queue AND state = 'leased' AND wake_at IS NOT NULL
) AS moments

-- name: Cancel
SELECT 1 WHERE eventkit_cancel(:queue, :id, :running::boolean)

-- Rows locked by another transaction are skipped, so that a caller that has promoted due tasks does not wait.
-- Tasks added after the keys were reserved are left for the next call.
-- name: Purge
DELETE FROM eventkit_task
WHERE id = ANY (ARRAY(
    SELECT id FROM eventkit_task AS t
    WHERE
        queue = :queue AND state = :state
        AND (:older_than::bigint IS NULL OR finished_at <= :now - :older_than::bigint * interval '1 ms')
        AND NOT EXISTS (
            SELECT FROM eventkit_key AS k
            WHERE k.queue = t.queue AND k.key = t.key AND k.task_id = t.id AND k.reserved_until = 'infinity'
        )
    FOR UPDATE SKIP LOCKED
))
RETURNING lane, eventkit_wake('task', queue)

-- The key of a done task was reserved when it finished, and may belong to another task by now.  Only a transaction
-- that has locked the task changes its key, so the tasks are locked first.
-- name: ReserveKeysOfState
WITH held AS MATERIALIZED (
    SELECT queue, key, id, enqueued_at FROM eventkit_task
    WHERE
        queue = :queue AND state = :state AND state <> 'done'
        AND (:older_than::bigint IS NULL OR finished_at <= :now - :older_than::bigint * interval '1 ms')
    FOR UPDATE SKIP LOCKED
)
UPDATE eventkit_key AS k
SET reserved_until = t.enqueued_at + coalesce(q.key_ttl, 86400000) * interval '1 ms'
FROM held AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
WHERE
    k.queue = t.queue AND k.key = t.key AND k.task_id = t.id

-- name: Requeue
WITH
dead AS MATERIALIZED (
    SELECT id FROM eventkit_task
    WHERE
        queue = :queue AND state = 'dead' AND finished_at IS NOT NULL
        AND (:every::boolean OR id = ANY (:ids::bigint[]))
    FOR UPDATE SKIP LOCKED
),
alive AS (
    UPDATE eventkit_task
    SET
        state = 'ready', attempt = 0, run_at = :now, wake_at = NULL, expires_at = NULL,
        worker = NULL, claimed_at = NULL, finished_at = NULL, reason = NULL, error = NULL, lapsed = false
    WHERE id = ANY (ARRAY(SELECT id FROM dead))
    RETURNING queue, priority
),
opened AS (
    INSERT INTO eventkit_low_water (queue, priority)
    SELECT DISTINCT queue, priority
    FROM alive AS a
    WHERE NOT EXISTS (SELECT FROM eventkit_low_water AS l WHERE l.queue = a.queue AND l.priority = a.priority)
)
SELECT eventkit_wake('task', queue)
FROM alive

-- name: SetPaused
INSERT INTO eventkit_queue (name, paused)
VALUES (:queue, :paused)
ON CONFLICT (name) DO UPDATE
SET paused = excluded.paused
RETURNING eventkit_wake('task', name)

-- The row is inserted or locked, so that of two concurrent calls the second begins with what the first wrote.
-- name: AddQueue
INSERT INTO eventkit_queue (name)
SELECT :queue::text
WHERE
    NOT EXISTS (SELECT 1 FROM eventkit_task WHERE queue = :queue AND state = 'ready')
    AND NOT EXISTS (SELECT 1 FROM eventkit_task WHERE queue = :queue AND wake_at IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM eventkit_task WHERE queue = :queue AND finished_at IS NOT NULL)
ON CONFLICT (name) DO NOTHING
RETURNING name

-- name: FindQueue
SELECT 1
WHERE
    EXISTS (SELECT 1 FROM eventkit_queue WHERE name = :queue)
    OR EXISTS (SELECT 1 FROM eventkit_task WHERE queue = :queue AND state = 'ready')
    OR EXISTS (SELECT 1 FROM eventkit_task WHERE queue = :queue AND wake_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM eventkit_task WHERE queue = :queue AND finished_at IS NOT NULL)

-- name: HoldSettings
INSERT INTO eventkit_queue (name)
VALUES (:queue)
ON CONFLICT (name) DO UPDATE
SET name = excluded.name

-- name: ReadSettings
SELECT max_attempts, lease, retry, max_size, rate, burst, max_running, keep_done, keep_dead, key_ttl, dead_letter_to, history
FROM eventkit_queue
WHERE name = :queue

-- name: WriteSettings
INSERT INTO eventkit_queue AS q (
    name, max_attempts, lease, retry, max_size, rate, burst, max_running, keep_done, keep_dead, key_ttl, dead_letter_to, history
)
VALUES (
    :queue, :max_attempts, :lease, :retry, :max_size, :rate, :burst, :max_running, :keep_done, :keep_dead, :key_ttl,
    :dead_letter_to, :history
)
ON CONFLICT (name) DO UPDATE
SET
    max_attempts = excluded.max_attempts, lease = excluded.lease, retry = excluded.retry,
    max_size = excluded.max_size, rate = excluded.rate, burst = excluded.burst,
    max_running = excluded.max_running, keep_done = excluded.keep_done, keep_dead = excluded.keep_dead,
    key_ttl = excluded.key_ttl, dead_letter_to = excluded.dead_letter_to, history = excluded.history,
    tokens = CASE
        WHEN q.rate IS NOT DISTINCT FROM excluded.rate AND q.burst IS NOT DISTINCT FROM excluded.burst THEN q.tokens
    END
RETURNING eventkit_wake('task', name)

-- name: Exhaust
WITH waiting AS MATERIALIZED (
    SELECT id FROM eventkit_task
    WHERE
        id = ANY (ARRAY(
            SELECT id FROM eventkit_task WHERE queue = :queue AND state = 'ready' AND attempt >= :most
            UNION ALL
            SELECT id FROM eventkit_task
            WHERE queue = :queue AND state = 'scheduled' AND wake_at IS NOT NULL AND attempt >= :most
            UNION ALL
            SELECT id FROM eventkit_task
            WHERE queue = :queue AND state = 'scheduled' AND lane IS NOT NULL AND attempt >= :most
        ))
        AND state IN ('ready', 'scheduled') AND max_attempts IS NULL AND (expires_at IS NULL OR expires_at > :now)
    ORDER BY id
    FOR UPDATE
)
UPDATE eventkit_task
SET state = 'dead', reason = 'exhausted', finished_at = :now, wake_at = NULL
WHERE id = ANY (ARRAY(SELECT id FROM waiting))
RETURNING id, lane

-- name: FindTasks
SELECT 1
WHERE
    EXISTS (SELECT FROM eventkit_task WHERE queue = :queue AND state = 'ready')
    OR EXISTS (SELECT FROM eventkit_task WHERE queue = :queue AND state IN ('scheduled', 'leased') AND wake_at IS NOT NULL)
    OR EXISTS (SELECT FROM eventkit_task WHERE queue = :queue AND state = 'scheduled' AND lane IS NOT NULL)
    OR EXISTS (SELECT FROM eventkit_task WHERE queue = :queue AND state = 'dead' AND finished_at IS NOT NULL)

-- name: DropTasks
DELETE FROM eventkit_task
WHERE queue = :queue

-- name: DropKeysOfQueue
DELETE FROM eventkit_key
WHERE queue = :queue

-- name: DropSettings
DELETE FROM eventkit_queue
WHERE name = :queue
RETURNING eventkit_wake('task', name)

-- name: AdvanceQueue
WITH lowered AS (
    UPDATE eventkit_low_water
    SET
        run_at = run_at - :milliseconds::bigint * interval '1 ms',
        wake_at = wake_at - :milliseconds::bigint * interval '1 ms',
        raise_at = raise_at - :milliseconds::bigint * interval '1 ms',
        look_at = look_at - :milliseconds::bigint * interval '1 ms'
)
UPDATE eventkit_queue
SET refilled_at = refilled_at - :milliseconds::bigint * interval '1 ms'
RETURNING eventkit_wake('task', name)

-- name: ReadSchema
SELECT version_num
FROM eventkit_version

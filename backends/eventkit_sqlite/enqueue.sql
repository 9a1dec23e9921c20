-- Enqueueing.  Two partial indexes count the tasks that max_size bounds: ready tasks, and those with a
-- wake_at (scheduled and leased ones, and ready ones that expire, which count once).

-- part: size
    (SELECT count(*) FROM eventkit_task WHERE queue = :queue AND state = 'ready')
    + (SELECT count(*) FROM eventkit_task WHERE queue = :queue AND state IN ('scheduled', 'leased') AND wake_at IS NOT NULL)

-- part: bounded
(max_size IS NOT NULL OR max_bytes IS NOT NULL OR enqueue_rate IS NOT NULL)

-- The statement reads the bound itself, and counts only where there is one.  A queue with other limits takes the longer way.
-- name: Enqueue
INSERT INTO eventkit_task (queue, payload, headers, priority, max_attempts)
SELECT :queue, :payload, :headers, :priority, :max_attempts
WHERE NOT EXISTS (
    SELECT 1 FROM eventkit_queue
    WHERE
        name = :queue
        AND (
            max_bytes IS NOT NULL OR enqueue_rate IS NOT NULL OR max_size IS NOT NULL AND max_size <= (:size)
            OR ordered AND :priority <> 0
        )
)
RETURNING id

-- name: EnqueuePlain
INSERT INTO eventkit_task (queue, payload)
SELECT :queue, value
FROM json_each(:payloads)
WHERE NOT EXISTS (SELECT 1 FROM eventkit_queue WHERE name = :queue AND :bounded)
RETURNING id

-- part: insert_tasks
INSERT INTO eventkit_task (
    queue, payload, headers, priority, max_attempts, key, group_key, state, run_at, wake_at, expires_at, enqueued_at
)
SELECT
    queue, payload, headers, priority, max_attempts, key, group_key,
    CASE WHEN due > now THEN 'scheduled' ELSE 'ready' END,
    due,
    CASE WHEN due > now THEN min(due, coalesce(expires, due)) ELSE expires END,
    expires,
    now

-- name: EnqueueMany
:insert_tasks
FROM (
    SELECT
        :queue AS queue, value ->> 0 AS payload, value ->> 1 AS headers, value ->> 2 AS priority, value ->> 3 AS max_attempts,
        value ->> 4 AS key,
        coalesce(now + (value ->> 5), value ->> 6, now) AS due,
        coalesce(now + (value ->> 7), value ->> 8) AS expires,
        value ->> 9 AS group_key,
        now
    FROM (SELECT :now AS now), json_each(:tasks)
)
WHERE true
ON CONFLICT (queue, key) WHERE key IS NOT NULL AND state <> 'done' DO NOTHING
RETURNING id, key

-- For keys that were just refused: a reservation counts even if it has ended since.
-- step: FindKeys
SELECT t.key, t.id, CASE WHEN q.strict_keys THEN CAST(t.payload AS BLOB) END
FROM eventkit_task AS t LEFT JOIN eventkit_queue AS q ON q.name = t.queue
WHERE t.queue = :queue AND t.state <> 'done' AND t.key IN (SELECT value FROM json_each(:keys))
UNION ALL
SELECT k.key, k.task_id, CASE WHEN q.strict_keys THEN CAST(k.payload AS BLOB) END
FROM eventkit_key AS k LEFT JOIN eventkit_queue AS q ON q.name = k.queue
WHERE
    k.queue = :queue AND k.key IN (SELECT value FROM json_each(:keys))
    AND NOT EXISTS (SELECT 1 FROM eventkit_task AS t WHERE t.queue = k.queue AND t.key = k.key AND t.state <> 'done')

-- step: ReadRoom
SELECT
    max_size, CASE WHEN max_size IS NOT NULL THEN (:size) END, max_bytes,
    enqueue_rate, enqueue_burst, enqueue_tokens, enqueue_refilled_at, :now
FROM eventkit_queue
WHERE name = :queue AND :bounded

-- step: SpendEnqueueTokens
UPDATE eventkit_queue
SET enqueue_tokens = :tokens, enqueue_refilled_at = :refilled_at
WHERE name = :queue

-- name: RoomAhead
SELECT
    CASE WHEN max_size IS NOT NULL THEN max_size >= :count + (:size) ELSE 1 END,
    enqueue_rate, enqueue_burst, enqueue_tokens, enqueue_refilled_at, :now
FROM (SELECT 1) AS one LEFT JOIN eventkit_queue ON name = :queue

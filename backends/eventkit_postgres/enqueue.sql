-- Enqueueing.  Two partial indexes count the tasks that max_size bounds: ready tasks, and those with a
-- wake_at (scheduled and leased ones, and ready ones that expire, which count once).  A trigger inserts keys
-- into eventkit_key.

-- name: Enqueue
SELECT eventkit_add(:queue, :payload::json, :headers::json, :priority::integer, :max_attempts::bigint)

-- part: bounded
(max_size IS NOT NULL OR max_bytes IS NOT NULL OR enqueue_rate IS NOT NULL)

-- name: EnqueuePlain
WITH
woken AS MATERIALIZED (SELECT eventkit_wake('task', :queue)),
opened AS (
    INSERT INTO eventkit_low_water (queue, priority)
    SELECT :queue, 0
    WHERE NOT EXISTS (SELECT FROM eventkit_low_water WHERE queue = :queue AND priority = 0)
)
INSERT INTO eventkit_task (queue, payload)
SELECT :queue, payload::json
FROM woken, unnest(:payloads::text[]) AS payload
WHERE NOT EXISTS (SELECT FROM eventkit_queue WHERE name = :queue AND :bounded)
RETURNING id

-- part: insert_tasks
INSERT INTO eventkit_task (
    queue, payload, headers, priority, max_attempts, key, group_key, state, run_at, wake_at, expires_at, enqueued_at
)
SELECT
    queue, payload, headers, priority, max_attempts, key, group_key,
    CASE WHEN due > now THEN 'scheduled' ELSE 'ready' END,
    due,
    eventkit_wakes_at(due, expires, now),
    expires,
    now

-- part: lower_marks
INSERT INTO eventkit_low_water (queue, priority, run_at)
SELECT queue, priority, CASE WHEN min(run_at) < :now THEN min(run_at) ELSE '-infinity' END
FROM added
WHERE state = 'ready'
GROUP BY queue, priority
HAVING
    min(run_at) < :now
    OR NOT EXISTS (SELECT FROM eventkit_low_water AS l WHERE l.queue = added.queue AND l.priority = added.priority)

-- part: woken_queues
woken AS MATERIALIZED (
    SELECT count(eventkit_wake('task', queue))
    FROM (SELECT DISTINCT unnest(:tasks.0::text[]) AS queue) AS t
)

-- name: EnqueueMany
WITH
woken AS MATERIALIZED (SELECT eventkit_wake('task', :queue)),
added AS (
    :insert_tasks
    FROM (
        SELECT
            :queue AS queue, payload::json, headers::json, priority, max_attempts, key, group_key,
            coalesce(now + delay * interval '1 ms', eventkit_moment(run_at), now) AS due,
            coalesce(now + expires_in * interval '1 ms', eventkit_moment(expires_at)) AS expires,
            now
        FROM
            woken,
            (SELECT :now AS now) AS clock,
            unnest(
                :tasks.0::text[], :tasks.1::text[], :tasks.2::integer[], :tasks.3::bigint[], :tasks.4::text[],
                :tasks.5::bigint[], :tasks.6::bigint[], :tasks.7::bigint[], :tasks.8::bigint[], :tasks.9::text[]
            ) AS t (payload, headers, priority, max_attempts, key, delay, run_at, expires_in, expires_at, group_key)
    ) AS task
    RETURNING id, key, queue, priority, state, run_at
),
opened AS (
    :lower_marks
)
SELECT id, key
FROM added

-- For keys that were just refused: a reservation counts even if it has ended since.
-- step: FindKeys
SELECT k.key, k.task_id, CASE WHEN q.strict_keys THEN coalesce(t.payload, k.payload)::text END
FROM
    eventkit_key AS k
    LEFT JOIN eventkit_queue AS q ON q.name = k.queue
    LEFT JOIN eventkit_task AS t ON t.id = k.task_id AND t.queue = k.queue AND t.state <> 'done'
WHERE k.queue = :queue AND k.key = ANY (:keys::text[])

-- step: ReadRoom
SELECT max_size, size, max_bytes, rate, burst, tokens, refilled_at, now
FROM eventkit_room(:queue)

-- step: SpendEnqueueTokens
UPDATE eventkit_queue
SET enqueue_tokens = :tokens, enqueue_refilled_at = eventkit_moment(:refilled_at)
WHERE name = :queue

-- name: RoomAhead
SELECT
    CASE WHEN max_size IS NOT NULL THEN max_size >= :count + eventkit_size(:queue) ELSE true END,
    enqueue_rate, enqueue_burst, enqueue_tokens, eventkit_ms(enqueue_refilled_at), eventkit_ms(:now)
FROM (SELECT) AS one LEFT JOIN eventkit_queue ON name = :queue

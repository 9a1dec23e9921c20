-- Browsing.  Long values are cut at :clip characters and returned with their length.

-- Each half uses the index of its state; the others are not scanned.
-- name: BrowseTasks
SELECT
    id, state, key, left(payload::text, :clip::integer), length(payload::text), priority, attempt, max_attempts,
    eventkit_ms(run_at), eventkit_ms(enqueued_at), eventkit_ms(lease_expires_at), worker, eventkit_ms(claimed_at),
    eventkit_ms(finished_at), reason, left(error, :clip::integer)
FROM (
    (
        SELECT *, 1 AS part, -priority::bigint AS first, eventkit_ms(run_at) AS second FROM eventkit_task_now
        WHERE :state::text = 'ready' AND queue = :queue AND stored_state = 'ready' AND state = 'ready'
        ORDER BY priority DESC, run_at, id
        LIMIT :limit::bigint + :skip::bigint
    )
    UNION ALL
    (
        SELECT *, 2, eventkit_ms(wake_at), 0 FROM eventkit_task_now
        WHERE :state = 'ready' AND queue = :queue AND stored_state IN ('scheduled', 'leased') AND wake_at <= :now AND state = 'ready'
        LIMIT :limit + :skip
    )
    UNION ALL
    (
        SELECT *, 1, eventkit_ms(wake_at), 0 FROM eventkit_task_now
        WHERE :state IN ('scheduled', 'leased') AND queue = :queue AND stored_state = :state AND wake_at > :now
        ORDER BY wake_at, id
        LIMIT :limit + :skip
    )
    UNION ALL
    (
        SELECT *, 1, -eventkit_ms(finished_at), -id FROM eventkit_task_now
        WHERE :state IN ('dead', 'done') AND queue = :queue AND stored_state = :state AND finished_at IS NOT NULL
        ORDER BY eventkit_task_now.finished_at DESC, id DESC
        LIMIT :limit + :skip
    )
) AS found
ORDER BY part, first, second, id
LIMIT :limit OFFSET :skip

-- name: BrowseDead
SELECT
    id, state, key, left(payload::text, :clip::integer), length(payload::text), priority, attempt, max_attempts,
    eventkit_ms(run_at), eventkit_ms(enqueued_at), eventkit_ms(lease_expires_at), worker, eventkit_ms(claimed_at),
    eventkit_ms(finished_at), reason, left(error, :clip::integer)
FROM eventkit_task_now
WHERE
    queue = :queue AND stored_state = 'dead' AND finished_at IS NOT NULL AND reason = :reason
    AND error IS NOT DISTINCT FROM :error
ORDER BY eventkit_task_now.finished_at DESC, id DESC
LIMIT :limit OFFSET :skip

-- name: FindTask
SELECT
    id, state, key, left(payload::text, :clip::integer), length(payload::text), priority, attempt, max_attempts,
    eventkit_ms(run_at), eventkit_ms(enqueued_at), eventkit_ms(lease_expires_at), worker, eventkit_ms(claimed_at),
    eventkit_ms(finished_at), reason, left(error, :clip::integer)
FROM eventkit_task_now
WHERE queue = :queue AND id = :id

-- name: FindTasksOfKey
SELECT
    id, state, key, left(payload::text, :clip::integer), length(payload::text), priority, attempt, max_attempts,
    eventkit_ms(run_at), eventkit_ms(enqueued_at), eventkit_ms(lease_expires_at), worker, eventkit_ms(claimed_at),
    eventkit_ms(finished_at), reason, left(error, :clip::integer)
FROM eventkit_task_now
WHERE id IN (
    SELECT id FROM eventkit_task WHERE queue = :queue AND key = :key AND state <> 'done'
    UNION ALL
    (SELECT id FROM eventkit_task WHERE queue = :queue AND lane = :key AND state <> 'done' LIMIT :limit)
)
ORDER BY id DESC
LIMIT :limit

-- name: BrowseEvents
SELECT id, key, left(payload::text, :clip::integer), length(payload::text), headers::text, eventkit_ms(created_at)
FROM eventkit_event
WHERE topic = :topic AND id < :before AND id >= :least AND (:key::text IS NULL OR key = :key)
ORDER BY id DESC
LIMIT :limit

-- name: ReadHistory
SELECT id, key, payload::text, eventkit_ms(created_at)
FROM eventkit_event
WHERE topic = 'eventkit.tasks' AND key = :queue::text || ':' || :id::bigint
ORDER BY id
LIMIT :limit

-- name: ListLimits
SELECT name, per, amount, eventkit_ms(counted_at), eventkit_ms(until)
FROM eventkit_rate
WHERE until > :now
ORDER BY name, per
LIMIT :limit

-- Skips from one queue to the next by the index.
-- name: CountDeaths
WITH RECURSIVE
clock (now) AS (SELECT :now),
ended (name) AS (
    SELECT ''
    UNION ALL
    SELECT (SELECT min(t.queue) FROM eventkit_task AS t WHERE t.finished_at IS NOT NULL AND t.queue > e.name)
    FROM ended AS e
    WHERE e.name IS NOT NULL
)
SELECT '' AS queue, '' AS reason, eventkit_ms(now) - :settling::bigint AS number
FROM clock
UNION ALL
(
    SELECT t.queue, t.reason, count(*)
    FROM clock, ended AS e, eventkit_task AS t
    WHERE
        t.queue = e.name AND t.state = 'dead'
        AND t.finished_at > coalesce(eventkit_moment(:since::bigint), now)
        AND t.finished_at <= now - :settling * interval '1 ms'
    GROUP BY t.queue, t.reason
)
ORDER BY 1, 2

-- name: FindDead
SELECT id
FROM eventkit_task
WHERE
    queue = :queue AND state = 'dead' AND finished_at IS NOT NULL AND reason = :reason
    AND error IS NOT DISTINCT FROM :error
LIMIT :limit

-- Locks in the order of ids, like every statement that locks several tasks.
-- name: PurgeLetters
SELECT id, lane
FROM eventkit_task
WHERE queue = :queue AND state = 'dead' AND finished_at IS NOT NULL AND id = ANY (:ids::bigint[])
ORDER BY id
FOR UPDATE

-- name: RequeueEdited
UPDATE eventkit_task
SET payload = :payload::json
WHERE queue = :queue AND id = :id AND state = 'dead' AND finished_at IS NOT NULL
RETURNING id

-- Browsing.  Long values are cut at :clip characters and returned with their length.

-- Each half uses the index of its state; the others are not scanned.
-- name: BrowseTasks
SELECT
    id, state, key, substr(payload, 1, :clip), length(payload), priority, attempt, max_attempts, run_at, enqueued_at,
    lease_expires_at, worker, claimed_at, finished_at, reason, substr(error, 1, :clip)
FROM (
    SELECT * FROM (
        SELECT *, 1 AS part, -priority AS first, run_at AS second FROM eventkit_task_now
        WHERE :state = 'ready' AND queue = :queue AND stored_state = 'ready' AND state = 'ready'
        ORDER BY priority DESC, run_at, id
        LIMIT :limit + :skip
    )
    UNION ALL
    SELECT * FROM (
        SELECT *, 2, wake_at, 0 FROM eventkit_task_now
        WHERE :state = 'ready' AND queue = :queue AND stored_state IN ('scheduled', 'leased') AND wake_at <= :now AND state = 'ready'
        LIMIT :limit + :skip
    )
    UNION ALL
    SELECT * FROM (
        SELECT *, 1, wake_at, 0 FROM eventkit_task_now
        WHERE :state IN ('scheduled', 'leased') AND queue = :queue AND stored_state = :state AND wake_at > :now
        ORDER BY wake_at, id
        LIMIT :limit + :skip
    )
    UNION ALL
    SELECT * FROM (
        SELECT *, 1, -finished_at, -id FROM eventkit_task_now
        WHERE :state IN ('dead', 'done') AND queue = :queue AND stored_state = :state AND finished_at IS NOT NULL
        ORDER BY finished_at DESC, id DESC
        LIMIT :limit + :skip
    )
)
ORDER BY part, first, second, id
LIMIT :limit OFFSET :skip

-- name: BrowseDead
SELECT
    id, state, key, substr(payload, 1, :clip), length(payload), priority, attempt, max_attempts, run_at, enqueued_at,
    lease_expires_at, worker, claimed_at, finished_at, reason, substr(error, 1, :clip)
FROM eventkit_task_now
WHERE queue = :queue AND stored_state = 'dead' AND finished_at IS NOT NULL AND reason = :reason AND error IS :error
ORDER BY finished_at DESC, id DESC
LIMIT :limit OFFSET :skip

-- name: FindTask
SELECT
    id, state, key, substr(payload, 1, :clip), length(payload), priority, attempt, max_attempts, run_at, enqueued_at,
    lease_expires_at, worker, claimed_at, finished_at, reason, substr(error, 1, :clip)
FROM eventkit_task_now
WHERE queue = :queue AND id = :id

-- name: FindTasksOfKey
SELECT
    id, state, key, substr(payload, 1, :clip), length(payload), priority, attempt, max_attempts, run_at, enqueued_at,
    lease_expires_at, worker, claimed_at, finished_at, reason, substr(error, 1, :clip)
FROM eventkit_task_now
WHERE id IN (
    SELECT id FROM eventkit_task WHERE queue = :queue AND key = :key AND state <> 'done'
    UNION ALL
    SELECT id FROM (SELECT id FROM eventkit_task WHERE queue = :queue AND lane = :key AND state <> 'done' LIMIT :limit)
)
ORDER BY id DESC
LIMIT :limit

-- name: BrowseEvents
SELECT id, key, substr(payload, 1, :clip), length(payload), headers, created_at
FROM eventkit_event
WHERE topic = :topic AND id < :before AND id >= :least AND (:key IS NULL OR key = :key)
ORDER BY id DESC
LIMIT :limit

-- name: ReadHistory
SELECT id, key, payload, created_at
FROM eventkit_event
WHERE topic = 'eventkit.tasks' AND key = :queue || ':' || :id
ORDER BY id
LIMIT :limit

-- name: ListLimits
SELECT name, per, amount, counted_at, until
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
SELECT '' AS queue, '' AS reason, now - :settling AS number
FROM clock
UNION ALL
SELECT * FROM (
    SELECT t.queue, t.reason, count(*)
    FROM clock, ended AS e, eventkit_task AS t
    WHERE
        t.queue = e.name AND t.state = 'dead' AND t.finished_at > coalesce(:since, now) AND t.finished_at <= now - :settling
    GROUP BY t.queue, t.reason
)
ORDER BY 1, 2

-- name: FindDead
SELECT id
FROM eventkit_task
WHERE queue = :queue AND state = 'dead' AND finished_at IS NOT NULL AND reason = :reason AND error IS :error
LIMIT :limit

-- name: PurgeLetters
SELECT id, lane
FROM eventkit_task
WHERE queue = :queue AND state = 'dead' AND finished_at IS NOT NULL AND id IN (SELECT value FROM json_each(:ids))

-- name: RequeueEdited
UPDATE eventkit_task
SET payload = :payload
WHERE queue = :queue AND id = :id AND state = 'dead' AND finished_at IS NOT NULL
RETURNING id

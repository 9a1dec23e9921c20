-- Browsing.  Long values are cut at :clip characters and returned with their length.

-- part: look
    id, state, key, substr(payload, 1, :clip), length(payload), priority, attempt, max_attempts, run_at, enqueued_at,
    lease_expires_at, worker, claimed_at, finished_at, reason, substr(error, 1, :clip)

-- Each half uses the index of its state; the others are not scanned.
-- name: BrowseTasks
SELECT :look
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
SELECT :look
FROM eventkit_task_now
WHERE queue = :queue AND stored_state = 'dead' AND finished_at IS NOT NULL AND reason = :reason AND error IS :error
ORDER BY finished_at DESC, id DESC
LIMIT :limit OFFSET :skip

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

-- name: CountDeaths
:with_ended
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

-- name: PurgeDeadTasks
SELECT id
FROM eventkit_task
WHERE queue = :queue AND state = 'dead' AND finished_at IS NOT NULL AND id IN (SELECT value FROM json_each(:ids))

-- name: RequeueEdited
UPDATE eventkit_task
SET payload = :payload
WHERE queue = :queue AND id = :id AND state = 'dead' AND finished_at IS NOT NULL
RETURNING id

-- The overview of the database.

-- Skips from one name to the next by the indexes and counts nothing beyond :limit, so the cost grows with the names,
-- not with the rows.
-- name: ReadOverview
WITH RECURSIVE
:all_queues,
:all_topics
SELECT 'queue', q.name, :counts
FROM queues AS q
UNION ALL
SELECT
    'topic', t.name, json_array(
        max(
            coalesce((SELECT max(id) FROM eventkit_event WHERE topic = t.name), 0),
            coalesce((SELECT pruned_to FROM eventkit_topic WHERE name = t.name), 0)
        ),
        (SELECT count(*) FROM (SELECT 1 FROM eventkit_event WHERE topic = t.name LIMIT :limit) AS few)
    )
FROM topics AS t
UNION ALL
SELECT
    'consumer', c.topic, json_array(
        c.name,
        c.position,
        (SELECT count(*) FROM (SELECT 1 FROM eventkit_event AS e WHERE e.topic = c.topic AND e.id > c.position LIMIT :limit) AS few),
        c.updated_at
    )
FROM eventkit_consumer AS c
UNION ALL
SELECT 'schedule', name, json_array(queue, next_at, last_at, fired, skipped)
FROM eventkit_schedule
UNION ALL
SELECT 'lock', name, json_array(holder, fence, expires_at)
FROM eventkit_lock
WHERE expires_at > :now
UNION ALL
SELECT 'result', '', json_array(count(*))
FROM (SELECT 1 FROM eventkit_result WHERE expires_at > :now LIMIT :limit) AS few

-- Pipelines.

-- name: ListPipelines
SELECT name, source, sink, state, batch, rows, lag, error, started_at, updated_at
FROM eventkit_pipeline
ORDER BY name

-- API keys.  Revoked keys are kept for the audit.

-- part: api_key
    k.id, k.name, k.scopes, k.rate, k.burst, k.quota, k.created_at, k.expires_at, k.revoked_at

-- The watcher of the file counts the commits that it notices.
-- name: ReadCommits
SELECT eventkit_commits()

-- name: CommitsAhead
SELECT eventkit_commits() <> :seen

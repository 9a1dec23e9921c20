-- Browsing.  Long values are cut at :clip characters and returned with their length.

-- part: look
    id, state, key, left(payload::text, :clip::integer), length(payload::text), priority, attempt, max_attempts,
    eventkit_ms(run_at), eventkit_ms(enqueued_at), eventkit_ms(lease_expires_at), worker, eventkit_ms(claimed_at),
    eventkit_ms(finished_at), reason, left(error, :clip::integer)

-- Each half uses the index of its state; the others are not scanned.
-- name: BrowseTasks
SELECT :look
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
SELECT :look
FROM eventkit_task_now
WHERE
    queue = :queue AND stored_state = 'dead' AND finished_at IS NOT NULL AND reason = :reason
    AND error IS NOT DISTINCT FROM :error
ORDER BY eventkit_task_now.finished_at DESC, id DESC
LIMIT :limit OFFSET :skip

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

-- name: CountDeaths
:with_ended
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
-- name: PurgeDeadTasks
SELECT id
FROM eventkit_task
WHERE queue = :queue AND state = 'dead' AND finished_at IS NOT NULL AND id = ANY (:ids::bigint[])
ORDER BY id
FOR UPDATE

-- name: RequeueEdited
UPDATE eventkit_task
SET payload = :payload::json
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
    'topic', t.name, json_build_array(
        eventkit_head(t.name),
        (SELECT count(*) FROM (SELECT 1 FROM eventkit_event WHERE topic = t.name LIMIT :limit) AS few)
    )::text
FROM topics AS t
UNION ALL
SELECT
    'consumer', c.topic, json_build_array(
        c.name,
        c.position,
        (SELECT count(*) FROM (SELECT 1 FROM eventkit_event AS e WHERE e.topic = c.topic AND e.id > c.position LIMIT :limit) AS few),
        eventkit_ms(c.updated_at)
    )::text
FROM eventkit_consumer AS c
UNION ALL
SELECT 'schedule', name, json_build_array(queue, eventkit_ms(next_at), eventkit_ms(last_at), fired, skipped)::text
FROM eventkit_schedule
UNION ALL
SELECT 'lock', name, json_build_array(holder, fence, eventkit_ms(expires_at))::text
FROM eventkit_lock
WHERE expires_at > :now
UNION ALL
SELECT 'result', '', json_build_array(count(*))::text
FROM (SELECT 1 FROM eventkit_result WHERE expires_at > :now LIMIT :limit) AS few

-- Pipelines.

-- name: ListPipelines
SELECT name, source, sink, state, batch, rows, lag, error, eventkit_ms(started_at), eventkit_ms(updated_at)
FROM eventkit_pipeline
ORDER BY name

-- API keys.  Revoked keys are kept for the audit.

-- part: api_key
    k.id, k.name, k.scopes, k.rate, k.burst, k.quota, eventkit_ms(k.created_at), eventkit_ms(k.expires_at),
    eventkit_ms(k.revoked_at)

-- A snapshot changes when a transaction of the server ends that has written something.  Asking for one takes no lock and
-- writes nothing, so it costs committing transactions nothing.
-- name: ReadCommits
SELECT pg_current_snapshot()::text

-- name: CommitsAhead
SELECT pg_current_snapshot()::text <> :seen, eventkit_ms(:now) + 100, eventkit_ms(:now)

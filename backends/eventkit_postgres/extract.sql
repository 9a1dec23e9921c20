-- Bulk reads.  The end of a range is settled before the range is read, so any later snapshot is complete.

-- name: ReadIdentity
SELECT id FROM eventkit_identity

-- Skips from one name to the next by the index.
-- name: ListTopics
WITH RECURSIVE publishing (name) AS (
    (SELECT topic FROM eventkit_event ORDER BY topic LIMIT 1)
    UNION ALL
    SELECT (SELECT e.topic FROM eventkit_event AS e WHERE e.topic > p.name ORDER BY e.topic LIMIT 1)
    FROM publishing AS p WHERE p.name IS NOT NULL
)
SELECT name FROM (
    SELECT name FROM publishing WHERE name IS NOT NULL
    UNION
    SELECT name FROM eventkit_topic
    UNION
    SELECT topic FROM eventkit_consumer
) AS topics
ORDER BY name COLLATE "C"

-- name: ReadExtent
SELECT
    EXISTS (SELECT 1 FROM eventkit_event WHERE topic = :topic)
    OR EXISTS (SELECT 1 FROM eventkit_topic WHERE name = :topic)
    OR EXISTS (SELECT 1 FROM eventkit_consumer WHERE topic = :topic),
    coalesce((SELECT pruned_to FROM eventkit_topic WHERE name = :topic), 0),
    eventkit_head(:topic)

-- name: FindEnd
SELECT max(id), count(*)
FROM (
    SELECT id
    FROM eventkit_event
    WHERE topic = :topic AND id > :after AND id <= :last
    ORDER BY id
    LIMIT :most
) AS events

-- name: FetchEvents
-- As text, because psycopg decodes json; the time is not converted, because Arrow converts millions of them faster.
SELECT id AS "offset", key, payload::text AS payload, headers::text AS headers, created_at
FROM eventkit_event
WHERE
    topic = :topic AND id > :after AND id <= :last
    AND (cardinality(:keys::text[]) = 0 OR key = ANY (:keys::text[]))
    AND (:since::bigint IS NULL OR created_at >= eventkit_moment(:since::bigint))
    AND (:before::bigint IS NULL OR created_at < eventkit_moment(:before::bigint))
ORDER BY id
LIMIT :limit

-- name: FetchStanding
SELECT id AS identity, coalesce((SELECT pruned_to FROM eventkit_topic WHERE name = :topic), 0) AS pruned_to
FROM eventkit_identity

-- name: ReadTaskNumbers
SELECT
    coalesce((SELECT min(id) FROM eventkit_task), 1) - 1,
    coalesce((SELECT max(id) FROM eventkit_task), 0)

-- name: FindTaskEnd
SELECT max(id), count(*)
FROM (SELECT id FROM eventkit_task WHERE id > :after AND id <= :last ORDER BY id LIMIT :most) AS tasks

-- name: FetchTasks
SELECT
    id, queue, state, payload::text AS payload, key, headers::text AS headers, priority, attempt, max_attempts,
    eventkit_ms(run_at) AS run_at, eventkit_ms(enqueued_at) AS enqueued_at, eventkit_ms(expires_at) AS expires_at,
    eventkit_ms(lease_expires_at) AS lease_expires_at, worker, eventkit_ms(claimed_at) AS claimed_at,
    eventkit_ms(finished_at) AS finished_at, reason, error, result::text AS result
FROM eventkit_task_now
WHERE id > :after AND id <= :last AND (:state::text IS NULL OR state = :state)
ORDER BY id
LIMIT :limit

-- name: FetchResults
SELECT id, value::text AS value, eventkit_ms(expires_at) AS expires_at
FROM eventkit_result
WHERE id > :after AND expires_at > :now
ORDER BY id
LIMIT :limit

-- name: FetchSchedules
SELECT
    name, timing AS "when", zone AS tz, queue, payload::text AS payload, headers::text AS headers, priority,
    max_attempts, catch_up, next_at IS NULL AS paused, eventkit_ms(next_at) AS next_at,
    eventkit_ms(last_at) AS last_at, fired, skipped
FROM eventkit_schedule

-- name: FetchConsumers
SELECT
    topic, name, position AS "offset",
    (SELECT count(*) FROM eventkit_event AS e WHERE e.topic = c.topic AND e.id > c.position) AS lag,
    eventkit_ms(updated_at) AS updated_at
FROM eventkit_consumer AS c

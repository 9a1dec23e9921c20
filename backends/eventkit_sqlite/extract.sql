-- Bulk reads.  All visible rows are final, so the head of a topic is its last event.

-- name: ReadIdentity
SELECT id FROM eventkit_identity

-- Skips from one name to the next by the index.
-- name: ListTopics
WITH RECURSIVE publishing (name) AS (
    SELECT min(topic) FROM eventkit_event
    UNION ALL
    SELECT (SELECT min(topic) FROM eventkit_event WHERE topic > name) FROM publishing WHERE name IS NOT NULL
)
SELECT name FROM publishing WHERE name IS NOT NULL
UNION
SELECT name FROM eventkit_topic
UNION
SELECT topic FROM eventkit_consumer
ORDER BY 1

-- name: ReadExtent
SELECT
    EXISTS (SELECT 1 FROM eventkit_event WHERE topic = :topic)
    OR EXISTS (SELECT 1 FROM eventkit_topic WHERE name = :topic)
    OR EXISTS (SELECT 1 FROM eventkit_consumer WHERE topic = :topic),
    coalesce((SELECT pruned_to FROM eventkit_topic WHERE name = :topic), 0),
    max(
        coalesce((SELECT max(id) FROM eventkit_event WHERE topic = :topic), 0),
        coalesce((SELECT pruned_to FROM eventkit_topic WHERE name = :topic), 0)
    )

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
SELECT id AS "offset", key, payload, headers, created_at
FROM eventkit_event
WHERE
    topic = :topic AND id > :after AND id <= :last
    AND (:keys = '[]' OR key IN (SELECT value FROM json_each(:keys)))
    AND (:since IS NULL OR created_at >= :since)
    AND (:before IS NULL OR created_at < :before)
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
    id, queue, state, payload, key, headers, priority, attempt, max_attempts, run_at, enqueued_at, expires_at,
    lease_expires_at, worker, claimed_at, finished_at, reason, error, result
FROM eventkit_task_now
WHERE id > :after AND id <= :last AND (:state IS NULL OR state = :state)
ORDER BY id
LIMIT :limit

-- name: FetchResults
SELECT id, value, expires_at
FROM eventkit_result
WHERE id > :after AND expires_at > :now
ORDER BY id
LIMIT :limit

-- name: FetchSchedules
SELECT
    name, timing AS "when", zone AS tz, queue, payload, headers, priority, max_attempts, catch_up,
    next_at IS NULL AS paused, next_at, last_at, fired, skipped
FROM eventkit_schedule

-- name: FetchConsumers
SELECT
    topic, name, position AS "offset",
    (SELECT count(*) FROM eventkit_event AS e WHERE e.topic = c.topic AND e.id > c.position) AS lag,
    updated_at
FROM eventkit_consumer AS c

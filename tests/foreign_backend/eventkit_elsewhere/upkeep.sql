-- The version of the schema, and housekeeping.

-- name: ReadSchema
SELECT version_num FROM eventkit_version

-- name: ReadCondition
SELECT schema_hash, incomplete FROM eventkit_identity

-- part: with_queues
WITH RECURSIVE queues (name) AS (
    SELECT min(queue) FROM elsewhere_task WHERE wake_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(t.queue) FROM elsewhere_task AS t WHERE t.wake_at IS NOT NULL AND t.queue > q.name)
    FROM queues AS q
    WHERE q.name IS NOT NULL
)

-- name: FindDueQueues
:with_queues
SELECT name
FROM queues
WHERE
    name IS NOT NULL
    AND EXISTS (
        SELECT 1 FROM elsewhere_task AS t
        WHERE t.queue = name AND t.state IN ('scheduled', 'leased', 'ready') AND t.wake_at <= :now
    )

-- step: BoundLeases
:with_queues
UPDATE elsewhere_task
SET wake_at = :now + wake_at - claimed_at, claimed_at = :now
WHERE id IN (
    SELECT t.id
    FROM queues AS q CROSS JOIN elsewhere_task AS t ON t.queue = q.name
    WHERE t.state = 'leased' AND t.wake_at > :now AND t.claimed_at > :now + 1000
    LIMIT :limit
)
RETURNING 1

-- step: DropDone
DELETE FROM elsewhere_task
WHERE id IN (
    SELECT t.id
    FROM elsewhere_queue AS q CROSS JOIN elsewhere_task AS t ON t.queue = q.name
    WHERE t.state = 'done' AND t.finished_at IS NOT NULL AND t.finished_at <= :now - coalesce(q.keep_done, 0)
    LIMIT :limit
)
RETURNING 1

-- name: DropDead
SELECT t.id
FROM elsewhere_queue AS q CROSS JOIN elsewhere_task AS t ON t.queue = q.name
WHERE t.state = 'dead' AND t.finished_at IS NOT NULL AND t.finished_at <= :now - q.keep_dead
LIMIT :limit

-- name: DropResults
DELETE FROM elsewhere_result
WHERE id IN (SELECT id FROM elsewhere_result WHERE expires_at <= :now LIMIT :limit)
RETURNING 1

-- step: DropFullGroupRates
SELECT 1 WHERE false AND :limit

-- step: DropRates
DELETE FROM elsewhere_rate
WHERE (name, per) IN (SELECT name, per FROM elsewhere_rate WHERE until <= :now LIMIT :limit)
RETURNING 1

-- name: FindStaleTopics
SELECT t.name, t.keep, t.keep_count, t.keep_unconsumed
FROM elsewhere_topic AS t
WHERE
    t.keep_count IS NOT NULL
    OR :now - t.keep > (SELECT e.created_at FROM elsewhere_event AS e WHERE e.topic = t.name ORDER BY e.id LIMIT 1)

-- name: PruneTopic
SELECT max(id)
FROM (
    SELECT e.id
    FROM elsewhere_topic AS t CROSS JOIN elsewhere_event AS e ON e.topic = t.name
    WHERE
        t.name = :topic
        AND t.keep IS :keep AND t.keep_count IS :keep_count AND t.keep_unconsumed = :keep_unconsumed
        AND e.id <= :last
        AND e.id <= CASE WHEN t.keep_unconsumed THEN coalesce(
            (SELECT min(position) FROM elsewhere_consumer WHERE topic = :topic), 9223372036854775807
        ) ELSE 9223372036854775807 END
    ORDER BY e.id
    LIMIT :limit
)

-- name: FindStaleChannels
WITH RECURSIVE
channels (name) AS (
    SELECT min(channel) FROM elsewhere_notification
    UNION ALL
    SELECT (SELECT min(n.channel) FROM elsewhere_notification AS n WHERE n.channel > c.name)
    FROM channels AS c
    WHERE c.name IS NOT NULL
),
settings (name, keep, keep_count) AS (
    SELECT n.name, CASE WHEN c.name IS NULL THEN 86400000 ELSE c.keep END, c.keep_count
    FROM channels AS n LEFT JOIN elsewhere_channel AS c ON c.name = n.name
    WHERE n.name IS NOT NULL
)
SELECT s.name, s.keep, s.keep_count
FROM settings AS s
WHERE
    s.keep_count IS NOT NULL
    OR :now - s.keep > (
        SELECT n.created_at FROM elsewhere_notification AS n WHERE n.channel = s.name ORDER BY n.id LIMIT 1
    )

-- step: PruneChannel
DELETE FROM elsewhere_notification
WHERE id IN (
    SELECT n.id
    FROM elsewhere_notification AS n LEFT JOIN elsewhere_channel AS c ON c.name = :channel
    WHERE
        n.channel = :channel AND n.id <= :last
        AND CASE WHEN c.name IS NULL THEN 86400000 ELSE c.keep END IS :keep AND c.keep_count IS :keep_count
    ORDER BY n.id
    LIMIT :limit
)
RETURNING 1

-- There are no inboxes, and no rows of other processes to move.
-- step: DropSeen
SELECT 1 WHERE false AND :limit

-- step: DropLeftStaged
SELECT 1 WHERE false AND :limit

-- step: DropWritten
SELECT 1 WHERE false AND :limit

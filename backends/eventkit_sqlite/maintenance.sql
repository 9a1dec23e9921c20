-- Housekeeping.

-- Skips from one queue to the next by the index, so that tasks that are not due cost nothing.
-- name: FindDueQueues
WITH RECURSIVE queues (name) AS (
    SELECT min(queue) FROM eventkit_task WHERE wake_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(t.queue) FROM eventkit_task AS t WHERE t.wake_at IS NOT NULL AND t.queue > q.name)
    FROM queues AS q
    WHERE q.name IS NOT NULL
)
SELECT name
FROM queues
WHERE
    name IS NOT NULL
    AND EXISTS (
        SELECT 1 FROM eventkit_task AS t
        WHERE t.queue = name AND t.state IN ('scheduled', 'leased', 'ready') AND t.wake_at <= :now
    )

-- A clock that was ahead has stored times too far in the future; differences up to a second are ignored.
-- name: BoundLeases
WITH RECURSIVE queues (name) AS (
    SELECT min(queue) FROM eventkit_task WHERE wake_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(t.queue) FROM eventkit_task AS t WHERE t.wake_at IS NOT NULL AND t.queue > q.name)
    FROM queues AS q
    WHERE q.name IS NOT NULL
)
UPDATE eventkit_task
SET wake_at = :now + wake_at - claimed_at, claimed_at = :now
WHERE id IN (
    SELECT t.id
    FROM queues AS q CROSS JOIN eventkit_task AS t ON t.queue = q.name
    WHERE t.state = 'leased' AND t.wake_at > :now AND t.claimed_at > :now + 1000
    LIMIT :limit
)
RETURNING 1

-- name: DropDone
DELETE FROM eventkit_task
WHERE id IN (
    SELECT t.id
    FROM eventkit_queue AS q CROSS JOIN eventkit_task AS t ON t.queue = q.name
    WHERE t.state = 'done' AND t.finished_at IS NOT NULL AND t.finished_at <= :now - coalesce(q.keep_done, 0)
    LIMIT :limit
)
RETURNING 1

-- name: DropDead
SELECT t.id
FROM eventkit_queue AS q CROSS JOIN eventkit_task AS t ON t.queue = q.name
WHERE t.state = 'dead' AND t.finished_at IS NOT NULL AND t.finished_at <= :now - q.keep_dead
LIMIT :limit

-- name: DropResults
DELETE FROM eventkit_result
WHERE id IN (SELECT id FROM eventkit_result WHERE expires_at <= :now LIMIT :limit)
RETURNING 1

-- name: DropRates
DELETE FROM eventkit_rate
WHERE (name, per) IN (SELECT name, per FROM eventkit_rate WHERE until <= :now LIMIT :limit)
RETURNING 1

-- name: DropSeen
DELETE FROM eventkit_inbox
WHERE (consumer, message_id) IN (
    SELECT i.consumer, i.message_id
    FROM eventkit_inbox_settings AS r CROSS JOIN eventkit_inbox AS i ON i.consumer = r.name
    WHERE i.seen_at <= :now - r.retain
    LIMIT :limit
)
RETURNING 1

-- The oldest event shows whether any is too old.
-- name: FindStaleTopics
SELECT t.name, t.retain, t.max_keep, t.keep_unconsumed
FROM eventkit_topic AS t
WHERE
    t.max_keep IS NOT NULL
    OR :now - t.retain > (SELECT e.created_at FROM eventkit_event AS e WHERE e.topic = t.name ORDER BY e.id LIMIT 1)

-- name: PruneTopic
SELECT max(id)
FROM (
    SELECT e.id
    FROM eventkit_topic AS t CROSS JOIN eventkit_event AS e ON e.topic = t.name
    WHERE
        t.name = :topic
        AND t.retain IS :retain AND t.max_keep IS :max_keep AND t.keep_unconsumed = :keep_unconsumed
        AND e.id <= :last
        AND e.id <= CASE WHEN t.keep_unconsumed THEN coalesce(
            (SELECT min(position) FROM eventkit_consumer WHERE topic = :topic), 9223372036854775807
        ) ELSE 9223372036854775807 END
    ORDER BY e.id
    LIMIT :limit
)

-- A channel without settings keeps notifications for a day.
-- name: FindStaleChannels
WITH RECURSIVE
channels (name) AS (
    SELECT min(channel) FROM eventkit_notification
    UNION ALL
    SELECT (SELECT min(n.channel) FROM eventkit_notification AS n WHERE n.channel > c.name)
    FROM channels AS c
    WHERE c.name IS NOT NULL
),
settings (name, retain, max_keep) AS (
    SELECT n.name, CASE WHEN c.name IS NULL THEN 86400000 ELSE c.retain END, c.max_keep
    FROM channels AS n LEFT JOIN eventkit_channel AS c ON c.name = n.name
    WHERE n.name IS NOT NULL
)
SELECT s.name, s.retain, s.max_keep
FROM settings AS s
WHERE
    s.max_keep IS NOT NULL
    OR :now - s.retain > (
        SELECT n.created_at FROM eventkit_notification AS n WHERE n.channel = s.name ORDER BY n.id LIMIT 1
    )

-- name: PruneChannel
DELETE FROM eventkit_notification
WHERE id IN (
    SELECT n.id
    FROM eventkit_notification AS n LEFT JOIN eventkit_channel AS c ON c.name = :channel
    WHERE
        n.channel = :channel AND n.id <= :last
        AND CASE WHEN c.name IS NULL THEN 86400000 ELSE c.retain END IS :retain AND c.max_keep IS :max_keep
    ORDER BY n.id
    LIMIT :limit
)
RETURNING 1

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

-- Rows locked by another transaction are skipped, here and below.

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
SET wake_at = :now + (wake_at - claimed_at), claimed_at = :now
WHERE id = ANY (ARRAY(
    SELECT t.id
    FROM
        queues AS q CROSS JOIN LATERAL (
            SELECT l.id FROM eventkit_task AS l
            WHERE
                l.queue = q.name AND l.state = 'leased' AND l.wake_at > :now
                AND l.claimed_at > :now + interval '1 s'
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        ) AS t
    LIMIT :limit
))
RETURNING 1

-- name: DropDone
DELETE FROM eventkit_task
WHERE id = ANY (ARRAY(
    SELECT t.id
    FROM
        eventkit_queue AS q CROSS JOIN LATERAL (
            SELECT d.id FROM eventkit_task AS d
            WHERE
                d.queue = q.name AND d.state = 'done' AND d.finished_at IS NOT NULL
                AND d.finished_at <= :now - coalesce(q.keep_done, 0) * interval '1 ms'
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        ) AS t
    LIMIT :limit
))
RETURNING 1

-- name: DropDead
SELECT t.id
FROM
    eventkit_queue AS q CROSS JOIN LATERAL (
        SELECT d.id FROM eventkit_task AS d
        WHERE
            d.queue = q.name AND d.state = 'dead' AND d.finished_at IS NOT NULL
            AND d.finished_at <= :now - q.keep_dead * interval '1 ms'
        LIMIT :limit
        FOR UPDATE SKIP LOCKED
    ) AS t
LIMIT :limit

-- name: DropResults
DELETE FROM eventkit_result
WHERE id = ANY (ARRAY(SELECT id FROM eventkit_result WHERE expires_at <= :now LIMIT :limit FOR UPDATE SKIP LOCKED))
RETURNING 1

-- name: DropRates
DELETE FROM eventkit_rate
WHERE (name, per) IN (SELECT name, per FROM eventkit_rate WHERE until <= :now LIMIT :limit FOR UPDATE SKIP LOCKED)
RETURNING 1

-- name: DropSeen
DELETE FROM eventkit_inbox
WHERE (consumer, message_id) IN (
    SELECT s.consumer, s.message_id
    FROM
        eventkit_inbox_settings AS r CROSS JOIN LATERAL (
            SELECT i.consumer, i.message_id FROM eventkit_inbox AS i
            WHERE i.consumer = r.name AND i.seen_at <= :now - r.retain * interval '1 ms'
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        ) AS s
    LIMIT :limit
)
RETURNING 1

-- The oldest event shows whether any is too old.
-- name: FindStaleTopics
SELECT t.name, t.retain, t.max_keep, t.keep_unconsumed
FROM eventkit_topic AS t
WHERE
    t.max_keep IS NOT NULL
    OR :now - t.retain * interval '1 ms' > (
        SELECT e.created_at FROM eventkit_event AS e WHERE e.topic = t.name ORDER BY e.id LIMIT 1
    )

-- The rows to delete are the oldest of a topic, so one process at a time takes a topic, and others skip it.
-- name: PruneTopic
WITH settings AS MATERIALIZED (
    SELECT t.keep_unconsumed
    FROM eventkit_topic AS t
    WHERE
        t.name = :topic
        AND t.retain IS NOT DISTINCT FROM :retain::bigint AND t.max_keep IS NOT DISTINCT FROM :max_keep::bigint
        AND t.keep_unconsumed = :keep_unconsumed
    FOR UPDATE SKIP LOCKED
)
SELECT max(oldest.id)
FROM
    settings AS s CROSS JOIN LATERAL (
        SELECT e.id
        FROM eventkit_event AS e
        WHERE
            e.topic = :topic AND e.id <= :last
            AND e.id <= CASE WHEN s.keep_unconsumed THEN coalesce(
                (SELECT min(position) FROM eventkit_consumer WHERE topic = :topic), 9223372036854775807
            ) ELSE 9223372036854775807 END
        ORDER BY e.id
        LIMIT :limit
    ) AS oldest

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
    OR :now - s.retain * interval '1 ms' > (
        SELECT n.created_at FROM eventkit_notification AS n WHERE n.channel = s.name ORDER BY n.id LIMIT 1
    )

-- name: PruneChannel
DELETE FROM eventkit_notification
WHERE id = ANY (ARRAY(
    SELECT n.id
    FROM eventkit_notification AS n LEFT JOIN eventkit_channel AS c ON c.name = :channel
    WHERE
        n.channel = :channel AND n.id <= :last
        AND CASE WHEN c.name IS NULL THEN 86400000 ELSE c.retain END IS NOT DISTINCT FROM :retain::bigint
        AND c.max_keep IS NOT DISTINCT FROM :max_keep::bigint
    ORDER BY n.id
    LIMIT :limit
    FOR UPDATE OF n SKIP LOCKED
))
RETURNING 1

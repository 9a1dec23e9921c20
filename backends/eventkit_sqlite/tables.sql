-- Copying a database: the rows of each table in the order of their keys, compared as bytes.

-- The key of an existing task is copied with the task.
-- step: ExportKey
SELECT queue, key, task_id, reserved_until, payload
FROM eventkit_key AS k
WHERE
    (queue, key) > (:queue, :key)
    AND NOT EXISTS (SELECT 1 FROM eventkit_task AS t WHERE t.queue = k.queue AND t.key = k.key AND t.state <> 'done')
ORDER BY queue, key
LIMIT :limit

-- name: ExportNumbers
SELECT
    coalesce(max(seq) FILTER (WHERE name = 'eventkit_event'), 0),
    coalesce(max(seq) FILTER (WHERE name = 'eventkit_notification'), 0),
    coalesce(max(seq) FILTER (WHERE name = 'eventkit_task'), 0)
FROM sqlite_sequence

-- name: ImportNumbers
INSERT OR REPLACE INTO sqlite_sequence (rowid, name, seq)
SELECT s.rowid, n.name, max(coalesce(s.seq, 0), n.seq)
FROM
    (
        SELECT 'eventkit_event' AS name, :event AS seq
        UNION ALL SELECT 'eventkit_notification', :notification
        UNION ALL SELECT 'eventkit_task', :task
    ) AS n
    LEFT JOIN sqlite_sequence AS s ON s.name = n.name

-- Housekeeping.

-- A clock that was ahead has stored times too far in the future; differences up to a second are ignored.
-- step: BoundLeases
:with_queues
UPDATE eventkit_task
SET wake_at = :now + wake_at - claimed_at, claimed_at = :now
WHERE id IN (
    SELECT t.id
    FROM queues AS q CROSS JOIN eventkit_task AS t ON t.queue = q.name
    WHERE t.state = 'leased' AND t.wake_at > :now AND t.claimed_at > :now + 1000
    LIMIT :limit
)
RETURNING 1

-- step: DropDone
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

-- step: DropRates
DELETE FROM eventkit_rate
WHERE (name, per) IN (SELECT name, per FROM eventkit_rate WHERE until <= :now LIMIT :limit)
RETURNING 1

-- step: DropSeen
DELETE FROM eventkit_inbox
WHERE (consumer, message_id) IN (
    SELECT i.consumer, i.message_id
    FROM eventkit_inbox_settings AS r CROSS JOIN eventkit_inbox AS i ON i.consumer = r.name
    WHERE i.seen_at <= :now - r.keep
    LIMIT :limit
)
RETURNING 1

-- name: PruneTopic
SELECT max(id)
FROM (
    SELECT e.id
    FROM eventkit_topic AS t CROSS JOIN eventkit_event AS e ON e.topic = t.name
    WHERE
        t.name = :topic
        AND t.keep IS :keep AND t.keep_count IS :keep_count AND t.keep_unconsumed = :keep_unconsumed
        AND e.id <= :last
        AND e.id <= CASE WHEN t.keep_unconsumed THEN coalesce(
            (SELECT min(position) FROM eventkit_consumer WHERE topic = :topic), 9223372036854775807
        ) ELSE 9223372036854775807 END
    ORDER BY e.id
    LIMIT :limit
)

-- step: PruneChannel
DELETE FROM eventkit_notification
WHERE id IN (
    SELECT n.id
    FROM eventkit_notification AS n LEFT JOIN eventkit_channel AS c ON c.name = :channel
    WHERE
        n.channel = :channel AND n.id <= :last
        AND CASE WHEN c.name IS NULL THEN 86400000 ELSE c.keep END IS :keep AND c.keep_count IS :keep_count
    ORDER BY n.id
    LIMIT :limit
)
RETURNING 1

-- Bulk reads.  All visible rows are final, so the head of a topic is its last event.

-- name: ListTopics
WITH RECURSIVE :all_topics
SELECT name FROM topics ORDER BY name

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

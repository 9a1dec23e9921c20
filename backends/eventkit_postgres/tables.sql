-- Copying a database: the rows of each table in the order of their keys, compared as bytes.

-- Claims start again to record where the ready tasks of each priority begin.  The trigger inserts the keys.
-- step: ImportTask
WITH added AS (
    INSERT INTO eventkit_task (
        id, queue, state, priority, run_at, wake_at, expires_at, attempt, max_attempts, token, key, group_key, payload,
        headers, enqueued_at, worker, claimed_at, finished_at, reason, error, code, result, lapsed, turn, held, blocks
    )
    SELECT
        id, queue, state, priority, eventkit_moment(run_at), eventkit_moment(wake_at), eventkit_moment(expires_at),
        attempt, max_attempts, token, key, group_key, payload::json, headers::json, eventkit_moment(enqueued_at), worker,
        eventkit_moment(claimed_at), eventkit_moment(finished_at), reason, error, code, result::json, lapsed::boolean, turn, held::boolean, blocks::boolean
    FROM unnest(
        :rows.0::bigint[], :rows.1::text[], :rows.2::text[], :rows.3::bigint[], :rows.4::bigint[],
        :rows.5::bigint[], :rows.6::bigint[], :rows.7::bigint[], :rows.8::bigint[], :rows.9::bigint[],
        :rows.10::text[], :rows.11::text[], :rows.12::text[], :rows.13::text[], :rows.14::bigint[],
        :rows.15::text[], :rows.16::bigint[], :rows.17::bigint[], :rows.18::text[], :rows.19::text[],
        :rows.20::text[], :rows.21::text[], :rows.22::integer[], :rows.23::bigint[], :rows.24::integer[],
        :rows.25::integer[]
    ) AS r (
        id, queue, state, priority, run_at, wake_at, expires_at, attempt, max_attempts, token, key, group_key, payload,
        headers, enqueued_at, worker, claimed_at, finished_at, reason, error, code, result, lapsed, turn, held, blocks
    )
    ON CONFLICT DO NOTHING
    RETURNING queue, priority, state
)
INSERT INTO eventkit_low_water (queue, priority)
SELECT DISTINCT queue, priority
FROM added AS a
WHERE
    state = 'ready'
    AND NOT EXISTS (
        SELECT FROM eventkit_low_water AS l
        WHERE l.queue = a.queue AND l.priority = a.priority AND l.run_at = '-infinity'
    )

-- The key of an existing task is copied with the task.
-- step: ExportKey
SELECT queue, key, task_id, eventkit_ms(reserved_until), payload::text
FROM eventkit_key
WHERE (queue COLLATE "C", key COLLATE "C") > (:queue, :key) AND reserved_until < 'infinity'
ORDER BY queue COLLATE "C", key COLLATE "C"
LIMIT :limit

-- name: ExportNumbers
SELECT
    coalesce(pg_sequence_last_value('eventkit_event_id_seq'::regclass), 0),
    coalesce(pg_sequence_last_value('eventkit_notification_id_seq'::regclass), 0),
    coalesce(pg_sequence_last_value('eventkit_task_id_seq'::regclass), 0)

-- name: ImportNumbers
SELECT setval('eventkit_event_id_seq', :event)
WHERE :event > coalesce(pg_sequence_last_value('eventkit_event_id_seq'::regclass), 0)
UNION ALL
SELECT setval('eventkit_notification_id_seq', :notification)
WHERE :notification > coalesce(pg_sequence_last_value('eventkit_notification_id_seq'::regclass), 0)
UNION ALL
SELECT setval('eventkit_task_id_seq', :task)
WHERE :task > coalesce(pg_sequence_last_value('eventkit_task_id_seq'::regclass), 0)

-- step: AdvanceQueue
WITH lowered AS (
    UPDATE eventkit_low_water
    SET
        run_at = run_at - :milliseconds::bigint * interval '1 ms',
        wake_at = wake_at - :milliseconds::bigint * interval '1 ms',
        raise_at = raise_at - :milliseconds::bigint * interval '1 ms',
        look_at = look_at - :milliseconds::bigint * interval '1 ms'
)
UPDATE eventkit_queue
SET
    refilled_at = refilled_at - :milliseconds::bigint * interval '1 ms',
    enqueue_refilled_at = enqueue_refilled_at - :milliseconds::bigint * interval '1 ms'
RETURNING eventkit_wake('task', name)

-- Housekeeping.

-- Rows locked by another transaction are skipped, here and below.

-- A clock that was ahead has stored times too far in the future; differences up to a second are ignored.
-- step: BoundLeases
:with_queues
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

-- step: DropDone
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

-- step: DropRates
DELETE FROM eventkit_rate
WHERE (name, per) IN (SELECT name, per FROM eventkit_rate WHERE until <= :now LIMIT :limit FOR UPDATE SKIP LOCKED)
RETURNING 1

-- step: DropSeen
DELETE FROM eventkit_inbox
WHERE (consumer, message_id) IN (
    SELECT s.consumer, s.message_id
    FROM
        eventkit_inbox_settings AS r CROSS JOIN LATERAL (
            SELECT i.consumer, i.message_id FROM eventkit_inbox AS i
            WHERE i.consumer = r.name AND i.seen_at <= :now - r.keep * interval '1 ms'
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        ) AS s
    LIMIT :limit
)
RETURNING 1

-- The rows to delete are the oldest of a topic, so one process at a time takes a topic, and others skip it.
-- name: PruneTopic
WITH settings AS MATERIALIZED (
    SELECT t.keep_unconsumed
    FROM eventkit_topic AS t
    WHERE
        t.name = :topic
        AND t.keep IS NOT DISTINCT FROM :keep::bigint AND t.keep_count IS NOT DISTINCT FROM :keep_count::bigint
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

-- step: PruneChannel
DELETE FROM eventkit_notification
WHERE id = ANY (ARRAY(
    SELECT n.id
    FROM eventkit_notification AS n LEFT JOIN eventkit_channel AS c ON c.name = :channel
    WHERE
        n.channel = :channel AND n.id <= :last
        AND CASE WHEN c.name IS NULL THEN 86400000 ELSE c.keep END IS NOT DISTINCT FROM :keep::bigint
        AND c.keep_count IS NOT DISTINCT FROM :keep_count::bigint
    ORDER BY n.id
    LIMIT :limit
    FOR UPDATE OF n SKIP LOCKED
))
RETURNING 1

-- Bulk reads.  The end of a range is settled before the range is read, so any later snapshot is complete.

-- name: ListTopics
WITH RECURSIVE :all_topics
SELECT name FROM topics ORDER BY name COLLATE "C"

-- name: ReadExtent
SELECT
    EXISTS (SELECT 1 FROM eventkit_event WHERE topic = :topic)
    OR EXISTS (SELECT 1 FROM eventkit_topic WHERE name = :topic)
    OR EXISTS (SELECT 1 FROM eventkit_consumer WHERE topic = :topic),
    coalesce((SELECT pruned_to FROM eventkit_topic WHERE name = :topic), 0),
    eventkit_head(:topic)

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

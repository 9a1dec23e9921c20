-- Copying a database: the rows of each table in the order of their keys, compared as bytes.

-- Claims start again to record where the ready tasks of each priority begin.  The trigger inserts the keys.
-- name: ImportTask
WITH added AS (
    INSERT INTO eventkit_task (
        id, queue, state, priority, run_at, wake_at, expires_at, attempt, max_attempts, token, key, lane, payload,
        headers, enqueued_at, worker, claimed_at, finished_at, reason, error, result, lapsed
    )
    SELECT
        id, queue, state, priority, eventkit_moment(run_at), eventkit_moment(wake_at), eventkit_moment(expires_at),
        attempt, max_attempts, token, key, lane, payload::json, headers::json, eventkit_moment(enqueued_at), worker,
        eventkit_moment(claimed_at), eventkit_moment(finished_at), reason, error, result::json, lapsed::boolean
    FROM unnest(
        :rows.0::bigint[], :rows.1::text[], :rows.2::text[], :rows.3::bigint[], :rows.4::bigint[],
        :rows.5::bigint[], :rows.6::bigint[], :rows.7::bigint[], :rows.8::bigint[], :rows.9::bigint[],
        :rows.10::text[], :rows.11::text[], :rows.12::text[], :rows.13::text[], :rows.14::bigint[],
        :rows.15::text[], :rows.16::bigint[], :rows.17::bigint[], :rows.18::text[], :rows.19::text[],
        :rows.20::text[], :rows.21::integer[]
    ) AS r (
        id, queue, state, priority, run_at, wake_at, expires_at, attempt, max_attempts, token, key, lane, payload,
        headers, enqueued_at, worker, claimed_at, finished_at, reason, error, result, lapsed
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
-- name: ExportKey
SELECT queue, key, task_id, eventkit_ms(reserved_until)
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

-- name: ReadCondition
SELECT schema_hash, incomplete
FROM eventkit_identity

-- name: MarkIncomplete
UPDATE eventkit_identity
SET incomplete = :what

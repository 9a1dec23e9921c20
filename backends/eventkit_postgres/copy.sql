-- Moving house: the rows of each table in the order of their keys, which is that of bytes.

-- name: ExportTopics
SELECT name, pruned_to, retain, max_keep, keep_unconsumed::integer
FROM eventkit_topic
WHERE name COLLATE "C" > :name
ORDER BY name COLLATE "C"
LIMIT :limit

-- name: ImportTopics
INSERT INTO eventkit_topic (name, pruned_to, retain, max_keep, keep_unconsumed)
SELECT name, pruned_to, retain, max_keep, keep_unconsumed::boolean
FROM unnest(
    :rows.0::text[], :rows.1::bigint[], :rows.2::bigint[], :rows.3::bigint[], :rows.4::integer[]
) AS r (name, pruned_to, retain, max_keep, keep_unconsumed)
ON CONFLICT DO NOTHING

-- name: ExportChannels
SELECT name, retain, max_keep
FROM eventkit_channel
WHERE name COLLATE "C" > :name
ORDER BY name COLLATE "C"
LIMIT :limit

-- name: ImportChannels
INSERT INTO eventkit_channel (name, retain, max_keep)
SELECT name, retain, max_keep
FROM unnest(
    :rows.0::text[], :rows.1::bigint[], :rows.2::bigint[]
) AS r (name, retain, max_keep)
ON CONFLICT DO NOTHING

-- name: ExportRecipients
SELECT name, retain
FROM eventkit_recipient
WHERE name COLLATE "C" > :name
ORDER BY name COLLATE "C"
LIMIT :limit

-- name: ImportRecipients
INSERT INTO eventkit_recipient (name, retain)
SELECT name, retain
FROM unnest(
    :rows.0::text[], :rows.1::bigint[]
) AS r (name, retain)
ON CONFLICT DO NOTHING

-- name: ExportQueues
SELECT
    name, paused::integer, max_attempts, lease, retry, max_size, rate, burst, max_running, keep_done, keep_dead, key_ttl,
    dead_letter_to, history::integer, tokens, eventkit_ms(refilled_at)
FROM eventkit_queue
WHERE name COLLATE "C" > :name
ORDER BY name COLLATE "C"
LIMIT :limit

-- name: ImportQueues
INSERT INTO eventkit_queue (
    name, paused, max_attempts, lease, retry, max_size, rate, burst, max_running, keep_done, keep_dead, key_ttl,
    dead_letter_to, history, tokens, refilled_at
)
SELECT
    name, paused::boolean, max_attempts, lease, retry, max_size, rate, burst, max_running, keep_done, keep_dead, key_ttl,
    dead_letter_to, history::boolean, tokens, eventkit_moment(refilled_at)
FROM unnest(
    :rows.0::text[], :rows.1::integer[], :rows.2::bigint[], :rows.3::bigint[], :rows.4::text[],
    :rows.5::bigint[], :rows.6::double precision[], :rows.7::double precision[], :rows.8::bigint[],
    :rows.9::bigint[], :rows.10::bigint[], :rows.11::bigint[], :rows.12::text[], :rows.13::integer[],
    :rows.14::double precision[], :rows.15::bigint[]
) AS r (
    name, paused, max_attempts, lease, retry, max_size, rate, burst, max_running, keep_done, keep_dead, key_ttl,
    dead_letter_to, history, tokens, refilled_at
)
ON CONFLICT DO NOTHING

-- name: ExportEvents
SELECT id, topic, key, payload::text, headers::text, dedup, eventkit_ms(created_at)
FROM eventkit_event
WHERE id > :id
ORDER BY id
LIMIT :limit

-- name: ImportEvents
INSERT INTO eventkit_event (id, topic, key, payload, headers, dedup, created_at)
SELECT id, topic, key, payload::json, headers::json, dedup, eventkit_moment(created_at)
FROM unnest(
    :rows.0::bigint[], :rows.1::text[], :rows.2::text[], :rows.3::text[], :rows.4::text[], :rows.5::text[],
    :rows.6::bigint[]
) AS r (id, topic, key, payload, headers, dedup, created_at)
ON CONFLICT DO NOTHING

-- name: ExportNotifications
SELECT id, channel, payload::text, headers::text, eventkit_ms(created_at)
FROM eventkit_notification
WHERE id > :id
ORDER BY id
LIMIT :limit

-- name: ImportNotifications
INSERT INTO eventkit_notification (id, channel, payload, headers, created_at)
SELECT id, channel, payload::json, headers::json, eventkit_moment(created_at)
FROM unnest(
    :rows.0::bigint[], :rows.1::text[], :rows.2::text[], :rows.3::text[], :rows.4::bigint[]
) AS r (id, channel, payload, headers, created_at)
ON CONFLICT DO NOTHING

-- name: ExportConsumers
SELECT topic, name, position, eventkit_ms(updated_at)
FROM eventkit_consumer
WHERE (topic COLLATE "C", name COLLATE "C") > (:topic, :name)
ORDER BY topic COLLATE "C", name COLLATE "C"
LIMIT :limit

-- name: ImportConsumers
INSERT INTO eventkit_consumer (topic, name, position, updated_at)
SELECT topic, name, position, eventkit_moment(updated_at)
FROM unnest(
    :rows.0::text[], :rows.1::text[], :rows.2::bigint[], :rows.3::bigint[]
) AS r (topic, name, position, updated_at)
ON CONFLICT DO NOTHING

-- name: ExportTasks
SELECT
    id, queue, state, priority, eventkit_ms(run_at), eventkit_ms(wake_at), eventkit_ms(expires_at), attempt,
    max_attempts, token, key, lane, payload::text, headers::text, eventkit_ms(enqueued_at), worker,
    eventkit_ms(claimed_at), eventkit_ms(finished_at), reason, error, result::text, lapsed::integer
FROM eventkit_task
WHERE id > :id
ORDER BY id
LIMIT :limit

-- Claims begin anew to look where the ready tasks of each priority begin.  Keys are held by the trigger.
-- name: ImportTasks
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
INSERT INTO eventkit_low (queue, priority)
SELECT DISTINCT queue, priority
FROM added AS a
WHERE
    state = 'ready'
    AND NOT EXISTS (
        SELECT FROM eventkit_low AS l
        WHERE l.queue = a.queue AND l.priority = a.priority AND l.run_at = '-infinity'
    )

-- What a task holds as long as it is there goes with the task.
-- name: ExportKeys
SELECT queue, key, task_id, eventkit_ms(reserved_until)
FROM eventkit_key
WHERE (queue COLLATE "C", key COLLATE "C") > (:queue, :key) AND reserved_until < 'infinity'
ORDER BY queue COLLATE "C", key COLLATE "C"
LIMIT :limit

-- name: ImportKeys
INSERT INTO eventkit_key (queue, key, task_id, reserved_until)
SELECT queue, key, task_id, eventkit_moment(reserved_until)
FROM unnest(
    :rows.0::text[], :rows.1::text[], :rows.2::bigint[], :rows.3::bigint[]
) AS r (queue, key, task_id, reserved_until)
ON CONFLICT DO NOTHING

-- name: ExportInboxes
SELECT consumer, message_id, eventkit_ms(seen_at)
FROM eventkit_inbox
WHERE (consumer COLLATE "C", message_id COLLATE "C") > (:consumer, :message_id)
ORDER BY consumer COLLATE "C", message_id COLLATE "C"
LIMIT :limit

-- name: ImportInboxes
INSERT INTO eventkit_inbox (consumer, message_id, seen_at)
SELECT consumer, message_id, eventkit_moment(seen_at)
FROM unnest(
    :rows.0::text[], :rows.1::text[], :rows.2::bigint[]
) AS r (consumer, message_id, seen_at)
ON CONFLICT DO NOTHING

-- name: ExportLocks
SELECT name, fence, token, holder, eventkit_ms(expires_at)
FROM eventkit_lock
WHERE name COLLATE "C" > :name
ORDER BY name COLLATE "C"
LIMIT :limit

-- name: ImportLocks
INSERT INTO eventkit_lock (name, fence, token, holder, expires_at)
SELECT name, fence, token, holder, eventkit_moment(expires_at)
FROM unnest(
    :rows.0::text[], :rows.1::bigint[], :rows.2::bigint[], :rows.3::text[], :rows.4::bigint[]
) AS r (name, fence, token, holder, expires_at)
ON CONFLICT DO NOTHING

-- name: ExportRates
SELECT name, per, amount, eventkit_ms(counted_at), eventkit_ms(until)
FROM eventkit_rate
WHERE (name COLLATE "C", per) > (:name, :per)
ORDER BY name COLLATE "C", per
LIMIT :limit

-- name: ImportRates
INSERT INTO eventkit_rate (name, per, amount, counted_at, until)
SELECT name, per, amount, eventkit_moment(counted_at), eventkit_moment(until)
FROM unnest(
    :rows.0::text[], :rows.1::bigint[], :rows.2::double precision[], :rows.3::bigint[], :rows.4::bigint[]
) AS r (name, per, amount, counted_at, until)
ON CONFLICT DO NOTHING

-- name: ExportResults
SELECT id, value::text, eventkit_ms(expires_at)
FROM eventkit_result
WHERE id COLLATE "C" > :id
ORDER BY id COLLATE "C"
LIMIT :limit

-- name: ImportResults
INSERT INTO eventkit_result (id, value, expires_at)
SELECT id, value::json, eventkit_moment(expires_at)
FROM unnest(
    :rows.0::text[], :rows.1::text[], :rows.2::bigint[]
) AS r (id, value, expires_at)
ON CONFLICT DO NOTHING

-- name: ExportSchedules
SELECT
    name, timing, zone, queue, payload::text, headers::text, priority, expires, max_attempts, catch_up,
    eventkit_ms(next_at), eventkit_ms(last_at), fired, skipped
FROM eventkit_schedule
WHERE name COLLATE "C" > :name
ORDER BY name COLLATE "C"
LIMIT :limit

-- name: ImportSchedules
INSERT INTO eventkit_schedule (
    name, timing, zone, queue, payload, headers, priority, expires, max_attempts, catch_up, next_at, last_at,
    fired, skipped
)
SELECT
    name, timing, zone, queue, payload::json, headers::json, priority, expires, max_attempts, catch_up,
    eventkit_moment(next_at), eventkit_moment(last_at), fired, skipped
FROM unnest(
    :rows.0::text[], :rows.1::text[], :rows.2::text[], :rows.3::text[], :rows.4::text[], :rows.5::text[],
    :rows.6::bigint[], :rows.7::bigint[], :rows.8::bigint[], :rows.9::text[], :rows.10::bigint[],
    :rows.11::bigint[], :rows.12::bigint[], :rows.13::bigint[]
) AS r (
    name, timing, zone, queue, payload, headers, priority, expires, max_attempts, catch_up, next_at, last_at,
    fired, skipped
)
ON CONFLICT DO NOTHING

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

-- name: ExportWritten
SELECT writer, batch, eventkit_ms(written_at), eventkit_ms(expires_at)
FROM eventkit_written
WHERE writer > :writer
ORDER BY writer
LIMIT :limit

-- name: ImportWritten
INSERT INTO eventkit_written (writer, batch, written_at, expires_at)
SELECT writer, batch, eventkit_moment(written_at), eventkit_moment(expires_at)
FROM unnest(
    :rows.0::text[], :rows.1::bigint[], :rows.2::bigint[], :rows.3::bigint[]
) AS r (writer, batch, written_at, expires_at)
ON CONFLICT DO NOTHING

-- name: ExportLakes
SELECT topic, location, format, epoch, covered, eventkit_ms(updated_at)
FROM eventkit_lake
WHERE topic > :topic
ORDER BY topic
LIMIT :limit

-- name: ImportLakes
INSERT INTO eventkit_lake (topic, location, format, epoch, covered, updated_at)
SELECT topic, location, format, epoch, covered, eventkit_moment(updated_at)
FROM unnest(
    :rows.0::text[], :rows.1::text[], :rows.2::text[], :rows.3::bigint[], :rows.4::bigint[], :rows.5::bigint[]
) AS r (topic, location, format, epoch, covered, updated_at)
ON CONFLICT DO NOTHING

-- name: ExportLakeFiles
SELECT topic, path, date, first, last, rows, bytes, oldest, newest, eventkit_ms(retired_at)
FROM eventkit_lake_file
WHERE (topic, path) > (:topic, :path)
ORDER BY topic, path
LIMIT :limit

-- name: ImportLakeFiles
INSERT INTO eventkit_lake_file (topic, path, date, first, last, rows, bytes, oldest, newest, retired_at)
SELECT topic, path, date, first, last, rows, bytes, oldest, newest, eventkit_moment(retired_at)
FROM unnest(
    :rows.0::text[], :rows.1::text[], :rows.2::text[], :rows.3::bigint[], :rows.4::bigint[], :rows.5::bigint[],
    :rows.6::bigint[], :rows.7::bigint[], :rows.8::bigint[], :rows.9::bigint[]
) AS r (topic, path, date, first, last, rows, bytes, oldest, newest, retired_at)
ON CONFLICT DO NOTHING

-- name: ExportPipelines
SELECT name, source, sink, state, batch, rows, lag, error, eventkit_ms(started_at), eventkit_ms(updated_at)
FROM eventkit_pipeline
WHERE name > :name
ORDER BY name
LIMIT :limit

-- name: ImportPipelines
INSERT INTO eventkit_pipeline (name, source, sink, state, batch, rows, lag, error, started_at, updated_at)
SELECT name, source, sink, state, batch, rows, lag, error, eventkit_moment(started_at), eventkit_moment(updated_at)
FROM unnest(
    :rows.0::text[], :rows.1::text[], :rows.2::text[], :rows.3::text[], :rows.4::bigint[], :rows.5::bigint[],
    :rows.6::bigint[], :rows.7::text[], :rows.8::bigint[], :rows.9::bigint[]
) AS r (name, source, sink, state, batch, rows, lag, error, started_at, updated_at)
ON CONFLICT DO NOTHING

-- name: ExportRollups
SELECT subject, name, hour, measure, amount
FROM eventkit_rollup
WHERE (subject, name, hour, measure) > (:subject, :name, :hour, :measure)
ORDER BY subject, name, hour, measure
LIMIT :limit

-- name: ImportRollups
INSERT INTO eventkit_rollup (subject, name, hour, measure, amount)
SELECT subject, name, hour, measure, amount
FROM unnest(
    :rows.0::text[], :rows.1::text[], :rows.2::bigint[], :rows.3::text[], :rows.4::bigint[]
) AS r (subject, name, hour, measure, amount)
ON CONFLICT DO NOTHING

-- name: ExportApiKeys
SELECT
    id, name, hash, scopes, rate, burst, quota, eventkit_ms(created_at), eventkit_ms(expires_at),
    eventkit_ms(revoked_at), former, eventkit_ms(former_until)
FROM eventkit_api_key
WHERE id > :id
ORDER BY id
LIMIT :limit

-- name: ImportApiKeys
INSERT INTO eventkit_api_key
    (id, name, hash, scopes, rate, burst, quota, created_at, expires_at, revoked_at, former, former_until)
SELECT
    id, name, hash, scopes, rate, burst, quota, eventkit_moment(created_at), eventkit_moment(expires_at),
    eventkit_moment(revoked_at), former, eventkit_moment(former_until)
FROM unnest(
    :rows.0::text[], :rows.1::text[], :rows.2::text[], :rows.3::text[], :rows.4::float8[], :rows.5::float8[],
    :rows.6::bigint[], :rows.7::bigint[], :rows.8::bigint[], :rows.9::bigint[], :rows.10::text[], :rows.11::bigint[]
) AS r (id, name, hash, scopes, rate, burst, quota, created_at, expires_at, revoked_at, former, former_until)
ON CONFLICT DO NOTHING

-- name: ReadIncomplete
SELECT incomplete
FROM eventkit_identity

-- name: MarkIncomplete
UPDATE eventkit_identity
SET incomplete = :what

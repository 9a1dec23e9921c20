-- Moving house: the rows of each table in the order of their keys, which is that of bytes.

-- name: ExportTopics
SELECT name, pruned_to, retain, max_keep, keep_unconsumed
FROM eventkit_topic
WHERE name > :name
ORDER BY name
LIMIT :limit

-- name: ImportTopics
INSERT INTO eventkit_topic (name, pruned_to, retain, max_keep, keep_unconsumed)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4
FROM json_each(:rows)
WHERE true
ON CONFLICT DO NOTHING

-- name: ExportChannels
SELECT name, retain, max_keep
FROM eventkit_channel
WHERE name > :name
ORDER BY name
LIMIT :limit

-- name: ImportChannels
INSERT INTO eventkit_channel (name, retain, max_keep)
SELECT value ->> 0, value ->> 1, value ->> 2
FROM json_each(:rows)
WHERE true
ON CONFLICT DO NOTHING

-- name: ExportRecipients
SELECT name, retain
FROM eventkit_recipient
WHERE name > :name
ORDER BY name
LIMIT :limit

-- name: ImportRecipients
INSERT INTO eventkit_recipient (name, retain)
SELECT value ->> 0, value ->> 1
FROM json_each(:rows)
WHERE true
ON CONFLICT DO NOTHING

-- name: ExportQueues
SELECT
    name, paused, max_attempts, lease, retry, max_size, rate, burst, max_running, keep_done, keep_dead, key_ttl,
    dead_letter_to, history, tokens, refilled_at
FROM eventkit_queue
WHERE name > :name
ORDER BY name
LIMIT :limit

-- name: ImportQueues
INSERT INTO eventkit_queue (
    name, paused, max_attempts, lease, retry, max_size, rate, burst, max_running, keep_done, keep_dead, key_ttl,
    dead_letter_to, history, tokens, refilled_at
)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
    value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13, value ->> 14, value ->> 15
FROM json_each(:rows)
WHERE true
ON CONFLICT DO NOTHING

-- name: ExportEvents
SELECT id, topic, key, payload, headers, dedup, created_at
FROM eventkit_event
WHERE id > :id
ORDER BY id
LIMIT :limit

-- name: ImportEvents
INSERT INTO eventkit_event (id, topic, key, payload, headers, dedup, created_at)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6
FROM json_each(:rows)
WHERE true
ON CONFLICT DO NOTHING

-- name: ExportNotifications
SELECT id, channel, payload, headers, created_at
FROM eventkit_notification
WHERE id > :id
ORDER BY id
LIMIT :limit

-- name: ImportNotifications
INSERT INTO eventkit_notification (id, channel, payload, headers, created_at)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4
FROM json_each(:rows)
WHERE true
ON CONFLICT DO NOTHING

-- name: ExportConsumers
SELECT topic, name, position, updated_at
FROM eventkit_consumer
WHERE (topic, name) > (:topic, :name)
ORDER BY topic, name
LIMIT :limit

-- name: ImportConsumers
INSERT INTO eventkit_consumer (topic, name, position, updated_at)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3
FROM json_each(:rows)
WHERE true
ON CONFLICT DO NOTHING

-- name: ExportTasks
SELECT
    id, queue, state, priority, run_at, wake_at, expires_at, attempt, max_attempts, token, key, lane, payload,
    headers, enqueued_at, worker, claimed_at, finished_at, reason, error, result, lapsed
FROM eventkit_task
WHERE id > :id
ORDER BY id
LIMIT :limit

-- name: ImportTasks
INSERT INTO eventkit_task (
    id, queue, state, priority, run_at, wake_at, expires_at, attempt, max_attempts, token, key, lane, payload,
    headers, enqueued_at, worker, claimed_at, finished_at, reason, error, result, lapsed
)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
    value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13, value ->> 14,
    value ->> 15, value ->> 16, value ->> 17, value ->> 18, value ->> 19, value ->> 20, value ->> 21
FROM json_each(:rows)
WHERE true
ON CONFLICT DO NOTHING

-- What a task holds as long as it is there goes with the task.
-- name: ExportKeys
SELECT queue, key, task_id, reserved_until
FROM eventkit_key AS k
WHERE
    (queue, key) > (:queue, :key)
    AND NOT EXISTS (SELECT 1 FROM eventkit_task AS t WHERE t.queue = k.queue AND t.key = k.key AND t.state <> 'done')
ORDER BY queue, key
LIMIT :limit

-- name: ImportKeys
INSERT INTO eventkit_key (queue, key, task_id, reserved_until)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3
FROM json_each(:rows)
WHERE true
ON CONFLICT DO NOTHING

-- name: ExportInboxes
SELECT consumer, message_id, seen_at
FROM eventkit_inbox
WHERE (consumer, message_id) > (:consumer, :message_id)
ORDER BY consumer, message_id
LIMIT :limit

-- name: ImportInboxes
INSERT INTO eventkit_inbox (consumer, message_id, seen_at)
SELECT value ->> 0, value ->> 1, value ->> 2
FROM json_each(:rows)
WHERE true
ON CONFLICT DO NOTHING

-- name: ExportLocks
SELECT name, fence, token, holder, expires_at
FROM eventkit_lock
WHERE name > :name
ORDER BY name
LIMIT :limit

-- name: ImportLocks
INSERT INTO eventkit_lock (name, fence, token, holder, expires_at)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4
FROM json_each(:rows)
WHERE true
ON CONFLICT DO NOTHING

-- name: ExportRates
SELECT name, per, amount, counted_at, until
FROM eventkit_rate
WHERE (name, per) > (:name, :per)
ORDER BY name, per
LIMIT :limit

-- name: ImportRates
INSERT INTO eventkit_rate (name, per, amount, counted_at, until)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4
FROM json_each(:rows)
WHERE true
ON CONFLICT DO NOTHING

-- name: ExportResults
SELECT id, value, expires_at
FROM eventkit_result
WHERE id > :id
ORDER BY id
LIMIT :limit

-- name: ImportResults
INSERT INTO eventkit_result (id, value, expires_at)
SELECT value ->> 0, value ->> 1, value ->> 2
FROM json_each(:rows)
WHERE true
ON CONFLICT DO NOTHING

-- name: ExportSchedules
SELECT
    name, timing, zone, queue, payload, headers, priority, expires, max_attempts, catch_up, next_at, last_at,
    fired, skipped
FROM eventkit_schedule
WHERE name > :name
ORDER BY name
LIMIT :limit

-- name: ImportSchedules
INSERT INTO eventkit_schedule (
    name, timing, zone, queue, payload, headers, priority, expires, max_attempts, catch_up, next_at, last_at,
    fired, skipped
)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
    value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13
FROM json_each(:rows)
WHERE true
ON CONFLICT DO NOTHING

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

-- name: ExportWritten
SELECT writer, batch, written_at, expires_at
FROM eventkit_written
WHERE writer > :writer
ORDER BY writer
LIMIT :limit

-- name: ImportWritten
INSERT INTO eventkit_written (writer, batch, written_at, expires_at)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3
FROM json_each(:rows)
WHERE true
ON CONFLICT DO NOTHING

-- name: ExportLakes
SELECT topic, location, format, epoch, covered, updated_at
FROM eventkit_lake
WHERE topic > :topic
ORDER BY topic
LIMIT :limit

-- name: ImportLakes
INSERT INTO eventkit_lake (topic, location, format, epoch, covered, updated_at)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5
FROM json_each(:rows)
WHERE true
ON CONFLICT DO NOTHING

-- name: ExportLakeFiles
SELECT topic, path, date, first, last, rows, bytes, oldest, newest, retired_at
FROM eventkit_lake_file
WHERE (topic, path) > (:topic, :path)
ORDER BY topic, path
LIMIT :limit

-- name: ImportLakeFiles
INSERT INTO eventkit_lake_file (topic, path, date, first, last, rows, bytes, oldest, newest, retired_at)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8, value ->> 9
FROM json_each(:rows)
WHERE true
ON CONFLICT DO NOTHING

-- name: ExportPipelines
SELECT name, source, sink, state, batch, rows, lag, error, started_at, updated_at
FROM eventkit_pipeline
WHERE name > :name
ORDER BY name
LIMIT :limit

-- name: ImportPipelines
INSERT INTO eventkit_pipeline (name, source, sink, state, batch, rows, lag, error, started_at, updated_at)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8, value ->> 9
FROM json_each(:rows)
WHERE true
ON CONFLICT DO NOTHING

-- name: ExportRollups
SELECT subject, name, hour, measure, amount
FROM eventkit_rollup
WHERE (subject, name, hour, measure) > (:subject, :name, :hour, :measure)
ORDER BY subject, name, hour, measure
LIMIT :limit

-- name: ImportRollups
INSERT INTO eventkit_rollup (subject, name, hour, measure, amount)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4
FROM json_each(:rows)
WHERE true
ON CONFLICT DO NOTHING

-- name: ExportApiKeys
SELECT
    id, name, hash, scopes, rate, burst, quota, created_at, expires_at, revoked_at, former, former_until
FROM eventkit_api_key
WHERE id > :id
ORDER BY id
LIMIT :limit

-- name: ImportApiKeys
INSERT INTO eventkit_api_key
    (id, name, hash, scopes, rate, burst, quota, created_at, expires_at, revoked_at, former, former_until)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8, value ->> 9, value ->> 10, value ->> 11
FROM json_each(:rows)
WHERE true
ON CONFLICT DO NOTHING

-- name: ReadIncomplete
SELECT incomplete
FROM eventkit_identity

-- name: MarkIncomplete
UPDATE eventkit_identity
SET incomplete = :what

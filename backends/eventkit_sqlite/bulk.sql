-- The calls that a session has collected.  Each row names its topic, queue or channel.

-- name: PublishAll
INSERT INTO eventkit_event (topic, payload, key, headers, dedup)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4
FROM json_each(:events)
WHERE true
ON CONFLICT (topic, dedup) WHERE dedup IS NOT NULL DO NOTHING

-- name: EnqueueAll
:insert_tasks
FROM (
    SELECT
        value ->> 0 AS queue, value ->> 1 AS payload, value ->> 2 AS headers, value ->> 3 AS priority,
        value ->> 4 AS max_attempts, value ->> 5 AS key,
        coalesce(now + (value ->> 6), value ->> 7, now) AS due,
        coalesce(now + (value ->> 8), value ->> 9) AS expires,
        value ->> 10 AS group_key,
        now
    FROM (SELECT :now AS now), json_each(:tasks)
)
WHERE NOT EXISTS (
    SELECT 1 FROM eventkit_queue
    WHERE (:bounded OR strict_keys OR ordered) AND name IN (SELECT value ->> 0 FROM json_each(:tasks))
)
ON CONFLICT (queue, key) WHERE key IS NOT NULL AND state <> 'done' DO NOTHING
RETURNING 1

-- name: NotifyAll
INSERT INTO eventkit_notification (channel, payload, headers)
SELECT value ->> 0, value ->> 1, value ->> 2
FROM json_each(:notifications)

-- Rows staged to be written all at once.  A chunk is one row with the JSON of many.

-- name: StageEvents
INSERT INTO eventkit_staged_rows (writer, batch, attempt, part, position, name, rows)
VALUES (:writer, :batch, :attempt, :part, :position, :topic, :events)

-- name: StageTasks
INSERT INTO eventkit_staged_rows (writer, batch, attempt, part, position, name, rows)
VALUES (:writer, :batch, :attempt, :part, :position, :queue, :tasks)

-- step: LockStaged
SELECT 1
FROM eventkit_staged_rows
WHERE writer = :writer AND batch = :batch AND attempt IN (SELECT value FROM json_each(:attempts))

-- The order is that of the index, which avoids a sort; within a chunk it is that of the JSON.
-- step: PublishStaged
INSERT INTO eventkit_event (topic, payload, key, headers)
SELECT s.name, r.value ->> 0, r.value ->> 1, r.value ->> 2
FROM eventkit_staged_rows AS s CROSS JOIN json_each(s.rows) AS r
WHERE s.writer = :writer AND s.batch = :batch AND s.attempt IN (SELECT value FROM json_each(:attempts))
ORDER BY s.part, s.position

-- step: PublishStagedOnce
INSERT INTO eventkit_event (topic, payload, key, headers, dedup)
SELECT s.name, r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3
FROM eventkit_staged_rows AS s CROSS JOIN json_each(s.rows) AS r
WHERE s.writer = :writer AND s.batch = :batch AND s.attempt IN (SELECT value FROM json_each(:attempts))
ORDER BY s.part, s.position
ON CONFLICT (topic, dedup) WHERE dedup IS NOT NULL DO NOTHING

-- step: EnqueueStaged
:insert_tasks
FROM (
    SELECT
        :queue AS queue, r.value ->> 0 AS payload, r.value ->> 1 AS headers, r.value ->> 2 AS priority,
        r.value ->> 3 AS max_attempts, r.value ->> 4 AS key,
        coalesce(now + (r.value ->> 5), r.value ->> 6, now) AS due,
        coalesce(now + (r.value ->> 7), r.value ->> 8) AS expires,
        r.value ->> 9 AS group_key,
        now, s.part, s.position
    FROM eventkit_staged_rows AS s CROSS JOIN json_each(s.rows) AS r CROSS JOIN (SELECT :now AS now) AS clock
    WHERE s.writer = :writer AND s.batch = :batch AND s.attempt IN (SELECT value FROM json_each(:attempts))
)
WHERE true
ORDER BY part, position
ON CONFLICT (queue, key) WHERE key IS NOT NULL AND state <> 'done' DO NOTHING

-- A batch that was not committed within a day is abandoned.
-- step: DropLeftStaged
DELETE FROM eventkit_staged_rows
WHERE id IN (SELECT id FROM eventkit_staged_rows WHERE staged_at <= :now - 86400000 LIMIT :limit)
RETURNING 1

-- step: DropWritten
DELETE FROM eventkit_written_batch
WHERE writer IN (SELECT writer FROM eventkit_written_batch WHERE expires_at <= :now LIMIT :limit)
RETURNING 1

-- Archives.  Events pruned before a topic's first archive count as archived.

-- name: ListArchives
SELECT
    l.topic, l.location, l.format, l.covered,
    count(f.path), coalesce(sum(f.rows), 0), coalesce(sum(f.bytes), 0), l.updated_at
FROM eventkit_lake AS l LEFT JOIN eventkit_lake_file AS f ON f.topic = l.topic AND f.retired_at IS NULL
GROUP BY l.topic
ORDER BY l.topic

-- step: AddFiles
INSERT INTO eventkit_lake_file (topic, path, date, first, last, rows, bytes, oldest, newest)
SELECT
    :topic, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7
FROM json_each(:files)

-- step: RetireFiles
UPDATE eventkit_lake_file
SET retired_at = :now
WHERE topic = :topic AND path IN (SELECT value FROM json_each(:paths)) AND retired_at IS NULL
RETURNING path

-- name: ForgetFiles
DELETE FROM eventkit_lake_file
WHERE topic = :topic AND path IN (SELECT value FROM json_each(:paths)) AND retired_at IS NOT NULL

-- Hourly sums.

-- step: AddAmounts
INSERT INTO eventkit_rollup (subject, name, hour, measure, amount)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4
FROM json_each(:sums)
WHERE true
ON CONFLICT (subject, name, hour, measure) DO UPDATE
SET amount = eventkit_rollup.amount + excluded.amount

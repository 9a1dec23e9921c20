-- Rows staged to be written all at once.  A chunk is one row with the JSON of many.

-- name: StageEvents
INSERT INTO eventkit_staged_rows (writer, batch, attempt, part, position, name, rows)
VALUES (:writer, :batch, :attempt, :part, :position, :topic, :events)

-- name: StageTasks
INSERT INTO eventkit_staged_rows (writer, batch, attempt, part, position, name, rows)
VALUES (:writer, :batch, :attempt, :part, :position, :queue, :tasks)

-- name: DropStaged
DELETE FROM eventkit_staged_rows
WHERE writer = :writer AND batch <= :batch

-- name: MarkWritten
INSERT INTO eventkit_written_batch (writer, batch, expires_at)
VALUES (:writer, :batch, :now + :keep)
ON CONFLICT (writer) DO UPDATE
SET batch = excluded.batch, written_at = :now, expires_at = excluded.expires_at
WHERE excluded.batch > eventkit_written_batch.batch
RETURNING batch

-- name: MoveMark
INSERT INTO eventkit_written_batch (writer, batch)
SELECT :writer, :to
WHERE :after = 0 OR EXISTS (SELECT 1 FROM eventkit_written_batch WHERE writer = :writer)
ON CONFLICT (writer) DO UPDATE
SET batch = excluded.batch, written_at = :now
WHERE eventkit_written_batch.batch = :after
RETURNING batch

-- name: ReadMark
SELECT batch
FROM eventkit_written_batch
WHERE writer = :writer

-- name: LockStaged
SELECT 1
FROM eventkit_staged_rows
WHERE writer = :writer AND batch = :batch AND attempt IN (SELECT value FROM json_each(:attempts))

-- The order is that of the index, which avoids a sort; within a chunk it is that of the JSON.
-- name: PublishStaged
INSERT INTO eventkit_event (topic, payload, key, headers)
SELECT s.name, r.value ->> 0, r.value ->> 1, r.value ->> 2
FROM eventkit_staged_rows AS s CROSS JOIN json_each(s.rows) AS r
WHERE s.writer = :writer AND s.batch = :batch AND s.attempt IN (SELECT value FROM json_each(:attempts))
ORDER BY s.part, s.position

-- name: PublishStagedOnce
INSERT INTO eventkit_event (topic, payload, key, headers, dedup)
SELECT s.name, r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3
FROM eventkit_staged_rows AS s CROSS JOIN json_each(s.rows) AS r
WHERE s.writer = :writer AND s.batch = :batch AND s.attempt IN (SELECT value FROM json_each(:attempts))
ORDER BY s.part, s.position
ON CONFLICT (topic, dedup) WHERE dedup IS NOT NULL DO NOTHING

-- name: EnqueueStaged
INSERT INTO eventkit_task (
    queue, payload, headers, priority, max_attempts, key, state, run_at, wake_at, expires_at, enqueued_at
)
SELECT
    :queue, payload, headers, priority, max_attempts, key,
    CASE WHEN due > now THEN 'scheduled' ELSE 'ready' END,
    due,
    CASE WHEN due > now THEN min(due, coalesce(expires, due)) ELSE expires END,
    expires,
    now
FROM (
    SELECT
        r.value ->> 0 AS payload, r.value ->> 1 AS headers, r.value ->> 2 AS priority, r.value ->> 3 AS max_attempts,
        r.value ->> 4 AS key,
        coalesce(now + (r.value ->> 5), r.value ->> 6, now) AS due,
        coalesce(now + (r.value ->> 7), r.value ->> 8) AS expires,
        now, s.part, s.position
    FROM eventkit_staged_rows AS s CROSS JOIN json_each(s.rows) AS r CROSS JOIN (SELECT :now AS now) AS clock
    WHERE s.writer = :writer AND s.batch = :batch AND s.attempt IN (SELECT value FROM json_each(:attempts))
)
WHERE true
ORDER BY part, position
ON CONFLICT (queue, key) WHERE key IS NOT NULL AND state <> 'done' DO NOTHING

-- A batch that was not committed within a day is abandoned.
-- name: DropLeftStaged
DELETE FROM eventkit_staged_rows
WHERE id IN (SELECT id FROM eventkit_staged_rows WHERE staged_at <= :now - 86400000 LIMIT :limit)
RETURNING 1

-- name: DropWritten
DELETE FROM eventkit_written_batch
WHERE writer IN (SELECT writer FROM eventkit_written_batch WHERE expires_at <= :now LIMIT :limit)
RETURNING 1

-- Rows staged to be written all at once.  A chunk is one row with an array for each column of many.
-- Texts are joined by characters that occur in no JSON and no key.

-- name: StageEvents
INSERT INTO eventkit_staged_rows (writer, batch, attempt, part, position, name, payloads, keys, headers, dedups)
VALUES (
    :writer, :batch, :attempt, :part, :position, :topic,
    string_to_array(:events.0, E'\x1f', E'\x1e')::json[],
    string_to_array(:events.1, E'\x1f', E'\x1e'),
    string_to_array(:events.2, E'\x1f', E'\x1e')::json[],
    string_to_array(:events.3, E'\x1f', E'\x1e')
)

-- name: StageTasks
INSERT INTO eventkit_staged_rows (
    writer, batch, attempt, part, position, name, payloads, headers, priorities, max_attempts, keys,
    delays, run_ats, expires_in, expires_at
)
VALUES (
    :writer, :batch, :attempt, :part, :position, :queue,
    string_to_array(:tasks.0, E'\x1f', E'\x1e')::json[],
    string_to_array(:tasks.1, E'\x1f', E'\x1e')::json[],
    :tasks.2::integer[],
    :tasks.3::bigint[],
    string_to_array(:tasks.4, E'\x1f', E'\x1e'),
    :tasks.5::bigint[],
    :tasks.6::bigint[],
    :tasks.7::bigint[],
    :tasks.8::bigint[]
)

-- name: DropStaged
DELETE FROM eventkit_staged_rows
WHERE writer = :writer AND batch <= :batch

-- name: MarkWritten
INSERT INTO eventkit_written_batch AS w (writer, batch, expires_at)
VALUES (:writer, :batch, :now + :keep::bigint * interval '1 ms')
ON CONFLICT (writer) DO UPDATE
SET batch = excluded.batch, written_at = :now, expires_at = excluded.expires_at
WHERE excluded.batch > w.batch
RETURNING batch

-- name: MoveMark
INSERT INTO eventkit_written_batch AS w (writer, batch)
SELECT :writer::text, :to::bigint
WHERE :after::bigint = 0 OR EXISTS (SELECT 1 FROM eventkit_written_batch WHERE writer = :writer)
ON CONFLICT (writer) DO UPDATE
SET batch = excluded.batch, written_at = :now
WHERE w.batch = :after::bigint
RETURNING batch

-- name: ReadMark
SELECT batch
FROM eventkit_written_batch
WHERE writer = :writer

-- Locked, so that housekeeping does not delete them meanwhile.
-- name: LockStaged
SELECT 1
FROM eventkit_staged_rows
WHERE writer = :writer AND batch = :batch AND attempt = ANY (:attempts::bigint[])
FOR UPDATE

-- The marks are set before the first offset is drawn: a row needs both sides of the join.
-- name: PublishStaged
WITH woken AS MATERIALIZED (
    SELECT count(eventkit_wake('event', name))
    FROM (
        SELECT DISTINCT name
        FROM eventkit_staged_rows
        WHERE writer = :writer AND batch = :batch AND attempt = ANY (:attempts::bigint[])
    ) AS topic
)
INSERT INTO eventkit_event (id, topic, payload, key, headers)
SELECT nextval('eventkit_event_id_seq'), s.name, r.payload, r.key, r.headers
FROM
    woken,
    (
        SELECT name, payloads, keys, headers
        FROM eventkit_staged_rows
        WHERE writer = :writer AND batch = :batch AND attempt = ANY (:attempts::bigint[])
        ORDER BY part, position
    ) AS s,
    unnest(s.payloads, s.keys, s.headers) AS r (payload, key, headers)

-- name: PublishStagedOnce
WITH woken AS MATERIALIZED (
    SELECT count(eventkit_wake('event', name))
    FROM (
        SELECT DISTINCT name
        FROM eventkit_staged_rows
        WHERE writer = :writer AND batch = :batch AND attempt = ANY (:attempts::bigint[])
    ) AS topic
)
INSERT INTO eventkit_event (id, topic, payload, key, headers, dedup)
SELECT nextval('eventkit_event_id_seq'), s.name, r.payload, r.key, r.headers, r.dedup
FROM
    woken,
    (
        SELECT name, payloads, keys, headers, dedups
        FROM eventkit_staged_rows
        WHERE writer = :writer AND batch = :batch AND attempt = ANY (:attempts::bigint[])
        ORDER BY part, position
    ) AS s,
    unnest(s.payloads, s.keys, s.headers, s.dedups) AS r (payload, key, headers, dedup)
ON CONFLICT (topic, dedup) WHERE dedup IS NOT NULL DO NOTHING

-- name: EnqueueStaged
WITH
woken AS MATERIALIZED (SELECT eventkit_wake('task', :queue)),
added AS (
    INSERT INTO eventkit_task (
        queue, payload, headers, priority, max_attempts, key, state, run_at, wake_at, expires_at, enqueued_at
    )
    SELECT
        :queue, payload, headers, priority, max_attempts, key,
        CASE WHEN due > now THEN 'scheduled' ELSE 'ready' END,
        due,
        eventkit_wakes_at(due, expires, now),
        expires,
        now
    FROM (
        SELECT
            r.payload, r.headers, r.priority, r.max_attempts, r.key,
            coalesce(now + r.delay * interval '1 ms', eventkit_moment(r.run_at), now) AS due,
            coalesce(now + r.expires_in * interval '1 ms', eventkit_moment(r.expires_at)) AS expires,
            now
        FROM
            woken,
            (SELECT :now AS now) AS clock,
            (
                SELECT
                    payloads, headers, priorities, max_attempts, keys, delays, run_ats, expires_in, expires_at
                FROM eventkit_staged_rows
                WHERE writer = :writer AND batch = :batch AND attempt = ANY (:attempts::bigint[])
                ORDER BY part, position
            ) AS s,
            unnest(
                s.payloads, s.headers, s.priorities, s.max_attempts, s.keys,
                s.delays, s.run_ats, s.expires_in, s.expires_at
            ) AS r (payload, headers, priority, max_attempts, key, delay, run_at, expires_in, expires_at)
    ) AS task
    RETURNING priority, state, run_at
)
INSERT INTO eventkit_low_water (queue, priority, run_at)
SELECT :queue, priority, CASE WHEN min(run_at) < :now THEN min(run_at) ELSE '-infinity' END
FROM added
WHERE state = 'ready'
GROUP BY priority
HAVING
    min(run_at) < :now
    OR NOT EXISTS (SELECT FROM eventkit_low_water AS l WHERE l.queue = :queue AND l.priority = added.priority)

-- A batch that was not committed within a day is abandoned.
-- name: DropLeftStaged
DELETE FROM eventkit_staged_rows
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM eventkit_staged_rows WHERE staged_at <= :now - interval '1 day' LIMIT :limit FOR UPDATE SKIP LOCKED
))
RETURNING 1

-- name: DropWritten
DELETE FROM eventkit_written_batch
WHERE writer = ANY (ARRAY(
    SELECT writer FROM eventkit_written_batch WHERE expires_at <= :now LIMIT :limit FOR UPDATE SKIP LOCKED
))
RETURNING 1

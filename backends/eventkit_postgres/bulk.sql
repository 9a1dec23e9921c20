-- The calls that a session has collected.  Each row names its topic, queue or channel.

-- All marks are set before the first offset is drawn: they are counted, and a row needs both sides of the join.
-- name: PublishAll
WITH woken AS MATERIALIZED (
    SELECT count(eventkit_wake('event', topic))
    FROM (SELECT DISTINCT unnest(:events.0::text[]) AS topic) AS t
)
INSERT INTO eventkit_event (id, topic, payload, key, headers, dedup)
SELECT nextval('eventkit_event_id_seq'), topic, payload::json, key, headers::json, dedup
FROM
    woken,
    unnest(
        :events.0::text[], :events.1::text[], :events.2::text[], :events.3::text[], :events.4::text[]
    ) AS e (topic, payload, key, headers, dedup)
ON CONFLICT (topic, dedup) WHERE dedup IS NOT NULL DO NOTHING

-- name: EnqueueAll
WITH
:woken_queues,
added AS (
    :insert_tasks
    FROM (
        SELECT
            queue, payload::json, headers::json, priority, max_attempts, key, group_key,
            coalesce(now + delay * interval '1 ms', eventkit_moment(run_at), now) AS due,
            coalesce(now + expires_in * interval '1 ms', eventkit_moment(expires_at)) AS expires,
            now
        FROM
            woken,
            (SELECT :now AS now) AS clock,
            unnest(
                :tasks.0::text[], :tasks.1::text[], :tasks.2::text[], :tasks.3::integer[], :tasks.4::bigint[],
                :tasks.5::text[], :tasks.6::bigint[], :tasks.7::bigint[], :tasks.8::bigint[], :tasks.9::bigint[],
                :tasks.10::text[]
            ) AS t (queue, payload, headers, priority, max_attempts, key, delay, run_at, expires_in, expires_at, group_key)
    ) AS task
    WHERE NOT EXISTS (
        SELECT FROM eventkit_queue
        WHERE (:bounded OR strict_keys OR ordered) AND name = ANY (:tasks.0::text[])
    )
    RETURNING queue, priority, state, run_at
),
opened AS (
    :lower_marks
)
SELECT 1
FROM added
LIMIT 1

-- name: NotifyAll
WITH woken AS MATERIALIZED (
    SELECT count(eventkit_wake('notification', channel))
    FROM (SELECT DISTINCT unnest(:notifications.0::text[]) AS channel) AS t
)
INSERT INTO eventkit_notification (id, channel, payload, headers)
SELECT nextval('eventkit_notification_id_seq'), channel, payload::json, headers::json
FROM
    woken,
    unnest(:notifications.0::text[], :notifications.1::text[], :notifications.2::text[]) AS n (channel, payload, headers)

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
    delays, run_ats, expires_in, expires_at, group_keys
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
    :tasks.8::bigint[],
    string_to_array(:tasks.9, E'\x1f', E'\x1e')
)

-- Locked, so that housekeeping does not delete them meanwhile.
-- step: LockStaged
SELECT 1
FROM eventkit_staged_rows
WHERE writer = :writer AND batch = :batch AND attempt = ANY (:attempts::bigint[])
FOR UPDATE

-- The marks are set before the first offset is drawn: a row needs both sides of the join.
-- part: woken
WITH woken AS MATERIALIZED (
    SELECT count(eventkit_wake('event', name))
    FROM (
        SELECT DISTINCT name
        FROM eventkit_staged_rows
        WHERE writer = :writer AND batch = :batch AND attempt = ANY (:attempts::bigint[])
    ) AS topic
)

-- step: PublishStaged
:woken
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

-- step: PublishStagedOnce
:woken
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

-- step: EnqueueStaged
WITH
woken AS MATERIALIZED (SELECT eventkit_wake('task', :queue)),
added AS (
    :insert_tasks
    FROM (
        SELECT
            :queue AS queue, r.payload, r.headers, r.priority, r.max_attempts, r.key, r.group_key,
            coalesce(now + r.delay * interval '1 ms', eventkit_moment(r.run_at), now) AS due,
            coalesce(now + r.expires_in * interval '1 ms', eventkit_moment(r.expires_at)) AS expires,
            now
        FROM
            woken,
            (SELECT :now AS now) AS clock,
            (
                SELECT
                    payloads, headers, priorities, max_attempts, keys, delays, run_ats, expires_in, expires_at,
                    group_keys
                FROM eventkit_staged_rows
                WHERE writer = :writer AND batch = :batch AND attempt = ANY (:attempts::bigint[])
                ORDER BY part, position
            ) AS s,
            unnest(
                s.payloads, s.headers, s.priorities, s.max_attempts, s.keys,
                s.delays, s.run_ats, s.expires_in, s.expires_at, s.group_keys
            ) AS r (payload, headers, priority, max_attempts, key, delay, run_at, expires_in, expires_at, group_key)
    ) AS task
    RETURNING queue, priority, state, run_at
)
:lower_marks

-- A batch that was not committed within a day is abandoned.
-- step: DropLeftStaged
DELETE FROM eventkit_staged_rows
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM eventkit_staged_rows WHERE staged_at <= :now - interval '1 day' LIMIT :limit FOR UPDATE SKIP LOCKED
))
RETURNING 1

-- step: DropWritten
DELETE FROM eventkit_written_batch
WHERE writer = ANY (ARRAY(
    SELECT writer FROM eventkit_written_batch WHERE expires_at <= :now LIMIT :limit FOR UPDATE SKIP LOCKED
))
RETURNING 1

-- Archives.  Events pruned before a topic's first archive count as archived.

-- name: ListArchives
SELECT
    l.topic, l.location, l.format, l.covered,
    count(f.path), coalesce(sum(f.rows), 0)::bigint, coalesce(sum(f.bytes), 0)::bigint, eventkit_ms(l.updated_at)
FROM eventkit_lake AS l LEFT JOIN eventkit_lake_file AS f ON f.topic = l.topic AND f.retired_at IS NULL
GROUP BY l.topic
ORDER BY l.topic

-- step: AddFiles
INSERT INTO eventkit_lake_file (topic, path, date, first, last, rows, bytes, oldest, newest)
SELECT :topic, f.*
FROM unnest(
    :files.0::text[], :files.1::text[], :files.2::bigint[], :files.3::bigint[], :files.4::bigint[],
    :files.5::bigint[], :files.6::bigint[], :files.7::bigint[]
) AS f

-- step: RetireFiles
UPDATE eventkit_lake_file
SET retired_at = :now
WHERE topic = :topic AND path = ANY (:paths::text[]) AND retired_at IS NULL
RETURNING path

-- name: ForgetFiles
DELETE FROM eventkit_lake_file
WHERE topic = :topic AND path = ANY (:paths::text[]) AND retired_at IS NOT NULL

-- Hourly sums.

-- step: AddAmounts
INSERT INTO eventkit_rollup AS r (subject, name, hour, measure, amount)
SELECT *
FROM unnest(:sums.0::text[], :sums.1::text[], :sums.2::bigint[], :sums.3::text[], :sums.4::bigint[])
ORDER BY 1, 2, 3, 4
ON CONFLICT (subject, name, hour, measure) DO UPDATE
SET amount = r.amount + excluded.amount

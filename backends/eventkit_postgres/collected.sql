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
woken AS MATERIALIZED (
    SELECT count(eventkit_wake('task', queue))
    FROM (SELECT DISTINCT unnest(:tasks.0::text[]) AS queue) AS t
),
added AS (
    INSERT INTO eventkit_task (
        queue, payload, headers, priority, max_attempts, key, state, run_at, wake_at, expires_at, enqueued_at
    )
    SELECT
        queue, payload, headers, priority, max_attempts, key,
        CASE WHEN due > now THEN 'scheduled' ELSE 'ready' END,
        due,
        eventkit_wakes_at(due, expires, now),
        expires,
        now
    FROM (
        SELECT
            queue, payload::json, headers::json, priority, max_attempts, key,
            coalesce(now + delay * interval '1 ms', eventkit_moment(run_at), now) AS due,
            coalesce(now + expires_in * interval '1 ms', eventkit_moment(expires_at)) AS expires,
            now
        FROM
            woken,
            (SELECT :now AS now) AS clock,
            unnest(
                :tasks.0::text[], :tasks.1::text[], :tasks.2::text[], :tasks.3::integer[], :tasks.4::bigint[],
                :tasks.5::text[], :tasks.6::bigint[], :tasks.7::bigint[], :tasks.8::bigint[], :tasks.9::bigint[]
            ) AS t (queue, payload, headers, priority, max_attempts, key, delay, run_at, expires_in, expires_at)
    ) AS task
    WHERE NOT EXISTS (
        SELECT FROM eventkit_queue
        WHERE max_size IS NOT NULL AND name = ANY (:tasks.0::text[])
    )
    RETURNING queue, priority, state, run_at
),
opened AS (
    INSERT INTO eventkit_low_water (queue, priority, run_at)
    SELECT queue, priority, CASE WHEN min(run_at) < :now THEN min(run_at) ELSE '-infinity' END
    FROM added
    WHERE state = 'ready'
    GROUP BY queue, priority
    HAVING
        min(run_at) < :now
        OR NOT EXISTS (SELECT FROM eventkit_low_water AS l WHERE l.queue = added.queue AND l.priority = added.priority)
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

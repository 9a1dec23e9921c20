-- The calls that a session has collected.  Each row names its topic, queue or channel.

-- name: PublishAll
INSERT INTO eventkit_event (topic, payload, key, headers, dedup)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4
FROM json_each(:events)
WHERE true
ON CONFLICT (topic, dedup) WHERE dedup IS NOT NULL DO NOTHING

-- name: EnqueueAll
INSERT INTO eventkit_task (
    queue, payload, headers, priority, max_attempts, key, state, run_at, wake_at, expires_at, enqueued_at
)
SELECT
    queue, payload, headers, priority, max_attempts, key,
    CASE WHEN due > now THEN 'scheduled' ELSE 'ready' END,
    due,
    CASE WHEN due > now THEN min(due, coalesce(expires, due)) ELSE expires END,
    expires,
    now
FROM (
    SELECT
        value ->> 0 AS queue, value ->> 1 AS payload, value ->> 2 AS headers, value ->> 3 AS priority,
        value ->> 4 AS max_attempts, value ->> 5 AS key,
        coalesce(now + (value ->> 6), value ->> 7, now) AS due,
        coalesce(now + (value ->> 8), value ->> 9) AS expires,
        now
    FROM (SELECT :now AS now), json_each(:tasks)
)
WHERE NOT EXISTS (
    SELECT 1 FROM eventkit_queue
    WHERE max_size IS NOT NULL AND name IN (SELECT value ->> 0 FROM json_each(:tasks))
)
ON CONFLICT (queue, key) WHERE key IS NOT NULL AND state <> 'done' DO NOTHING
RETURNING 1

-- name: NotifyAll
INSERT INTO eventkit_notification (channel, payload, headers)
SELECT value ->> 0, value ->> 1, value ->> 2
FROM json_each(:notifications)

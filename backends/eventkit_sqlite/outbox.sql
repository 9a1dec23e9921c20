-- Outboxes: queues whose tasks have the key of their message as group.

-- name: AddMessage
INSERT INTO eventkit_task (
    queue, payload, headers, priority, group_key, state, run_at, wake_at, expires_at, enqueued_at
)
SELECT
    :queue, :payload, :headers, :priority, :key,
    CASE WHEN due > now THEN 'scheduled' ELSE 'ready' END,
    due,
    CASE WHEN due > now THEN min(due, coalesce(expires, due)) ELSE expires END,
    expires,
    now
FROM (
    SELECT
        coalesce(now + :delay, :run_at, now) AS due,
        coalesce(now + :expires_in, :expires_at) AS expires,
        now
    FROM (SELECT :now AS now)
)

-- name: ReadOutbox
SELECT
    count(*) FILTER (WHERE state IN ('scheduled', 'ready')),
    count(*) FILTER (WHERE state = 'leased'),
    count(*) FILTER (WHERE state = 'dead'),
    :now - min(enqueued_at) FILTER (WHERE state <> 'dead')
FROM :messages

-- Message ids that consumers have seen.

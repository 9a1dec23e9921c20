-- Outboxes: queues whose tasks have the key of their message as group.

-- name: AddMessage
WITH
woken AS MATERIALIZED (SELECT eventkit_wake('task', :queue)),
added AS (
    INSERT INTO eventkit_task (
        queue, payload, headers, priority, group_key, state, run_at, wake_at, expires_at, enqueued_at
    )
    SELECT
        :queue, :payload::json, :headers::json, :priority::integer, :key::text,
        CASE WHEN due > now THEN 'scheduled' ELSE 'ready' END,
        due,
        eventkit_wakes_at(due, expires, now),
        expires,
        now
    FROM (
        SELECT
            coalesce(now + :delay::bigint * interval '1 ms', eventkit_moment(:run_at::bigint), now) AS due,
            coalesce(
                now + :expires_in::bigint * interval '1 ms', eventkit_moment(:expires_at::bigint)
            ) AS expires,
            now
        FROM woken, (SELECT :now AS now) AS clock
    ) AS message
    RETURNING queue, priority, state, run_at
)
:lower_marks

-- name: ReadOutbox
SELECT
    count(*) FILTER (WHERE state IN ('scheduled', 'ready')),
    count(*) FILTER (WHERE state = 'leased'),
    count(*) FILTER (WHERE state = 'dead'),
    eventkit_ms(:now) - eventkit_ms(min(enqueued_at) FILTER (WHERE state <> 'dead'))
FROM :messages

-- Message ids that consumers have seen.

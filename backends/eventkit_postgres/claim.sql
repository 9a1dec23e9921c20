-- Claiming tasks.  Claims skip rows that other transactions have locked, so none waits for another.

-- step: ReadGate
SELECT paused, lease, max_attempts, rate, burst, tokens, refilled_at, max_running, running, room, due, now
FROM eventkit_gate(:queue)

-- name: Promote
SELECT eventkit_promote(:queue, :limit)

-- name: Take
SELECT
    id, queue_name, payload, key, headers, priority, attempt, max_attempts, run_ms, enqueued_ms, expires_ms,
    lease_expires_ms, token, lease_ms, lapsed, group_key, turn
FROM eventkit_claimed(:queue, :worker, :limit, :lease, :token)

-- step: SpendTokens
SELECT eventkit_spend_tokens(:queue, :tokens, :refilled_at)

-- A task locked by another transaction makes a waiter neither poll at once nor sleep until a notification: that
-- transaction may release it without one.
-- name: TasksAhead
WITH mark AS MATERIALIZED (
    SELECT coalesce(min(wake_at), '-infinity') AS wake_at
    FROM eventkit_low_water
    WHERE queue = :queue AND raise_at > :now - interval '1 s' AND wake_at <= :now
)
SELECT
    coalesce(q.paused, false), coalesce(q.lease, 300000), coalesce(q.max_attempts, 3),
    q.rate, q.burst, q.tokens, eventkit_ms(q.refilled_at), q.max_running,
    CASE WHEN q.max_running IS NOT NULL THEN (
        SELECT count(*) FROM eventkit_task WHERE queue = :queue AND state = 'leased' AND wake_at > :now
    ) END,
    eventkit_cluster_room(:queue, :now),
    coalesce(due, false),
    eventkit_ms(now),
    coalesce(free, false),
    eventkit_ms(least(CASE WHEN wake_at <= now THEN later ELSE wake_at END, CASE WHEN NOT free THEN later END)),
    (
        SELECT eventkit_ms(min(
            (SELECT min(t.wake_at) FROM eventkit_task AS t WHERE t.queue = o.queue AND t.state = 'leased' AND t.wake_at > :now)
        ))
        FROM eventkit_cluster_limit AS l JOIN eventkit_cluster_limit AS o ON o.name = l.name
        WHERE l.queue = :queue
    )
FROM
    (
        SELECT :now AS now, min(wake_at) AS wake_at, :now + interval '20 ms' AS later
        FROM (
            SELECT min(wake_at) AS wake_at FROM eventkit_task
            WHERE queue = :queue AND state = 'scheduled' AND wake_at >= (SELECT wake_at FROM mark)
            UNION ALL
            SELECT min(wake_at) FROM eventkit_task
            WHERE queue = :queue AND state = 'leased' AND wake_at >= (SELECT wake_at FROM mark)
            UNION ALL
            SELECT min(wake_at) FROM eventkit_task
            WHERE queue = :queue AND state = 'ready' AND wake_at >= (SELECT wake_at FROM mark)
        ) AS earliest
    ) AS clock
    CROSS JOIN LATERAL (
        SELECT bool_or(holder = '0' OR NOT eventkit_in_hand(holder)) AS due
        FROM (
            SELECT xmax AS holder FROM eventkit_task
            WHERE
                queue = :queue AND state IN ('scheduled', 'leased', 'ready')
                AND wake_at <= :now AND wake_at >= (SELECT wake_at FROM mark)
            LIMIT CASE WHEN clock.wake_at <= :now THEN 20 ELSE 0 END
        ) AS first
    ) AS moved
    CROSS JOIN (
        SELECT bool_or(holder = '0' OR NOT eventkit_in_hand(holder)) AS free
        FROM (
            SELECT xmax AS holder FROM eventkit_task
            WHERE queue = :queue AND state = 'ready'
            ORDER BY priority DESC, run_at, id
            LIMIT 20
        ) AS best
    ) AS ready
    LEFT JOIN eventkit_queue AS q ON q.name = :queue

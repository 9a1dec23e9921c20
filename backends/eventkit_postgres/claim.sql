-- Claiming tasks.  Claims skip rows that other transactions have locked, so none waits for another.

-- name: ReadGate
SELECT paused, lease, max_attempts, rate, burst, tokens, refilled_at, max_running, running, due, now
FROM eventkit_gate(:queue)

-- A task that has been due for a while may lie before the place where claims begin to scan (eventkit_low).
-- name: Promote
WITH
stirred AS MATERIALIZED (SELECT eventkit_stir('task', :queue)),
due AS MATERIALIZED (
    SELECT
        t.id, t.expires_at <= :now AS expired,
        t.expires_at <= :now
        OR t.state = 'leased' AND t.attempt >= coalesce(
            t.max_attempts, (SELECT q.max_attempts FROM eventkit_queue AS q WHERE q.name = :queue), 3
        ) AS dies
    FROM stirred, eventkit_task AS t
    WHERE
        t.queue = :queue AND t.state IN ('scheduled', 'leased', 'ready') AND t.wake_at <= :now
        AND t.wake_at >= (
            SELECT coalesce(min(l.wake_at), '-infinity') FROM eventkit_low AS l
            WHERE l.queue = :queue AND l.raise_at > :now - interval '1 s' AND l.wake_at <= :now
        )
    ORDER BY t.priority DESC, t.run_at, t.id
    LIMIT :limit
    FOR UPDATE OF t SKIP LOCKED
),
moved AS (
    UPDATE eventkit_task AS t
    SET
        state = CASE WHEN dies THEN 'dead' ELSE 'ready' END,
        reason = CASE WHEN dies THEN CASE WHEN expired THEN 'expired' ELSE 'exhausted' END END,
        error = CASE
            WHEN t.state = 'leased'
            THEN 'the lease of worker ' || t.worker || ' ran out in attempt ' || t.attempt
            ELSE t.error
        END,
        finished_at = CASE WHEN dies THEN :now END,
        wake_at = CASE WHEN dies IS NOT TRUE THEN t.expires_at END,
        token = NULL,
        lapsed = t.lapsed OR t.state = 'leased'
    FROM due
    WHERE t.id = due.id AND t.id = ANY (ARRAY(SELECT id FROM due))
    RETURNING t.id, t.queue, t.lane, t.state, t.priority, t.run_at
),
lowered AS (
    INSERT INTO eventkit_low (queue, priority, run_at)
    SELECT m.queue, m.priority, min(m.run_at)
    FROM moved AS m
    WHERE
        m.state = 'ready' AND (
            m.run_at < :now - interval '25 ms'
            OR NOT EXISTS (SELECT FROM eventkit_low AS l WHERE l.queue = m.queue AND l.priority = m.priority)
        )
    GROUP BY m.queue, m.priority
)
SELECT id, state, lane
FROM moved

-- Limits and due tasks need no further call: each statement of a function sees what was committed before it.
-- name: Take
SELECT
    id, queue_name, payload, key, headers, priority, attempt, max_attempts, run_ms, enqueued_ms, expires_ms,
    lease_expires_ms, token, lease_ms, lapsed
FROM eventkit_claimed(:queue, :worker, :limit, :lease, :token)

-- Expired tasks are excluded, because Promote marks only a limited number of them dead at once.  The priorities are
-- searched one after the other, each from where its ready tasks begin.
-- name: Lease
WITH best AS MATERIALIZED (
    SELECT t.id
    FROM
        (
            SELECT priority, min(run_at) AS run_at FROM eventkit_low
            WHERE queue = :queue
            GROUP BY priority
            ORDER BY priority DESC
        ) AS low
        CROSS JOIN LATERAL (
            SELECT id FROM eventkit_task
            WHERE
                queue = :queue AND state = 'ready' AND priority = low.priority AND run_at >= low.run_at
                AND (expires_at IS NULL OR expires_at > :now)
            ORDER BY run_at, id
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        ) AS t
    LIMIT :limit
)
UPDATE eventkit_task AS t
SET
    state = 'leased', attempt = attempt + 1, worker = :worker, token = :token,
    claimed_at = :now, wake_at = :now + :lease::bigint * interval '1 ms'
WHERE t.id = ANY (ARRAY(SELECT id FROM best))
RETURNING
    t.id, queue, payload::text, coalesce(key, lane), headers::text, priority, attempt, coalesce(max_attempts, :max_attempts::bigint),
    eventkit_ms(run_at), eventkit_ms(enqueued_at), eventkit_ms(expires_at), eventkit_ms(wake_at), token, :lease::bigint, lapsed

-- name: SpendTokens
UPDATE eventkit_queue
SET tokens = :tokens, refilled_at = eventkit_moment(:refilled_at)
WHERE name = :queue

-- A task locked by another transaction makes a waiter neither poll at once nor sleep until a notification: that
-- transaction may release it without one.
-- name: ReadOutlook
WITH mark AS MATERIALIZED (
    SELECT coalesce(min(wake_at), '-infinity') AS wake_at
    FROM eventkit_low
    WHERE queue = :queue AND raise_at > :now - interval '1 s' AND wake_at <= :now
)
SELECT
    coalesce(q.paused, false), coalesce(q.lease, 300000), coalesce(q.max_attempts, 3),
    q.rate, q.burst, q.tokens, eventkit_ms(q.refilled_at), q.max_running,
    CASE WHEN q.max_running IS NOT NULL THEN (
        SELECT count(*) FROM eventkit_task WHERE queue = :queue AND state = 'leased' AND wake_at > :now
    ) END,
    coalesce(due, false),
    eventkit_ms(now),
    coalesce(free, false),
    eventkit_ms(least(CASE WHEN wake_at <= now THEN later ELSE wake_at END, CASE WHEN NOT free THEN later END))
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

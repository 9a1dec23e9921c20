-- Outboxes: queues whose tasks may belong to a lane, and are then handed out in order.
--
-- A ready task of a lane is a ticket: a claim that draws it leases the first task of the lane instead.  Tasks that
-- must wait are held back, invisible to claims, until the end of the task before them releases them (eventkit_unblock).

-- name: AddMessage
WITH
woken AS MATERIALIZED (SELECT eventkit_wake('task', :queue)),
added AS (
    INSERT INTO eventkit_task (
        queue, payload, headers, priority, lane, state, run_at, wake_at, expires_at, enqueued_at
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

-- The last column shows whether this transaction has the lane to itself until it ends.  Another one may have changed
-- the lane just before, which only a later snapshot shows; so the next statement finds the first task.
-- step: DrawTickets
WITH drawn AS MATERIALIZED (
    SELECT t.id, t.lane
    FROM
        (
            SELECT priority, min(run_at) AS run_at FROM eventkit_low_water
            WHERE queue = :queue
            GROUP BY priority
            ORDER BY priority DESC
        ) AS low
        CROSS JOIN LATERAL (
            SELECT id, lane FROM eventkit_task
            WHERE
                queue = :queue AND state = 'ready' AND priority = low.priority AND run_at >= low.run_at
                AND (expires_at IS NULL OR expires_at > :now)
            ORDER BY run_at, id
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        ) AS t
    LIMIT :limit
)
SELECT id, lane, lane IS NULL OR pg_try_advisory_xact_lock(eventkit_lane(:queue, lane))
FROM drawn

-- step: LeaseFirst
WITH
first AS MATERIALIZED (
    SELECT t.id
    FROM
        unnest(:keys::text[]) AS l (lane)
        CROSS JOIN LATERAL (
            SELECT least(
                (SELECT min(id) FROM eventkit_task WHERE queue = :queue AND lane = l.lane AND state = 'scheduled'),
                (SELECT min(id) FROM eventkit_task WHERE queue = :queue AND lane = l.lane AND state = 'ready')
            ) AS id
            WHERE NOT EXISTS (SELECT FROM eventkit_task WHERE queue = :queue AND lane = l.lane AND state = 'leased')
        ) AS head
        JOIN eventkit_task AS t ON t.id = head.id
    WHERE
        (t.state = 'ready' OR t.state = 'scheduled' AND t.run_at <= :now)
        AND (t.expires_at IS NULL OR t.expires_at > :now)
    FOR UPDATE OF t SKIP LOCKED
)
UPDATE eventkit_task AS t
SET
    state = 'leased', attempt = attempt + 1, worker = :worker, token = :token,
    claimed_at = :now, wake_at = :now + :lease::bigint * interval '1 ms'
WHERE t.id = ANY (ARRAY(SELECT id FROM first) || :ids::bigint[])
RETURNING
    id, queue, payload::text, coalesce(key, lane), headers::text, priority, attempt,
    coalesce(max_attempts, :max_attempts::bigint),
    eventkit_ms(run_at), eventkit_ms(enqueued_at), eventkit_ms(expires_at), eventkit_ms(wake_at), token, :lease::bigint, lapsed

-- A held task is checked again after waiting for twice as long, so that none waits forever for a vanished process and
-- long waits cost little.  The task before it may have been released since the previous statement: then no task is
-- held, or no ticket would be left.
-- step: HoldBack
WITH waiting AS MATERIALIZED (
    SELECT t.id
    FROM
        unnest(:keys::text[]) AS l (lane)
        CROSS JOIN LATERAL (
            SELECT id FROM eventkit_task
            WHERE queue = :queue AND lane = l.lane AND state = 'ready'
            ORDER BY id
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        ) AS t
    WHERE
        EXISTS (SELECT FROM eventkit_task WHERE queue = :queue AND lane = l.lane AND state = 'leased')
        OR EXISTS (
            SELECT FROM eventkit_task
            WHERE
                id = (SELECT min(id) FROM eventkit_task WHERE queue = :queue AND lane = l.lane AND state = 'scheduled')
                AND run_at > :now
        )
    LIMIT :limit
)
UPDATE eventkit_task
SET
    state = 'scheduled',
    wake_at = eventkit_wakes_at(
        :now + least(interval '1 hour', greatest(interval '1 s', :now - enqueued_at)), expires_at, :now
    )
WHERE id = ANY (ARRAY(SELECT id FROM waiting))

-- Another transaction has their lanes.
-- step: PutOff
UPDATE eventkit_task
SET state = 'scheduled', wake_at = eventkit_wakes_at(:now + interval '20 ms', expires_at, :now)
WHERE id = ANY (:ids::bigint[])

-- step: Unblock
SELECT eventkit_unblock(:queue, :keys::text[])

-- name: ReadOutbox
SELECT
    count(*) FILTER (WHERE state IN ('scheduled', 'ready')),
    count(*) FILTER (WHERE state = 'leased'),
    count(*) FILTER (WHERE state = 'dead'),
    eventkit_ms(:now) - eventkit_ms(min(enqueued_at) FILTER (WHERE state <> 'dead'))
FROM :messages

-- Message ids that consumers have seen.

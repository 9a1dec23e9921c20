-- Outboxes: queues whose tasks may belong to a lane, and are then handed out in order.
--
-- A ready task of a lane is a ticket: a claim that draws it leases the first task of the lane instead.  Tasks that
-- must wait are held back, invisible to claims, until the end of the task before them releases them (Unblock).

-- name: AddMessage
INSERT INTO eventkit_task (
    queue, payload, headers, priority, lane, state, run_at, wake_at, expires_at, enqueued_at
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

-- The writer has all lanes to itself.
-- step: DrawTickets
SELECT id, lane, 1
FROM eventkit_task
WHERE queue = :queue AND state = 'ready' AND (expires_at IS NULL OR expires_at > :now)
ORDER BY priority DESC, run_at, id
LIMIT :limit

-- step: LeaseFirst
UPDATE eventkit_task
SET
    state = 'leased', attempt = attempt + 1, worker = :worker, token = :token,
    claimed_at = :now, wake_at = :now + :lease
WHERE
    id IN (
        SELECT value FROM json_each(:ids)
        UNION ALL
        SELECT (
            SELECT min(id)
            FROM (
                SELECT min(id) AS id FROM eventkit_task WHERE queue = :queue AND lane = value AND state = 'scheduled'
                UNION ALL
                SELECT min(id) FROM eventkit_task WHERE queue = :queue AND lane = value AND state = 'ready'
            )
        )
        FROM json_each(:keys)
        WHERE NOT EXISTS (SELECT 1 FROM eventkit_task WHERE queue = :queue AND lane = value AND state = 'leased')
    )
    AND (state = 'ready' OR state = 'scheduled' AND run_at <= :now)
    AND (expires_at IS NULL OR expires_at > :now)
RETURNING :leased

-- A held task is checked again after waiting for twice as long, so that none waits forever for a vanished process and
-- long waits cost little.  A task with no task before it is not held.
-- step: HoldBack
UPDATE eventkit_task
SET
    state = 'scheduled',
    wake_at = min(coalesce(expires_at, :now + 3600000), :now + min(3600000, max(1000, :now - enqueued_at)))
WHERE id IN (
    SELECT t.id
    FROM json_each(:keys) AS l CROSS JOIN eventkit_task AS t
    WHERE
        t.queue = :queue AND t.lane = l.value AND t.state = 'ready'
        AND (
            EXISTS (SELECT 1 FROM eventkit_task WHERE queue = :queue AND lane = l.value AND state = 'leased')
            OR EXISTS (
                SELECT 1 FROM eventkit_task
                WHERE
                    id = (SELECT min(id) FROM eventkit_task WHERE queue = :queue AND lane = l.value AND state = 'scheduled')
                    AND run_at > :now
            )
        )
    LIMIT :limit
)

-- Another transaction has their lanes.
-- step: PutOff
UPDATE eventkit_task
SET state = 'scheduled', wake_at = min(coalesce(expires_at, :now + 20), :now + 20)
WHERE id IN (SELECT value FROM json_each(:ids))

-- step: Unblock
UPDATE eventkit_task
SET state = 'ready', wake_at = expires_at
WHERE
    id IN (
        SELECT (
            SELECT min(id)
            FROM (
                SELECT min(id) AS id FROM eventkit_task WHERE queue = :queue AND lane = value AND state = 'scheduled'
                UNION ALL
                SELECT min(id) FROM eventkit_task WHERE queue = :queue AND lane = value AND state = 'ready'
                UNION ALL
                SELECT min(id) FROM eventkit_task WHERE queue = :queue AND lane = value AND state = 'leased'
            )
        )
        FROM json_each(:keys)
    )
    AND state = 'scheduled' AND run_at <= :now

-- name: ReadOutbox
SELECT
    count(*) FILTER (WHERE state IN ('scheduled', 'ready')),
    count(*) FILTER (WHERE state = 'leased'),
    count(*) FILTER (WHERE state = 'dead'),
    :now - min(enqueued_at) FILTER (WHERE state <> 'dead')
FROM :messages

-- Message ids that consumers have seen.

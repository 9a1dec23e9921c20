-- Claiming tasks.  SQLite has one writer at a time, so a claim needs no row locks.
--
-- Text is read as bytes: text that is not UTF-8, which plain SQL may store, would make a driver and every claim fail.

-- part: gate
    coalesce(q.paused, 0) AS paused, coalesce(q.lease, 300000) AS lease, coalesce(q.max_attempts, 3),
    q.rate, q.burst, q.tokens, q.refilled_at, q.max_running,
    CASE WHEN q.max_running IS NOT NULL THEN (
        SELECT count(*) FROM eventkit_task WHERE queue = :queue AND state = 'leased' AND wake_at > now
    ) END AS running,
    (
        SELECT min(l.max_running - (
            SELECT count(*) FROM eventkit_cluster_limit AS o CROSS JOIN eventkit_task AS t
            WHERE o.name = l.name AND t.queue = o.queue AND t.state = 'leased' AND t.wake_at > now
        ))
        FROM eventkit_cluster_limit AS l WHERE l.queue = :queue
    ) AS room

-- `due` reads the wake index once for each state in which a task can become due.
-- step: ReadGate
SELECT
    :gate,
    EXISTS (
        SELECT 1 FROM eventkit_task
        WHERE queue = :queue AND state IN ('scheduled', 'leased', 'ready') AND wake_at <= now
    ),
    now,
    :with_groups AS with_groups, q.group_rate IS NOT NULL, coalesce(q.group_max_running, q.group_rate) IS NOT NULL
FROM (SELECT :now AS now) LEFT JOIN eventkit_queue AS q ON q.name = :queue

-- step: UpdateDue
UPDATE eventkit_task
SET
    state = now.state,
    reason = CASE WHEN now.state = 'dead' THEN iif(expired, 'expired', 'exhausted') END,
    error = CASE
        WHEN now.stored_state = 'leased'
        THEN 'the lease of worker ' || eventkit_task.worker || ' ran out in attempt ' || eventkit_task.attempt
        ELSE eventkit_task.error
    END,
    code = CASE
        WHEN expired AND now.state = 'dead' THEN 'EXPIRED'
        WHEN now.stored_state = 'leased' THEN 'LEASE_LOST'
        ELSE code
    END,
    finished_at = CASE WHEN now.state = 'dead' THEN :now END,
    wake_at = CASE WHEN now.state = 'ready' THEN eventkit_task.expires_at END,
    token = NULL, held = NULL, turn = iif(now.state = 'ready', turn, NULL),
    lapsed = lapsed OR now.stored_state = 'leased'
FROM (
    SELECT id, state, stored_state, expires_at <= :now AS expired
    FROM eventkit_task_now
    WHERE queue = :queue AND stored_state IN ('scheduled', 'leased', 'ready') AND wake_at <= :now
    ORDER BY priority DESC, run_at, id
    LIMIT :limit
) AS now
WHERE eventkit_task.id = now.id
RETURNING id, state

-- The LIMIT contains what forbids a claim, because it is evaluated once; a condition would be evaluated for every row.
-- part: free
    CASE
        WHEN EXISTS (
            SELECT 1 FROM eventkit_queue
            WHERE
                name = :queue AND (
                    paused OR rate IS NOT NULL OR max_running IS NOT NULL
                    OR group_max_running IS NOT NULL OR group_rate IS NOT NULL OR ordered AND (fair OR :limit > 1)
                )
        ) OR EXISTS (
            SELECT 1 FROM eventkit_cluster_limit WHERE queue = :queue
        ) OR EXISTS (
            SELECT 1 FROM eventkit_task
            WHERE queue = :queue AND state IN ('scheduled', 'leased', 'ready') AND wake_at <= :now
        )
        THEN 0
        ELSE :limit
    END

-- In an ordered queue it takes one task at most, and only if that is the first of its group.
-- name: TakeFirst
UPDATE eventkit_task
SET
    state = 'leased', attempt = attempt + 1, worker = :worker, token = :token, claimed_at = :now,
    wake_at = :now + coalesce(:lease, (SELECT lease FROM eventkit_queue WHERE name = :queue), 300000)
WHERE id IN (
    SELECT id FROM (
        SELECT id FROM eventkit_task
        WHERE queue = :queue AND state = 'ready'
        ORDER BY priority DESC, run_at, id
        LIMIT iif(:is_fair, 0, :free)
    ) AS t
    WHERE (SELECT ordered FROM eventkit_queue WHERE name = :queue) IS NOT 1 OR EXISTS (
        SELECT 1
        FROM eventkit_task AS d JOIN eventkit_queue AS q ON q.name = :queue
        WHERE
            d.id = t.id AND (
                NOT :in_order OR NOT :busy AND :stopped IS NOT 1 AND NOT EXISTS (
                    SELECT 1 FROM eventkit_task
                    WHERE queue = :queue AND group_key = d.group_key AND state IN ('ready', 'scheduled') AND id < d.id
                )
            )
    )
    UNION ALL
    SELECT id FROM (
        SELECT id FROM eventkit_task
        WHERE queue = :queue AND state = 'ready' AND turn IS NOT NULL
        ORDER BY priority DESC, turn, id
        LIMIT iif(:is_fair, :free, 0)
    )
)
RETURNING
    id, queue, CAST(payload AS BLOB), CAST(key AS BLOB), CAST(headers AS BLOB), priority, attempt,
    coalesce(max_attempts, (SELECT max_attempts FROM eventkit_queue WHERE name = :queue), 3),
    run_at, enqueued_at, expires_at, wake_at, token, wake_at - claimed_at, lapsed, CAST(group_key AS BLOB), turn

-- part: leased
    id, queue, CAST(payload AS BLOB), CAST(key AS BLOB), CAST(headers AS BLOB), priority, attempt,
    coalesce(max_attempts, :max_attempts), run_at, enqueued_at, expires_at, wake_at, token, :lease, lapsed, CAST(group_key AS BLOB), turn

-- Expired tasks are excluded, because Promote marks only a limited number of them dead at once.
-- step: Lease
UPDATE eventkit_task
SET
    state = 'leased', attempt = attempt + 1, worker = :worker, token = :token,
    claimed_at = :now, wake_at = :now + :lease
WHERE id IN (SELECT id FROM (:drawn))
RETURNING :leased

-- step: SpendTokens
UPDATE eventkit_queue
SET tokens = :tokens, refilled_at = :refilled_at
WHERE name = :queue

-- name: TasksAhead
SELECT
    :gate,
    coalesce(wake_at <= now, 0),
    now,
    EXISTS (SELECT 1 FROM eventkit_task WHERE queue = :queue AND state = 'ready'),
    wake_at,
    (
        SELECT min(t.wake_at)
        FROM
            eventkit_cluster_limit AS l JOIN eventkit_cluster_limit AS o ON o.name = l.name
            CROSS JOIN eventkit_task AS t
        WHERE l.queue = :queue AND t.queue = o.queue AND t.state = 'leased' AND t.wake_at > now
    )
FROM (
    SELECT :now AS now, min(wake_at) AS wake_at
    FROM (
        SELECT min(wake_at) AS wake_at FROM eventkit_task WHERE queue = :queue AND state = 'scheduled' AND wake_at IS NOT NULL
        UNION ALL
        SELECT min(wake_at) FROM eventkit_task WHERE queue = :queue AND state = 'leased' AND wake_at IS NOT NULL
        UNION ALL
        SELECT min(wake_at) FROM eventkit_task WHERE queue = :queue AND state = 'ready' AND wake_at IS NOT NULL
    )
) LEFT JOIN eventkit_queue AS q ON q.name = :queue

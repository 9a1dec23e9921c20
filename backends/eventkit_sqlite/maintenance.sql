-- Housekeeping.

-- From one queue to the next by the index, so that tasks that are not due cost nothing.
-- name: FindDueQueues
WITH RECURSIVE queues (name) AS (
    SELECT min(queue) FROM eventkit_task WHERE wake_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(t.queue) FROM eventkit_task AS t WHERE t.wake_at IS NOT NULL AND t.queue > q.name)
    FROM queues AS q
    WHERE q.name IS NOT NULL
)
SELECT name
FROM queues
WHERE
    name IS NOT NULL
    AND EXISTS (
        SELECT 1 FROM eventkit_task AS t
        WHERE t.queue = name AND t.state IN ('scheduled', 'leased', 'ready') AND t.wake_at <= :now
    )

-- name: DropDone
DELETE FROM eventkit_task
WHERE id IN (
    SELECT t.id
    FROM eventkit_queue AS q CROSS JOIN eventkit_task AS t ON t.queue = q.name
    WHERE t.state = 'done' AND t.finished_at IS NOT NULL AND t.finished_at <= :now - q.keep_done
    LIMIT :limit
)
RETURNING 1

-- name: DropResults
DELETE FROM eventkit_result
WHERE id IN (SELECT id FROM eventkit_result WHERE expires_at <= :now LIMIT :limit)
RETURNING 1

-- name: DropRates
DELETE FROM eventkit_rate
WHERE (name, per) IN (SELECT name, per FROM eventkit_rate WHERE until <= :now LIMIT :limit)
RETURNING 1
